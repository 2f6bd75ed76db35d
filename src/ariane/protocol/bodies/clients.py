"""What clients say of themselves, and what brokers say of their clients."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, field

from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int32, Int64
from ariane.protocol.message_queue import MessageQueue

CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True):
    """What a group wants of one topic."""

    class_filter_mode: bool = field(name="classFilterMode", default=False)
    tag_codes: Annotated[list[int], Meta(max_length=1024)] = field(
        name="codeSet", default_factory=list
    )
    expression_type: str = field(name="expressionType", default="TAG")  # "" means TAG too
    expression: str = field(name="subString", default="*")
    version: Int64 = field(name="subVersion", default=0)
    tags: Annotated[list[str], Meta(max_length=1024)] = field(name="tagsSet", default_factory=list)
    topic: str


class ConsumerData(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer group a client belongs to."""

    consume_from_where: str = field(name="consumeFromWhere", default="CONSUME_FROM_LAST_OFFSET")
    consume_type: str = field(name="consumeType", default="CONSUME_PASSIVELY")
    group: str = field(name="groupName")
    message_model: str = field(name="messageModel", default=CLUSTERING)
    subscriptions: Annotated[list[SubscriptionData], Meta(max_length=4096)] = field(
        name="subscriptionDataSet", default_factory=list
    )
    unit_mode: bool = field(name="unitMode", default=False)


class ProducerData(msgspec.Struct, frozen=True, kw_only=True):
    """One producer group a client belongs to."""

    group: str = field(name="groupName")


class HeartbeatData(msgspec.Struct, frozen=True, kw_only=True):
    """HEART_BEAT (34)."""

    client_id: str = field(name="clientID")
    consumers: Annotated[list[ConsumerData], Meta(max_length=1024)] = field(
        name="consumerDataSet", default_factory=list
    )
    fingerprint: Int64 = field(name="heartbeatFingerprint", default=0)
    producers: Annotated[list[ProducerData], Meta(max_length=1024)] = field(
        name="producerDataSet", default_factory=list
    )
    without_subscriptions: bool = field(name="withoutSub", default=False)


class CheckClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """CHECK_CLIENT_CONFIG (46): can the broker filter as this subscription asks?"""

    client_id: str = field(name="clientId")
    group: str
    namespace: str = ""
    subscription: SubscriptionData = field(name="subscriptionData")


class ConsumerList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    client_ids: list[str] = field(name="consumerIdList", default_factory=list)


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    client_id: str = field(name="clientId")
    group: str = field(name="consumerGroup")
    queues: list[MessageQueue] = field(name="mqSet", default_factory=list)
    only_this_broker: bool = field(name="onlyThisBroker", default=False)


class LockReply(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues the asking client holds now."""

    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class ConnectionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One connected client."""

    client_address: str = field(name="clientAddr")
    client_id: str = field(name="clientId")
    language: str = "JAVA"
    version: Int32 = 0


class ConsumerConnections(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connections: list[ConnectionInfo] = field(name="connectionSet", default_factory=list)
    consume_from_where: str | None = field(name="consumeFromWhere", default=None)
    consume_type: str | None = field(name="consumeType", default=None)
    message_model: str | None = field(name="messageModel", default=None)
    subscriptions: dict[str, SubscriptionData] = field(
        name="subscriptionTable", default_factory=dict
    )


class ProducerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One connected producer."""

    client_id: str = field(name="clientId")
    language: str = "JAVA"
    last_update_ms: Int64 = field(name="lastUpdateTimestamp", default=0)
    client_address: str = field(name="remoteIP")
    version: Int32 = 0


class AllProducers(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET_ALL_PRODUCER_INFO (328)."""

    groups: dict[str, list[ProducerInfo]] = field(name="data", default_factory=dict)


class GroupSubscription(JavaBody, frozen=True, kw_only=True):
    """The answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)
    topic: str | None = None


class ProducerConnections(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connections: list[ConnectionInfo] = field(name="connectionSet", default_factory=list)
