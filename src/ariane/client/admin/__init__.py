"""Looking after a cluster: its topics and groups, its brokers, and single messages by id or key."""

from __future__ import annotations

from ariane.client.admin.dead_letters import DeadLetters
from ariane.client.admin.groups import GroupLag, Groups, Member, QueueLag, QueueMove
from ariane.client.admin.messages import Messages
from ariane.client.admin.topics import MessageType, QueueStats, Topics

__all__ = [
    "Admin",
    "GroupLag",
    "Member",
    "MessageType",
    "QueueLag",
    "QueueMove",
    "QueueStats",
]


class Admin(Topics, Messages, Groups, DeadLetters):
    """Administration of one cluster; `Client.admin`."""
