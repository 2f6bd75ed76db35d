"""ACK_MESSAGE, its batch, and CHANGE_MESSAGE_INVISIBLETIME: what becomes of messages lent."""

from __future__ import annotations

from typing import Final

from ariane.broker.handlers.pop import check_invisible
from ariane.broker.pop.checkpoints import Key
from ariane.broker.pop.handles import ORDER_QUEUE_ID, Handle, parse_handle, real_topic_of
from ariane.broker.pop.order import Place, Verdict
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode
from ariane.errors import RequestRejected
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.bodies.pop import BatchAck, decode_batch_ack
from ariane.protocol.headers.pop import AckHeader, ChangeInvisibleHeader, ChangeInvisibleReply

NO_MESSAGE: Final = ResponseCode.NO_MESSAGE
NOT_OUT: Final = (
    "the message is not out under this handle: it was acknowledged, its time was changed (which"
    " gives it a new handle), or its time was up"
)


def ack(request: Request[AckHeader], state: BrokerState) -> Reply:
    """One message is done with; saying it twice, or too late, does no harm."""
    header = request.header
    topic = check_queue(header.topic, header.queue_id, state)
    first, end = bounds(header.topic, header.queue_id, state)
    if not first <= header.queue_offset <= end:
        raise RequestRejected(
            f"offset is illegal, key:{header.topic}@{header.queue_id},"
            f" commit:{header.queue_offset}, store:{first}~{end}",
            NO_MESSAGE,
        )
    handle = parse_handle(header.extra_info)
    if handle.is_ordered:
        return ack_in_order(header, handle, state)
    key = Key(header.topic, header.group, header.queue_id, handle.first, handle.popped_ms)
    end_offset = state.pop.settle(key, [header.queue_offset], handle.due_ms, handle.revive_queue_id)
    state.pop.lane.acknowledged(topic, header.group)
    return Reply.of(after=after(end_offset, state))


def ack_in_order(header: AckHeader, handle: Handle, state: BrokerState) -> Reply:
    """One message of an ordered pop is done with; the queue is free after the last of them."""
    place = Place(header.topic, header.group, header.queue_id)
    end_offset = settle_in_order(place, header.queue_offset, handle.popped_ms, state)
    return Reply.of(after=after(end_offset, state))


def settle_in_order(
    place: Place, queue_offset: int, popped_ms: int, state: BrokerState
) -> int | None:
    """Acknowledge in order, move the group on, and wake whoever waits for the queue."""
    stands_at = state.offsets.get(*place)
    if stands_at is not None and queue_offset < stands_at:
        return None
    settled, end_offset = state.pop.settle_in_order(place, queue_offset, popped_ms)
    if settled.verdict is Verdict.UNKNOWN:
        raise RequestRejected(
            f"offset is illegal, key:{'@'.join(map(str, place))}, old:{stands_at},"
            f" commit:{queue_offset}: it is not among the messages that are out",
            ResponseCode.MESSAGE_ILLEGAL,
        )
    if settled.verdict is Verdict.SETTLED:
        state.offsets.commit(*place, settled.consume_offset)
        if not state.pop.blocked_for_ms(place):
            state.pop.arrived(place.topic, place.queue_id)
    return end_offset


def batch_ack(request: Request[None], state: BrokerState) -> Reply:
    """Messages of several checkpoints are done with; what does not fit is passed over."""
    acks = decode_batch_ack(request.body).acks if request.body else []
    if not acks:
        return Reply.refusal(NO_MESSAGE, "no message is named")
    end_offsets = [settle_batch(each, state) for each in acks]
    return Reply.of(after=after(max((end for end in end_offsets if end), default=None), state))


