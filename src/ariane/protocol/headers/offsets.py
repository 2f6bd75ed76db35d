"""Headers about positions: consumer offsets, queue bounds, and offsets by time."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class QueryConsumerOffsetHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14)."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")
    zero_if_not_found: bool | None = field(name="setZeroIfNotFound", default=None)


class UpdateConsumerOffsetHeader(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15)."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")
    consume_offset: Int64 = field(name="commitOffset")


class SearchOffsetHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    topic: str
    queue_id: Int32 = field(name="queueId")
    timestamp_ms: Int64 = field(name="timestamp")
    boundary: str | None = field(name="boundaryType", default=None)  # LOWER or UPPER, any case


class MaxOffsetHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: Int32 = field(name="queueId")
    committed: bool = True


class QueueHeader(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET (31) and GET_EARLIEST_MSG_STORETIME (32): one queue."""

    topic: str
    queue_id: Int32 = field(name="queueId")


class OffsetReply(Header, frozen=True, kw_only=True):
    """An offset: the answer to 14, 29, 30 and 31."""

    offset: Int64


class TimestampReply(Header, frozen=True, kw_only=True):
    """The answer to 32; -1 when the queue is empty."""

    timestamp_ms: Int64 = field(name="timestamp")


class ConsumerStatusHeader(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and GET_CONSUMER_STATUS_FROM_CLIENT (221)."""

    topic: str
    group: str
    client_id: str | None = field(name="clientAddr", default=None)  # an id, whatever its name


class ResetOffsetHeader(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220)."""

    topic: str
    group: str
    timestamp_ms: Int64 = field(name="timestamp")  # -1: the end of the queue
    is_force: bool = field(name="isForce")
    queue_id: Int32 = field(name="queueId", default=-1)
    consume_offset: Int64 | None = field(name="offset", default=None)
