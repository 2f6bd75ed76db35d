"""What name servers tell: where topics are, which brokers there are.

Broker ids are written with quotes: every client reads that form, and standard parsers no other.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int32, Int64


class QueueData(msgspec.Struct, frozen=True, kw_only=True):
    """The queues one broker has of a topic."""

    broker_name: str = field(name="brokerName")
    permission: Int32 = field(name="perm")
    read_queue_count: Int32 = field(name="readQueueNums")
    system_flag: Int32 = field(name="topicSysFlag", default=0)
    write_queue_count: Int32 = field(name="writeQueueNums")


class BrokerData(msgspec.Struct, frozen=True, kw_only=True):
    """The processes behind one broker name; id 0 is the master."""

    addresses: dict[Int64, str] = field(name="brokerAddrs", default_factory=dict)
    broker_name: str = field(name="brokerName")
    cluster: str = ""
    enable_acting_master: bool = field(name="enableActingMaster", default=False)


class TopicRouteData(JavaBody, frozen=True, kw_only=True):
    """The answer to GET_ROUTEINFO_BY_TOPIC (105)."""

    brokers: list[BrokerData] = field(name="brokerDatas", default_factory=list)
    filter_servers: dict[str, list[str]] = field(name="filterServerTable", default_factory=dict)
    order_config: str | None = field(name="orderTopicConf", default=None)
    queues: list[QueueData] = field(name="queueDatas", default_factory=list)


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET_BROKER_CLUSTER_INFO (106)."""

    brokers: dict[str, BrokerData] = field(name="brokerAddrTable", default_factory=dict)
    clusters: dict[str, list[str]] = field(name="clusterAddrTable", default_factory=dict)


class BrokerMemberGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All processes of one broker name."""

    addresses: dict[Int64, str] = field(name="brokerAddrs", default_factory=dict)
    broker_name: str = field(name="brokerName")
    cluster: str


class BrokerMemberGroupBody(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to GET_BROKER_MEMBER_GROUP (901)."""

    group: BrokerMemberGroup = field(name="brokerMemberGroup")


class KeyValueTable(msgspec.Struct, frozen=True, kw_only=True):
    """Text by key: 28, 219 and the answer to 103."""

    table: dict[str, str] = field(default_factory=dict)
