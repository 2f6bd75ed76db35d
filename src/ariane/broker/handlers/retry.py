"""Messages that could not be consumed: sent back (36), or sent to a retry topic by the client."""

from __future__ import annotations

from dataclasses import replace

from ariane.broker.messages import SendRequest
from ariane.broker.placing import place, put
from ariane.broker.requests import Postponed, Reply, Request
from ariane.broker.retry import Return, retries_max
from ariane.broker.state import BrokerState
from ariane.codes import Permission, ResponseCode
from ariane.errors import RequestRejected
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.headers.retry import SendBackHeader
from ariane.protocol.message import decode_records, properties_text_of
from ariane.protocol.properties import DELAY, RETRY_TOPIC, amended_properties
from ariane.store.messages import NewMessage
from ariane.topics import RETRY_PREFIX, is_internal_topic


def send_back(request: Request[SendBackHeader], state: BrokerState) -> Reply | Postponed:
    """Have a message delivered to a group again later, or make a dead letter of it."""
    header = request.header
    state.flow.admit_send()
    group = state.groups.for_consumer(header.group)
    if not Permission.WRITE & state.config.permission:
        raise RequestRejected("the broker takes no messages", ResponseCode.NO_PERMISSION)
    if group.retry_queue_count <= 0:
        return Reply.of()  # the group wants no retries
    record = state.store.record_at(header.log_offset)
    if record is None:
        raise RequestRejected(f"look message by offset failed, {header.log_offset}")
    (message,) = decode_records(record)
    if is_internal_topic(message.topic):
        raise RequestRejected(
            f"look message by offset failed, {header.log_offset} is not a message"
        )
    times = retries_max(header.reconsume_times_max, request.command.version, group.retry_times_max)
    returned = Return(group.name, header.delay_level, times)
    is_dead = returned.gives_up(message.reconsume_times)
    ensured = state.topics.ensure_dead_letter if is_dead else state.topics.ensure_retry
    topic = writable(ensured(group))
    if not state.topics.is_saved(topic.name):
        return Postponed(state.topics.file.when_saved)
    copy = returned.copy_of(message, properties_text_of(record), queue_of(topic, state))
    placed = (place if is_dead else put)(state, copy)
    state.stats.back_by(message.properties.get(RETRY_TOPIC, message.topic), group.name).add(
        1, placed.size
    )
    return Reply.of(after=state.ack_at(placed.end_offset, waits=True))


def writable(topic: TopicConfig | None) -> TopicConfig:
    """The topic if messages may be placed in it, or RequestRejected."""
    assert topic is not None, "the group has been asked whether it wants retries"
    if not Permission.WRITE & topic.permission or not topic.write_queue_count:
        raise RequestRejected(
            f"the topic[{topic.name}] sending message is forbidden: it is not writable",
            ResponseCode.NO_PERMISSION,
        )
    return topic


def queue_of(topic: TopicConfig, state: BrokerState) -> int:
    """Any queue that is read as well as written."""
    end = min(topic.read_queue_count, topic.write_queue_count) or topic.write_queue_count
    return state.random.randrange(end)


def dead_letters_for(request: SendRequest, state: BrokerState) -> TopicConfig | None:
    """Where a message sent to a retry topic goes instead, if it is not to be tried again.

    Consumers send there what they could not send back. One that keeps order tries again in place,
    and sends only what it gave up on: so it is while the group holds a lease on any queue.
    """
    header = request.header
    if not header.topic.startswith(RETRY_PREFIX):
        return None
    group = state.groups.for_consumer(header.topic.removeprefix(RETRY_PREFIX))
    times = retries_max(header.reconsume_times_max, request.command.version, group.retry_times_max)
    if (header.reconsume_times or 0) <= times and not state.locks.is_held(group.name):
        return None
    return writable(state.topics.ensure_dead_letter(group))


def as_dead_letter(message: NewMessage, topic: TopicConfig, state: BrokerState) -> NewMessage:
    """The message of a send to a retry topic as it is placed among the dead letters."""
    properties = amended_properties(message.properties, {DELAY: "-1"})
    return replace(
        message, topic=topic.name, queue_id=queue_of(topic, state), properties=properties
    )