def settle_batch(batch: BatchAck, state: BrokerState) -> int | None:
    """Settle the messages of one checkpoint; the end of the last note."""
    topic = real_topic_of(batch.topic, batch.group, batch.mark)
    config = state.topics.get(topic)
    if config is None:
        return None
    first, end = bounds(topic, batch.queue_id, state)
    start = batch.first
    offsets = [
        start + distance for distance in batch.distances() if first <= start + distance <= end
    ]
    if not offsets:
        return None
    if batch.revive_queue_id == ORDER_QUEUE_ID:
        return _settle_batch_in_order(topic, batch, offsets, state)
    key = Key(topic, batch.group, batch.queue_id, start, batch.popped_ms)
    due_ms = batch.popped_ms + batch.invisible_ms
    state.pop.lane.acknowledged(config, batch.group)
    return state.pop.settle(key, offsets, due_ms, batch.revive_queue_id)


def change_invisible(request: Request[ChangeInvisibleHeader], state: BrokerState) -> Reply:
    """Keep a message for another time, counted from now; it has a new handle then."""
    header = request.header
    check_queue(header.topic, header.queue_id, state)
    check_invisible(header.invisible_ms)
    first, end = bounds(header.topic, header.queue_id, state)
    if not first <= header.queue_offset < end:
        raise RequestRejected(f"no message at {header.queue_offset}: {first}~{end}", NO_MESSAGE)
    handle = parse_handle(header.extra_info)
    if handle.is_ordered:
        return hide_in_order(header, handle, state)
    key = Key(header.topic, header.group, header.queue_id, handle.first, handle.popped_ms)
    lent = state.pop.extend(key, header.queue_offset, header.invisible_ms)
    if lent is None:
        raise RequestRejected(NOT_OUT, NO_MESSAGE)
    return Reply.of(
        ChangeInvisibleReply(
            popped_ms=lent.popped_ms,
            invisible_ms=header.invisible_ms,
            revive_queue_id=lent.revive_queue_id,
        )
    )


def hide_in_order(header: ChangeInvisibleHeader, handle: Handle, state: BrokerState) -> Reply:
    """Change until when a message popped in order keeps its queue blocked."""
    place = Place(header.topic, header.group, header.queue_id)
    stands_at = state.offsets.get(*place)
    if stands_at is not None and header.queue_offset < stands_at:
        return Reply.of(ChangeInvisibleReply())
    visible_ms = state.pop.order_ms(place) + header.invisible_ms
    if not state.pop.hide_in_order(
        place, header.queue_offset, popped_ms=handle.popped_ms, visible_ms=visible_ms
    ):
        raise RequestRejected(NOT_OUT, NO_MESSAGE)
    state.pop.pops.look_at(header.topic, header.invisible_ms / 1000)
    return Reply.of(
        ChangeInvisibleReply(
            popped_ms=handle.popped_ms,
            invisible_ms=visible_ms - handle.popped_ms,
            revive_queue_id=handle.revive_queue_id,
        )
    )


def check_queue(topic: str, queue_id: int, state: BrokerState) -> TopicConfig:
    """The topic, if it has the queue."""
    config = state.topics.existing(topic)
    if not 0 <= queue_id < config.read_queue_count:
        raise RequestRejected(
            f"queueId[{queue_id}] is illegal, topic:[{topic}]"
            f" topicConfig.readQueueNums:[{config.read_queue_count}]",
            ResponseCode.MESSAGE_ILLEGAL,
        )
    return config


def bounds(topic: str, queue_id: int, state: BrokerState) -> tuple[int, int]:
    """First and next offset of a queue."""
    return state.store.min_offset(topic, queue_id), state.store.max_offset(topic, queue_id)


def after(end_offset: int | None, state: BrokerState) -> int | None:
    """What must be flushed before the answer leaves: an acknowledgement must not come undone."""
    return None if end_offset is None else state.ack_at(end_offset, waits=True)


def _settle_batch_in_order(
    topic: str, batch: BatchAck, offsets: list[int], state: BrokerState
) -> int | None:
    last = None
    place = Place(topic, batch.group, batch.queue_id)
    for queue_offset in offsets:
        end_offset = settle_in_order(place, queue_offset, batch.popped_ms, state)
        last = last if end_offset is None else end_offset
    return last
