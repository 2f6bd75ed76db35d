"""Headers about connected clients: their heartbeats, their leaving, and calls relayed to them."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32


class UnregisterHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT (35); one of the groups or both."""

    client_id: str = field(name="clientID")
    producer_group: str | None = field(name="producerGroup", default=None)
    consumer_group: str | None = field(name="consumerGroup", default=None)


class HeartbeatReply(Header, frozen=True, kw_only=True):
    """What a broker that knows the second form of heartbeats says of itself."""

    supports_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    subscription_changed: bool | None = field(name="IS_SUB_CHANGE", default=None)


class RunningInfoHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307), relayed to the client."""

    group: str = field(name="consumerGroup")
    client_id: str = field(name="clientId")
    with_stacks: bool | None = field(name="jstackEnable", default=None)


class ConsumeDirectlyHeader(Header, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309), relayed to the client with the record as its body."""

    group: str = field(name="consumerGroup")
    client_id: str | None = field(name="clientId", default=None)
    message_id: str | None = field(name="msgId", default=None)
    broker_name: str | None = field(name="brokerName", default=None)
    topic: str | None = None
    topic_system_flag: Int32 | None = field(name="topicSysFlag", default=None)
    group_system_flag: Int32 | None = field(name="groupSysFlag", default=None)
