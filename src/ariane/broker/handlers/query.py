"""Looking things up: messages by key and by id, offsets by time, the ends of a queue."""

from __future__ import annotations

from typing import Final

from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode
from ariane.errors import RequestRejected
from ariane.protocol.headers.offsets import (
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
    TimestampReply,
)
from ariane.protocol.headers.query import QueryHeader, QueryReply, ViewHeader
from ariane.store.messages import Boundary

UNIQUE_KEY_COUNT: Final = 32  # how many a look-up by unique key may return, whatever it asks


def query(request: Request[QueryHeader], state: BrokerState) -> Reply:
    """Messages of a topic by key, within a range of store times."""
    header = request.header
    found = state.store.query(
        header.topic,
        header.key,
        count_max=UNIQUE_KEY_COUNT if header.by_unique_key else header.count_max,
        begin_ms=header.begin_ms,
        end_ms=header.end_ms,
    )
    reply = QueryReply(index_updated_ms=found.updated_ms, index_log_offset=found.log_offset)
    if not found.body:
        return Reply.of(
            reply,
            code=ResponseCode.QUERY_NOT_FOUND,
            remark="can not find message, maybe time range not correct",
        )
    return Reply.of(reply, body=found.body)


def view_by_id(request: Request[ViewHeader], state: BrokerState) -> Reply:
    """One message by the log offset its id names."""
    record = state.store.record_at(request.header.log_offset)
    if record is None:
        raise RequestRejected(f"can not find message by the offset, {request.header.log_offset}")
    return Reply.of(body=record)


def search_offset(request: Request[SearchOffsetHeader], state: BrokerState) -> Reply:
    """The queue offset that belongs to a moment."""
    header = request.header
    is_upper = (header.boundary or "").upper() == Boundary.UPPER.value
    boundary = Boundary.UPPER if is_upper else Boundary.LOWER
    offset = state.store.offset_at(header.topic, header.queue_id, header.timestamp_ms, boundary)
    return Reply.of(OffsetReply(offset=offset))


def max_offset(request: Request[MaxOffsetHeader], state: BrokerState) -> Reply:
    """The offset the next message of a queue will get."""
    header = request.header
    return Reply.of(OffsetReply(offset=state.store.max_offset(header.topic, header.queue_id)))


def min_offset(request: Request[QueueHeader], state: BrokerState) -> Reply:
    """The offset of the oldest message of a queue."""
    header = request.header
    return Reply.of(OffsetReply(offset=state.store.min_offset(header.topic, header.queue_id)))


def earliest_store_time(request: Request[QueueHeader], state: BrokerState) -> Reply:
    """When the oldest message of a queue was stored; -1 when there is none."""
    header = request.header
    stored_ms = state.store.earliest_store_ms(header.topic, header.queue_id)
    return Reply.of(TimestampReply(timestamp_ms=stored_ms))
