"""Headers of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class PullHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE (11): messages of one queue from an offset on."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")
    queue_offset: Int64 = field(name="queueOffset")
    count_max: Int32 = field(name="maxMsgNums")
    system_flag: Int32 = field(name="sysFlag")  # PullFlag bits
    commit_offset: Int64 = field(name="commitOffset")  # counts only with COMMIT_OFFSET set
    suspend_ms: Int64 = field(name="suspendTimeoutMillis", default=0)
    subscription_version: Int64 = field(name="subVersion", default=0)
    subscription: str | None = None
    expression_type: str | None = field(name="expressionType", default=None)
    bytes_max: Int32 | None = field(name="maxMsgBytes", default=None)
    request_source: Int32 | None = field(name="requestSource", default=None)
    broker_name: str | None = field(name="bname", default=None)


class PullReply(Header, frozen=True, kw_only=True):
    """The answer to a pull, in Apache's order; Java fails without broker id and the offsets."""

    suggested_broker_id: Int64 = field(name="suggestWhichBrokerId")
    group_system_flag: Int32 | None = field(name="groupSysFlag", default=None)
    next_offset: Int64 = field(name="nextBeginOffset")
    max_offset: Int64 = field(name="maxOffset")
    min_offset: Int64 = field(name="minOffset")
    topic_system_flag: Int32 | None = field(name="topicSysFlag", default=None)
    offset_delta: Int64 | None = field(name="offsetDelta", default=None)


class PullForbidden(Header, frozen=True, kw_only=True):
    """Who said no to a pull: 1 the broker, 2 the group, 3 the topic, 4 its broadcast setting."""

    forbidden_type: Int32 = field(name="forbiddenType")
