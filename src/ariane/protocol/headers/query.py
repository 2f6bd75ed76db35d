"""Headers of look-ups: by key, by offset id, and of statistics and configuration."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class QueryHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE (12)."""

    topic: str
    key: str
    count_max: Int32 = field(name="maxNum")
    begin_ms: Int64 = field(name="beginTimestamp")
    end_ms: Int64 = field(name="endTimestamp")
    by_unique_key: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryReply(Header, frozen=True, kw_only=True):
    """The answer to 12: how far the index reaches."""

    index_updated_ms: Int64 = field(name="indexLastUpdateTimestamp")
    index_log_offset: Int64 = field(name="indexLastUpdatePhyoffset")


class ViewHeader(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33)."""

    log_offset: Int64 = field(name="offset")
    topic: str | None = None


class ConfigReply(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONFIG (26): the data version as JSON text."""

    version: str


class StatisticsHeader(Header, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315)."""

    name: str = field(name="statsName")
    key: str = field(name="statsKey")


class ConsumeQueueHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: Int32 = field(name="queueId")
    queue_offset: Int64 = field(name="index")
    count_max: Int32 = field(name="count")
    group: str | None = field(name="consumerGroup", default=None)
