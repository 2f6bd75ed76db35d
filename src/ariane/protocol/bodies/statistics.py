"""How far queues and groups have come; maps with message queues as keys."""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int64
from ariane.protocol.message_queue import MessageQueue


class TopicOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one queue."""

    last_update_ms: Int64 = field(name="lastUpdateTimestamp", default=0)
    max_offset: Int64 = field(name="maxOffset", default=0)
    min_offset: Int64 = field(name="minOffset", default=0)


class TopicStats(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_TOPIC_STATS_INFO (202)."""

    offsets: dict[MessageQueue, TopicOffset] = field(name="offsetTable", default_factory=dict)
    put_rate: float = field(name="topicPutTps", default=0.0)


class OffsetProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group has come in one queue."""

    broker_offset: Int64 = field(name="brokerOffset", default=0)
    consume_offset: Int64 = field(name="consumerOffset", default=0)
    last_ms: Int64 = field(name="lastTimestamp", default=0)
    pull_offset: Int64 = field(name="pullOffset", default=0)


class ConsumeStats(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_CONSUME_STATS (208)."""

    consume_rate: float = field(name="consumeTps", default=0.0)
    offsets: dict[MessageQueue, OffsetProgress] = field(name="offsetTable", default_factory=dict)


class ResetOffsets(JavaBody, frozen=True, kw_only=True):
    """Where a group is set to: the answer to 222 and the body of 220."""

    offsets: dict[MessageQueue, Int64] = field(name="offsetTable", default_factory=dict)


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    groups: list[str] = field(name="groupList", default_factory=list)
