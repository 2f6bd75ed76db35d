"""How far queues and groups have come; maps with message queues as keys."""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.bodies.clients import SubscriptionData
from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int32, Int64
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
    # What a group that pops holds of the queue; only brokers of ours say it.
    lent_offsets: list[Int64] | None = field(name="lentOffsets", default=None)
    pull_offset: Int64 = field(name="pullOffset", default=0)


class ConsumeStats(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_CONSUME_STATS (208)."""

    consume_rate: float = field(name="consumeTps", default=0.0)
    offsets: dict[MessageQueue, OffsetProgress] = field(name="offsetTable", default_factory=dict)


class ResetOffsets(JavaBody, frozen=True, kw_only=True):
    """Where a group is set to: the answer to 222 and the body of 220."""

    offsets: dict[MessageQueue, Int64] = field(name="offsetTable", default_factory=dict)


class QueueOffset(msgspec.Struct, frozen=True, kw_only=True):
    """One queue and an offset in it, as C++ clients read them."""

    broker_name: str = field(name="brokerName")
    offset: Int64 = 0
    queue_id: Int32 = field(name="queueId")
    topic: str


class ResetOffsetsForC(msgspec.Struct, frozen=True, kw_only=True):
    """The body of 220 when a C++ tool asked for the move."""

    offsets: list[QueueOffset] = field(name="offsetTable", default_factory=list)


class ConsumerStatus(JavaBody, frozen=True, kw_only=True):
    """Where members stand: the answer to 223 by client, the answer to 221 by queue."""

    clients: dict[str, dict[MessageQueue, Int64]] = field(
        name="consumerTable", default_factory=dict
    )
    queues: dict[MessageQueue, Int64] = field(name="messageQueueTable", default_factory=dict)


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    groups: list[str] = field(name="groupList", default_factory=list)


class AllConsumeStats(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_BROKER_CONSUME_STATS (317)."""

    broker_address: str = field(name="brokerAddr")
    groups: list[dict[str, list[ConsumeStats]]] = field(
        name="consumeStatsList", default_factory=list
    )
    total_behind: Int64 = field(name="totalDiff", default=0)
    total_in_flight: Int64 = field(name="totalInflightDiff", default=0)


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """When messages of one queue were stored, and how long the next to consume has waited."""

    consume_ms: Int64 = field(name="consumeTimeStamp", default=0)
    delay_ms: Int64 = field(name="delayTime", default=0)
    last_ms: Int64 = field(name="maxTimeStamp", default=0)
    queue: MessageQueue = field(name="messageQueue")
    first_ms: Int64 = field(name="minTimeStamp", default=0)


class TimeSpans(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to QUERY_CONSUME_TIME_SPAN (303)."""

    spans: list[TimeSpan] = field(name="consumeTimeSpanSet", default_factory=list)


class CorrectionOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to QUERY_CORRECTION_OFFSET (308), by queue id."""

    offsets: dict[int, int] = field(name="correctionOffsets", default_factory=dict)


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a consume queue, and whether the group asked about is given it."""

    is_match: bool = field(name="eval", default=False)
    log_offset: Int64 = field(name="physicOffset")
    size: Int32 = field(name="physicSize")
    tags_code: Int64 = field(name="tagsCode")


class QueueEntries(JavaBody, frozen=True, kw_only=True):
    """The answer to QUERY_CONSUME_QUEUE (321)."""

    filter_data: str | None = field(name="filterData", default=None)
    max_offset: Int64 = field(name="maxQueueIndex", default=0)
    min_offset: Int64 = field(name="minQueueIndex", default=0)
    entries: list[QueueEntry] = field(name="queueData", default_factory=list)
    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted within a window."""

    average: float = field(name="avgpt", default=0.0)
    sum: Int64 = 0
    per_s: float = field(name="tps", default=0.0)


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to VIEW_BROKER_STATS_DATA (315)."""

    day: Sample = field(name="statsDay")
    hour: Sample = field(name="statsHour")
    minute: Sample = field(name="statsMinute")
