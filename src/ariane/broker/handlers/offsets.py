"""Where groups stand: asking, committing, and taking over another group's place."""

from __future__ import annotations

from typing import Final

from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.broker.tables import QUEUE_COUNT_MAX
from ariane.codes import ResponseCode
from ariane.errors import GroupNotFound, InvalidParameter
from ariane.protocol import fastjson
from ariane.protocol.bodies.statistics import CorrectionOffsets
from ariane.protocol.headers.groups import CloneOffsetsHeader, CorrectionHeader
from ariane.protocol.headers.offsets import (
    OffsetReply,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from ariane.topics import group_fault

INT64_MAX: Final = (1 << 63) - 1


def query_offset(request: Request[QueryConsumerOffsetHeader], state: BrokerState) -> Reply:
    """Where a group goes on in a queue.

    A group that never was here starts at 0 when the queue still begins there and its first message
    is fresh; else it is told that nothing was found, and chooses by its own settings.
    """
    header = request.header
    stored = state.offsets.get(header.topic, header.group, header.queue_id)
    if stored is not None and stored >= 0:
        return Reply.of(OffsetReply(offset=stored))
    may_start_at_zero = header.zero_if_not_found is not False
    if may_start_at_zero and begins_fresh(header.topic, header.queue_id, state):
        return Reply.of(OffsetReply(offset=0))
    remark = (
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        if may_start_at_zero
        else "Not found, do not set to zero, maybe this group boot first"
    )
    return Reply.refusal(ResponseCode.QUERY_NOT_FOUND, remark)


def begins_fresh(topic: str, queue_id: int, state: BrokerState) -> bool:
    """Whether the queue still has its very first message, and recent enough to be in memory."""
    store = state.store
    if store.min_offset(topic, queue_id) > 0 or store.max_offset(topic, queue_id) == 0:
        return False
    entry = store.queue(topic, queue_id).entry(0)
    return entry is not None and store.written - entry[0] <= store.read_limits["memory_window"]


def update_offset(request: Request[UpdateConsumerOffsetHeader], state: BrokerState) -> Reply:
    """Store how far a group has come, forwards or backwards."""
    header = request.header
    if header.group not in state.groups:
        raise GroupNotFound(header.group)
    state.topics.existing(header.topic)
    if not 0 <= header.queue_id < QUEUE_COUNT_MAX:
        raise InvalidParameter(f"queueId={header.queue_id} is no queue of {header.topic}")
    if header.consume_offset < 0:
        raise InvalidParameter(f"commitOffset={header.consume_offset} is before every message")
    is_stored = state.offsets.commit(
        header.topic, header.group, header.queue_id, header.consume_offset
    )
    return Reply.of(remark=None if is_stored else "Offset has been previously reset")


def all_offsets(request: Request[None], state: BrokerState) -> Reply:
    """Every group's progress, as a replica takes it over."""
    return Reply.of(body=fastjson.encode(state.offsets.table()))


def all_delay_offsets(request: Request[None], state: BrokerState) -> Reply:
    """How far each delay level is delivered, as a replica takes it over."""
    return Reply.of(body=fastjson.encode(state.schedule.progress.table()))


def clone_offsets(request: Request[CloneOffsetsHeader], state: BrokerState) -> Reply:
    """Let one group go on from where another stands."""
    header = request.header
    if (fault := group_fault(header.target_group)) is not None:
        raise InvalidParameter(fault)
    topics = [header.topic] if header.topic else state.offsets.topics_of(header.source_group)
    online = state.clients.consumer_group(header.source_group)
    for topic in topics:
        is_read = online is None or topic in online.subscriptions or bool(header.offline)
        if state.topics.get(topic) is not None and is_read:
            state.offsets.clone(topic, header.source_group, header.target_group)
    return Reply.of()


def correction_offsets(request: Request[CorrectionHeader], state: BrokerState) -> Reply:
    """The lowest offset any group has in each queue, or none where the compared group is behind."""
    header = request.header
    left_out = (header.filter_groups or "").split(",")
    lowest: dict[int, int] = {}
    for group in state.offsets.groups_of(header.topic):
        if group in left_out:
            continue
        for queue_id, offset in state.offsets.progress(header.topic, group).items():
            if offset >= state.store.min_offset(header.topic, queue_id):
                lowest[queue_id] = min(offset, lowest.get(queue_id, INT64_MAX))
    for queue_id, offset in state.offsets.progress(header.topic, header.compare_group).items():
        if lowest.get(queue_id, INT64_MAX) > offset:
            lowest[queue_id] = INT64_MAX
    return Reply.of(body=fastjson.encode(CorrectionOffsets(offsets=lowest)))
