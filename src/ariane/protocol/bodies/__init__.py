"""JSON bodies as typed values. Read them with `fastjson.decode`, write with `fastjson.encode`.

Members stand in the order of their wire names, which is the order Java writes them in.
"""

from ariane.protocol.bodies.clients import (
    CheckClientRequest,
    ConnectionInfo,
    ConsumerConnections,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    LockReply,
    LockRequest,
    ProducerConnections,
    ProducerData,
    SubscriptionData,
)
from ariane.protocol.bodies.registration import RegisterBrokerBody, decode_register_body
from ariane.protocol.bodies.routes import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    KeyValueTable,
    QueueData,
    TopicRouteData,
)
from ariane.protocol.bodies.statistics import (
    ConsumeStats,
    GroupList,
    OffsetProgress,
    ResetOffsets,
    TopicOffset,
    TopicStats,
)
from ariane.protocol.bodies.tables import (
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    GroupConfigList,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
)
from ariane.protocol.message_queue import MessageQueue

__all__ = [
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerMemberGroupBody",
    "CheckClientRequest",
    "ClusterInfo",
    "ConnectionInfo",
    "ConsumeStats",
    "ConsumerConnections",
    "ConsumerData",
    "ConsumerList",
    "ConsumerOffsets",
    "DataVersion",
    "DelayOffsets",
    "GroupConfigList",
    "GroupList",
    "HeartbeatData",
    "KeyValueTable",
    "LockReply",
    "LockRequest",
    "MessageQueue",
    "OffsetProgress",
    "ProducerConnections",
    "ProducerData",
    "QueueData",
    "RegisterBrokerBody",
    "ResetOffsets",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupTable",
    "TopicConfig",
    "TopicConfigList",
    "TopicConfigTable",
    "TopicList",
    "TopicOffset",
    "TopicRouteData",
    "TopicStats",
    "decode_register_body",
]
