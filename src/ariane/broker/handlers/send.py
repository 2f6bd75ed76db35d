"""SEND_MESSAGE in its three spellings: check, place in the log, answer when it is safe enough."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ariane.broker.delay_levels import level_of
from ariane.broker.handlers.answers import when_routed
from ariane.broker.handlers.retry import as_dead_letter, dead_letters_for
from ariane.broker.message_types import check_type, declared_type, is_by_priority, queue_of_priority
from ariane.broker.messages import (
    TIMER_KEYS,
    MessageIllegal,
    SendRequest,
    batch_of,
    is_batch,
    message_of,
)
from ariane.broker.placing import place, route
from ariane.broker.requests import Postponed, Reply
from ariane.broker.state import BrokerState
from ariane.broker.timed import recall_handle_of
from ariane.broker.transactions import TRANSACTION_FLAGS, as_half, as_plain, is_half
from ariane.codes import Permission, ResponseCode, SystemFlag
from ariane.errors import InvalidParameter, RequestRejected
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.headers.send import SendReply
from ariane.protocol.message import decode_properties, stored_properties_of
from ariane.protocol.properties import UNIQUE_KEY, WAIT
from ariane.topics import (
    RETRY_PREFIX,
    SEND_FORBIDDEN,
    STAGING_TOPIC,
    TOPIC_BYTES_MAX,
    is_retry_or_dead_letter,
    topic_fault,
)

INNER_BATCH_FLAGS: Final = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP


def send(request: SendRequest, state: BrokerState) -> Reply | Postponed:
    """Place one message, or one batch, in the log; the answer leaves once it is durable enough."""
    state.flow.admit_send()
    is_new = state.registration is not None and state.topics.get(request.header.topic) is None
    topic = writable_topic(request, state)
    dead_letters = dead_letters_for(request, state)
    if is_new or not state.topics.is_saved((dead_letters or topic).name):
        # A message needs a topic that will be there, and whoever hears of it may go and read it.
        return Postponed(partial(when_routed, state))
    queue_id = queue_for(request, topic, state)
    if is_batch(request):
        reply = send_batch(request, topic, queue_id, state)
    else:
        reply = send_one(request, topic, queue_id, state, dead_letters)
    state.lane.opened(topic, queue_id)
    return reply


def send_one(
    request: SendRequest,
    topic: TopicConfig,
    queue_id: int,
    state: BrokerState,
    dead_letters: TopicConfig | None = None,
) -> Reply:
    """Place one message, among the dead letters if there are any for it."""
    message = message_of(request, queue_id, state)
    properties = stored_properties_of(message.properties)
    if state.config.checks_message_types:
        check_type(topic, properties)
    refuse_inner_batch(properties, message.system_flag)
    if dead_letters is not None:
        message = as_dead_letter(message, dead_letters, state)
    elif is_half(properties, message.reconsume_times):
        message = as_half(state, message, properties, request.header.group)
    else:
        message = route(state, as_plain(message, properties), properties)
    placed = place(state, message)
    return Reply.of(
        reply_header(
            state,
            queue_id,
            placed.queue_offset,
            placed.message_id,
            properties,
            recall_handle=recall_handle_of(message, state.config.name),
        ),
        after=state.ack_at(placed.end_offset, waits=waits(properties)),
    )


def send_batch(
    request: SendRequest, topic: TopicConfig, queue_id: int, state: BrokerState
) -> Reply:
    """Place all messages of a batch, or none."""
    header = request.header
    properties = decode_properties(header.properties or "")
    if header.topic.startswith(RETRY_PREFIX):
        raise MessageIllegal(f"batch request does not support retry group {header.topic}")
    refuse_inner_batch(properties, header.system_flag)
    if is_half(properties, 0) or header.system_flag & TRANSACTION_FLAGS:
        raise MessageIllegal("a batch cannot be transactional; send its messages one by one")
    if level_of(properties) > 0 or any(key in properties for key in TIMER_KEYS):
        raise MessageIllegal("a batch cannot be delayed; send its messages one by one")
    batch = batch_of(request, queue_id, state)
    if state.config.checks_message_types and declared_type(topic) is not None:
        for entry in batch.entries:
            check_type(topic, stored_properties_of(entry.properties))
    started_s = state.clock.monotonic_s()
    placed = state.store.append_batch(batch)
    state.flow.append_took(state.clock.monotonic_s() - started_s)
    state.stats.put_to(batch.topic).add(len(placed.message_ids), placed.size)
    state.arrived(batch.topic, batch.queue_id)
    message_ids = ",".join(placed.message_ids)
    return Reply.of(
        reply_header(state, queue_id, placed.queue_offset, message_ids, properties),
        after=state.ack_at(placed.end_offset, waits=waits(properties)),
    )


def reply_header(
    state: BrokerState,
    queue_id: int,
    queue_offset: int,
    message_id: str,
    properties: Mapping[str, str],
    *,
    recall_handle: str | None = None,
) -> SendReply:
    """What the producer learns of where its message went."""
    return SendReply(
        queue_id=queue_id,
        transaction_id=properties.get(UNIQUE_KEY),
        message_id=message_id,
        trace_on="true" if state.config.trace_on else "false",
        region=state.config.region,
        recall_handle=recall_handle,
        queue_offset=queue_offset,
    )


def waits(properties: Mapping[str, str]) -> bool:
    """Whether the producer wants the message safe before it hears of it."""
    return properties.get(WAIT, "true").lower() == "true"


def writable_topic(request: SendRequest, state: BrokerState) -> TopicConfig:
    """The topic to send to, made on the way if that is allowed; or RequestRejected."""
    header = request.header
    return writable(
        header.topic,
        state,
        template=header.default_topic,
        queue_count=header.default_queue_count,
    )


def writable(name: str, state: BrokerState, *, template: str, queue_count: int) -> TopicConfig:
    """The topic of a name, made after a template if that is allowed; or RequestRejected."""
    if len(name) > TOPIC_BYTES_MAX and not is_retry_or_dead_letter(name):
        raise MessageIllegal(f"the topic name is longer than {TOPIC_BYTES_MAX} characters")
    if fault := topic_fault(name):
        raise InvalidParameter(fault)
    if name in SEND_FORBIDDEN or name == STAGING_TOPIC:
        raise RequestRejected(
            f"Sending message to topic[{name}] is forbidden.", ResponseCode.NO_PERMISSION
        )
    topic = state.topics.for_send(name, template=template, queue_count=queue_count)
    check_open(topic, state)
    return topic


def check_open(topic: TopicConfig, state: BrokerState) -> None:
    """Raise RequestRejected unless the topic takes messages."""
    is_open = Permission.WRITE & topic.permission
    if not is_open or (topic.is_ordered and not Permission.WRITE & state.config.permission):
        raise RequestRejected(
            f"sending message to topic[{topic.name}] is forbidden: it is not writable",
            ResponseCode.NO_PERMISSION,
        )


def queue_for(request: SendRequest, topic: TopicConfig, state: BrokerState) -> int:
    """The queue of the message's priority, where queues stand for them; else the one asked for."""
    asked = choose_queue(request.header.queue_id, topic, state)
    if not is_by_priority(topic):
        return asked
    priority = queue_of_priority(topic, decode_properties(request.header.properties or ""))
    return asked if priority is None else priority


def choose_queue(asked: int, topic: TopicConfig, state: BrokerState) -> int:
    """The queue the client asked for, or any writable one when it left the choice to us."""
    end = max(topic.write_queue_count, topic.read_queue_count)
    if asked >= end or not end:
        raise InvalidParameter(
            f"request queueId[{asked}] is illegal, topic[{topic.name}] has {end} queues"
        )
    return asked if asked >= 0 else state.random.randrange(topic.write_queue_count or end)


def refuse_inner_batch(properties: Mapping[str, str], system_flag: int) -> None:
    """Refuse what would be stored and then not treated as its sender asked."""
    if "INNER_NUM" in properties or system_flag & INNER_BATCH_FLAGS:
        raise MessageIllegal("inner batches need a batch consume queue, which no topic here has")
