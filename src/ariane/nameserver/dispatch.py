"""The name server's whole surface: request code -> handler, on one screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import RequestRejected
from ariane.nameserver import handlers
from ariane.nameserver.handlers import Request, State
from ariane.protocol.command import Command
from ariane.protocol.headers import Header, decode_header
from ariane.protocol.headers.nameserver import (
    BrokerHeader,
    BrokerHeartbeatHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicHeader,
    MemberGroupHeader,
    NamespaceHeader,
    PutSettingHeader,
    RegisterBrokerHeader,
    SettingHeader,
)
from ariane.protocol.headers.topics import TopicHeader
from ariane.remoting.connection import Connection


class Handler(NamedTuple):
    """A function that carries out one request code, and the header it reads."""

    run: Callable[[Request[Any], State], Command]
    header: type[Header] | None = None


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.REGISTER_BROKER: Handler(handlers.register_broker, RegisterBrokerHeader),
    RequestCode.UNREGISTER_BROKER: Handler(handlers.unregister_broker, BrokerHeader),
    RequestCode.BROKER_HEARTBEAT: Handler(handlers.broker_heartbeat, BrokerHeartbeatHeader),
    RequestCode.QUERY_DATA_VERSION: Handler(handlers.query_data_version, BrokerHeader),
    RequestCode.GET_BROKER_MEMBER_GROUP: Handler(handlers.member_group, MemberGroupHeader),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Handler(handlers.route_of_topic, TopicHeader),
    RequestCode.GET_BROKER_CLUSTER_INFO: Handler(handlers.cluster_info),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Handler(handlers.all_topics),
    RequestCode.GET_TOPICS_BY_CLUSTER: Handler(handlers.topics_of_cluster, ClusterHeader),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Handler(handlers.system_topics),
    RequestCode.GET_UNIT_TOPIC_LIST: Handler(handlers.unit_topics),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: Handler(handlers.unit_subscribed_topics),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Handler(handlers.unit_subscribed_other_topics),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Handler(
        handlers.wipe_write_permission, BrokerNameHeader
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Handler(handlers.add_write_permission, BrokerNameHeader),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Handler(handlers.delete_topic, DeleteTopicHeader),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: Handler(handlers.register_topic, TopicHeader),
    RequestCode.PUT_KV_CONFIG: Handler(handlers.put_key_value, PutSettingHeader),
    RequestCode.GET_KV_CONFIG: Handler(handlers.get_key_value, SettingHeader),
    RequestCode.DELETE_KV_CONFIG: Handler(handlers.delete_key_value, SettingHeader),
    RequestCode.GET_KVLIST_BY_NAMESPACE: Handler(handlers.key_values_of_namespace, NamespaceHeader),
    RequestCode.GET_NAMESRV_CONFIG: Handler(handlers.get_config),
    RequestCode.UPDATE_NAMESRV_CONFIG: Handler(handlers.update_config),
}


def dispatch(state: State, connection: Connection, command: Command) -> Command:
    """Carry out one request; what it raises is for the connection to answer."""
    handler = HANDLERS.get(command.code)
    if handler is None:
        raise RequestRejected(
            f"request type {command.code} not supported", ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        )
    header = None if handler.header is None else decode_header(handler.header, command.ext)
    return handler.run(Request(command, header, connection), state)
