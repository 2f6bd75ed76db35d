"""Headers of pop: 200050 to 200055, their answers, and POP_ROLLBACK."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class PopHeader(Header, frozen=True, kw_only=True):
    """POP_MESSAGE (200050): lend messages of a topic for a time."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")  # -1: any
    count_max: Int32 = field(name="maxMsgNums")
    invisible_ms: Int64 = field(name="invisibleTime")
    poll_ms: Int64 = field(name="pollTime")  # how long the client waits for messages
    born_ms: Int64 = field(name="bornTime", default=0)  # 0: now
    init_mode: Int32 = field(name="initMode", default=0)  # a new group starts at: 0 first, 1 last
    expression_type: str | None = field(name="expType", default=None)
    expression: str | None = field(name="exp", default=None)
    is_ordered: bool | None = field(name="order", default=None)
    attempt_id: str | None = field(name="attemptId", default=None)


class PopReply(Header, frozen=True, kw_only=True):
    """The answer to a pop; Java fails without the first four."""

    popped_ms: Int64 = field(name="popTime", default=0)
    invisible_ms: Int64 = field(name="invisibleTime", default=0)
    revive_queue_id: Int32 = field(name="reviveQid", default=0)
    rest_count: Int64 = field(name="restNum", default=0)
    start_offsets: str | None = field(name="startOffsetInfo", default=None)
    message_offsets: str | None = field(name="msgOffsetInfo", default=None)
    order_counts: str | None = field(name="orderCountInfo", default=None)


class PeekHeader(Header, frozen=True, kw_only=True):
    """PEEK_MESSAGE (200052): look at what the next pop would give."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")
    count_max: Int32 = field(name="maxMsgNums")


class AckHeader(Header, frozen=True, kw_only=True):
    """ACK_MESSAGE (200051): one message is done with."""

    group: str = field(name="consumerGroup")
    topic: str  # the one the message lies in, maybe a retry topic
    queue_id: Int32 = field(name="queueId")
    extra_info: str = field(name="extraInfo")  # the handle
    queue_offset: Int64 = field(name="offset")


class ChangeInvisibleHeader(Header, frozen=True, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME (200053): keep a message for another time, from now on."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")
    extra_info: str = field(name="extraInfo")
    queue_offset: Int64 = field(name="offset")
    invisible_ms: Int64 = field(name="invisibleTime")


class ChangeInvisibleReply(Header, frozen=True, kw_only=True):
    """What the message's new handle is made of."""

    popped_ms: Int64 = field(name="popTime", default=0)
    invisible_ms: Int64 = field(name="invisibleTime", default=0)
    revive_queue_id: Int32 = field(name="reviveQid", default=0)


class NotificationHeader(Header, frozen=True, kw_only=True):
    """NOTIFICATION (200054): say when there is something to pop."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")
    poll_ms: Int64 = field(name="pollTime")
    born_ms: Int64 = field(name="bornTime", default=0)
    is_ordered: bool | None = field(name="order", default=None)
    attempt_id: str | None = field(name="attemptId", default=None)


class NotificationReply(Header, frozen=True, kw_only=True):
    """Whether there is something to pop, and whether too many wait for it."""

    has_message: bool = field(name="hasMsg", default=False)
    is_full: bool = field(name="pollingFull", default=False)


class PollingHeader(Header, frozen=True, kw_only=True):
    """POLLING_INFO (200055): how many wait."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")


class PollingReply(Header, frozen=True, kw_only=True):
    """How many pops wait for a queue."""

    waiting_count: Int32 = field(name="pollingNum", default=0)
