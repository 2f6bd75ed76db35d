"""The blocking twin of `Admin`."""

from __future__ import annotations

from ariane.client import admin
from ariane.client.blocking import Blocking, blocking


class Admin(Blocking[admin.Admin]):
    """The blocking twin of `ariane.client.Admin`."""

    cluster = blocking(admin.Admin.cluster)
    broker_facts = blocking(admin.Admin.broker_facts)
    topics = blocking(admin.Admin.topics)
    system_topics = blocking(admin.Admin.system_topics)
    topic_route = blocking(admin.Admin.topic_route)
    create_topic = blocking(admin.Admin.create_topic)
    delete_topic = blocking(admin.Admin.delete_topic)
    topic_stats = blocking(admin.Admin.topic_stats)
    message = blocking(admin.Admin.message)
    resume_transaction = blocking(admin.Admin.resume_transaction)
    track = blocking(admin.Admin.track)
    find = blocking(admin.Admin.find)
    find_by_id = blocking(admin.Admin.find_by_id)
    groups = blocking(admin.Admin.groups)
    create_group = blocking(admin.Admin.create_group)
    delete_group = blocking(admin.Admin.delete_group)
    members = blocking(admin.Admin.members)
    lag = blocking(admin.Admin.lag)
    reset_offsets = blocking(admin.Admin.reset_offsets)
    dead_letters = blocking(admin.Admin.dead_letters)
    resend = blocking(admin.Admin.resend)
