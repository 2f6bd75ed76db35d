"""Filters of consumers, as `config/consumerFilter.json` keeps them."""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.headers import Int32, Int64


class BloomFilterData(msgspec.Struct, frozen=True, kw_only=True):
    """The bits that stand for a filter."""

    bit_count: Int32 = field(name="bitNum", default=0)
    bit_positions: tuple[int, ...] = field(name="bitPos", default=())


class ConsumerFilterData(msgspec.Struct, frozen=True, kw_only=True):
    """What a group wants of one topic by expression."""

    bloom: BloomFilterData | None = field(name="bloomFilterData", default=None)
    born_ms: Int64 = field(name="bornTime", default=0)
    client_version: Int64 = field(name="clientVersion", default=0)
    group: str = field(name="consumerGroup")
    is_dead: bool = field(name="dead", default=False)
    dead_ms: Int64 = field(name="deadTime", default=0)
    expression: str
    expression_type: str = field(name="expressionType", default="SQL92")
    topic: str


class TopicFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of one topic, by group."""

    groups: dict[str, ConsumerFilterData] = field(name="groupFilterData", default_factory=dict)
    topic: str = ""


class ConsumerFilters(msgspec.Struct, frozen=True, kw_only=True):
    """config/consumerFilter.json."""

    topics: dict[str, TopicFilters] = field(name="filterDataByTopic", default_factory=dict)
