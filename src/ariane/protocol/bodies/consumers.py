"""What a consumer tells of itself when it is asked from afar."""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.bodies.clients import SubscriptionData
from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int32, Int64
from ariane.protocol.message_queue import MessageQueue


class ConsumerStatus(JavaBody, frozen=True, kw_only=True):
    """The answers to 221 (one client's offsets) and 223 (those of all clients, by name)."""

    consumers: dict[str, dict[MessageQueue, Int64]] = field(
        name="consumerTable", default_factory=dict
    )
    queues: dict[MessageQueue, Int64] = field(name="messageQueueTable", default_factory=dict)


class HeldQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer holds of one queue."""

    message_count: Int32 = field(name="cachedMsgCount", default=0)
    max_offset: Int64 = field(name="cachedMsgMaxOffset", default=0)
    min_offset: Int64 = field(name="cachedMsgMinOffset", default=0)
    mebibytes: Int32 = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: Int64 = field(name="commitOffset", default=0)
    is_dropped: bool = field(name="droped", default=False)
    consumed_at_ms: Int64 = field(name="lastConsumeTimestamp", default=0)
    locked_at_ms: Int64 = field(name="lastLockTimestamp", default=0)
    pulled_at_ms: Int64 = field(name="lastPullTimestamp", default=0)
    is_locked: bool = field(name="locked", default=False)
    transaction_count: Int32 = field(name="transactionMsgCount", default=0)
    transaction_max_offset: Int64 = field(name="transactionMsgMaxOffset", default=0)
    transaction_min_offset: Int64 = field(name="transactionMsgMinOffset", default=0)
    unlock_tries: Int64 = field(name="tryUnlockTimes", default=0)


class TopicRates(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer has got on with one topic lately."""

    failed: Int64 = field(name="consumeFailedMsgs", default=0)
    failed_per_s: float = field(name="consumeFailedTPS", default=0.0)
    succeeded_per_s: float = field(name="consumeOKTPS", default=0.0)
    consume_ms: float = field(name="consumeRT", default=0.0)
    pull_ms: float = field(name="pullRT", default=0.0)
    pulled_per_s: float = field(name="pullTPS", default=0.0)


class RunningInfo(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_CONSUMER_RUNNING_INFO (307)."""

    stacks: str | None = field(name="jstack", default=None)
    popped: dict[MessageQueue, HeldQueue] = field(name="mqPopTable", default_factory=dict)
    queues: dict[MessageQueue, HeldQueue] = field(name="mqTable", default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    rates: dict[str, TopicRates] = field(name="statusTable", default_factory=dict)
    subscriptions: list[SubscriptionData] = field(name="subscriptionSet", default_factory=list)
    user_info: dict[str, str] = field(name="userConsumerInfo", default_factory=dict)


class DirectResult(JavaBody, frozen=True, kw_only=True):
    """The answer to CONSUME_MESSAGE_DIRECTLY (309)."""

    auto_commit: bool = field(name="autoCommit", default=True)
    result: str = field(name="consumeResult")
    is_orderly: bool = field(name="order", default=False)
    remark: str | None = None
    spent_ms: Int64 = field(name="spentTimeMills", default=0)
