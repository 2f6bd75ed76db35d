"""Headers that name servers read: registration, settings, and what tools ask of them.

Topic look-ups (105, 217) use `topics.TopicHeader`.
"""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class RegisterBrokerHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER (103)."""

    broker_name: str = field(name="brokerName")
    broker_address: str = field(name="brokerAddr")
    cluster: str = field(name="clusterName")
    ha_address: str = field(name="haServerAddr", default="")
    broker_id: Int64 = field(name="brokerId")
    heartbeat_timeout_ms: Int64 | None = field(name="heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = field(name="enableActingMaster", default=None)
    is_compressed: bool = field(name="compressed", default=False)
    body_crc32: Int32 = field(name="bodyCrc32", default=0)  # 0: not checked
    zone: str | None = field(name="__ZONE_NAME", default=None)


class RegisterBrokerReply(Header, frozen=True, kw_only=True):
    """Where the master of the registering slave is."""

    ha_address: str | None = field(name="haServerAddr", default=None)
    master_address: str | None = field(name="masterAddr", default=None)


class BrokerHeader(Header, frozen=True, kw_only=True):
    """One broker: UNREGISTER_BROKER (104) and QUERY_DATA_VERSION (322)."""

    broker_name: str = field(name="brokerName")
    broker_address: str = field(name="brokerAddr")
    cluster: str = field(name="clusterName")
    broker_id: Int64 = field(name="brokerId")


class BrokerHeartbeatHeader(Header, frozen=True, kw_only=True):
    """BROKER_HEARTBEAT (904)."""

    broker_name: str = field(name="brokerName")
    broker_address: str = field(name="brokerAddr")
    cluster: str = field(name="clusterName")
    broker_id: Int64 | None = field(name="brokerId", default=None)


class DataVersionReply(Header, frozen=True, kw_only=True):
    """The answer to 322."""

    changed: bool


class MemberGroupHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster: str = field(name="clusterName")
    broker_name: str = field(name="brokerName")


class BrokerNameHeader(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str = field(name="brokerName")


class WipeWriteReply(Header, frozen=True, kw_only=True):
    """The answer to 205."""

    topic_count: Int32 = field(name="wipeTopicCount")


class AddWriteReply(Header, frozen=True, kw_only=True):
    """The answer to 327."""

    topic_count: Int32 = field(name="addTopicCount")


class DeleteTopicHeader(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster: str | None = field(name="clusterName", default=None)


class ClusterHeader(Header, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class PutSettingHeader(Header, frozen=True, kw_only=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class SettingHeader(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG (101) and DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class SettingReply(Header, frozen=True, kw_only=True):
    """The answer to 101."""

    value: str | None = None


class NamespaceHeader(Header, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
