"""What the name server does for each kind of request; `dispatch.py` says which is which.

A handler is a plain function of a request and the server's state that returns the answer. It says
no by raising; the connection turns what was raised into an answer.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from ariane.clock import Clock
from ariane.codes import ResponseCode
from ariane.config import NameServerConfig
from ariane.errors import RequestRejected
from ariane.kernel.hashing import crc32
from ariane.nameserver.config import shown, updated
from ariane.nameserver.key_values import ORDER_TOPICS, KeyValues
from ariane.nameserver.routes import Registration, RouteTable, TopicFlag
from ariane.protocol.bodies import (
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    DataVersion,
    KeyValueTable,
    TopicConfigTable,
    TopicList,
    TopicRouteData,
    decode_register_body,
)
from ariane.protocol.command import Command, reply
from ariane.protocol.fastjson import decode, encode
from ariane.protocol.headers import Header
from ariane.protocol.headers.nameserver import (
    AddWriteReply,
    BrokerHeader,
    BrokerHeartbeatHeader,
    BrokerNameHeader,
    ClusterHeader,
    DataVersionReply,
    DeleteTopicHeader,
    MemberGroupHeader,
    NamespaceHeader,
    PutSettingHeader,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    SettingHeader,
    SettingReply,
    WipeWriteReply,
)
from ariane.protocol.headers.topics import TopicHeader
from ariane.remoting.connection import Connection

BARE_TABLE_BEFORE: Final = 37  # version 3.0.11: older brokers register their topic table alone
LOGGER: Final = logging.getLogger("ariane.nameserver")
NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

H = TypeVar("H")


@dataclass(slots=True)
class State:
    """What the handlers share; `config` is replaced when it changes."""

    config: NameServerConfig
    routes: RouteTable
    key_values: KeyValues
    clock: Clock


@dataclass(frozen=True, slots=True)
class Request(Generic[H]):
    """One command, its header already read, and the connection it came by."""

    command: Command
    header: H
    connection: Connection

    @property
    def body(self) -> bytes:
        """The bytes after the header."""
        return self.command.body

    def reply(self, header: Header | None = None, *, body: bytes = b"") -> Command:
        """The answer that all is well."""
        return reply(self.command, header=header, body=body)


def register_broker(request: Request[RegisterBrokerHeader], state: State) -> Command:
    """Take in a broker and its topics; tell a replica where its master is."""
    header = request.header
    if header.body_crc32 != 0 and crc32(request.body) != header.body_crc32:
        raise RequestRejected("crc32 not match")
    table = _registered_table(request.command)
    timeout_ms = header.heartbeat_timeout_ms or state.config.broker_expiry_ms
    registered = state.routes.register(
        Registration(
            cluster=header.cluster,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_address,
            replication_address=header.ha_address,
            connection_id=request.connection.id,
            timeout_s=timeout_ms / 1000,
            data_version=table.data_version,
            topics=table.topics,
            may_act_as_master=header.enable_acting_master,
        ),
        state.clock.monotonic_s(),
        drop_missing=state.config.delete_topic_with_registration,
    )
    if registered.is_new:
        LOGGER.info(
            "broker registered name=%s address=%s", header.broker_name, header.broker_address
        )
    order_topics = (
        state.key_values.namespace(ORDER_TOPICS) if state.config.return_order_topics else None
    )
    return request.reply(
        RegisterBrokerReply(
            ha_address=registered.replication_address, master_address=registered.master_address
        ),
        body=b"" if order_topics is None else encode(KeyValueTable(table=order_topics)),
    )


def unregister_broker(request: Request[BrokerHeader], state: State) -> Command:
    """Forget a broker that says goodbye."""
    header = request.header
    if state.routes.unregister(header.cluster, header.broker_name, header.broker_address):
        LOGGER.info("broker left name=%s address=%s", header.broker_name, header.broker_address)
    return request.reply()


def broker_heartbeat(request: Request[BrokerHeartbeatHeader], state: State) -> Command:
    """Note that a broker is alive."""
    header = request.header
    now_s = state.clock.monotonic_s()
    state.routes.heartbeat(header.cluster, header.broker_name, header.broker_address, now_s)
    return request.reply()


def query_data_version(request: Request[BrokerHeader], state: State) -> Command:
    """Tell a broker whether its topics have changed since it registered them."""
    header = request.header
    who = (header.cluster, header.broker_name, header.broker_address)
    asked = decode(request.body, DataVersion)
    known = state.routes.data_version(*who)
    state.routes.heartbeat(*who, state.clock.monotonic_s())
    return request.reply(
        DataVersionReply(changed=known != asked),
        body=b"" if known is None else encode(known),
    )


def route_of_topic(request: Request[TopicHeader], state: State) -> Command:
    """Where the queues of a topic are."""
    topic = request.header.topic
    route = state.routes.route(topic)
    if route is None:
        raise RequestRejected(NO_ROUTE.format(topic), ResponseCode.TOPIC_NOT_EXIST)
    if state.config.order_topics:
        route = replace(route, order_config=state.key_values.get(ORDER_TOPICS, topic))
    return request.reply(body=_ascii(encode(route)))


def cluster_info(request: Request[None], state: State) -> Command:
    """Every broker and cluster."""
    return request.reply(body=_ascii(encode(state.routes.cluster_info())))


def member_group(request: Request[MemberGroupHeader], state: State) -> Command:
    """The addresses of one broker name."""
    header = request.header
    group = BrokerMemberGroup(
        cluster=header.cluster,
        broker_name=header.broker_name,
        addresses=state.routes.addresses(header.broker_name),
    )
    return request.reply(body=encode(BrokerMemberGroupBody(group=group)))


def all_topics(request: Request[None], state: State) -> Command:
    """Every topic that somebody serves, unless the operator keeps the list to himself."""
    if not state.config.topic_list_enabled:
        raise RequestRejected("disable: enableAllTopicList is false on this name server")
    return _topic_list(request, state.routes.topics())


def topics_of_cluster(request: Request[ClusterHeader], state: State) -> Command:
    """The topics of one cluster."""
    return _topic_list(request, state.routes.topics_of_cluster(request.header.cluster))


def system_topics(request: Request[None], state: State) -> Command:
    """Names of clusters and brokers, which are topics too."""
    return request.reply(body=encode(state.routes.system_topics()))


def unit_topics(request: Request[None], state: State) -> Command:
    """Topics bound to one data centre."""
    return _topic_list(request, state.routes.topics_with(has=TopicFlag.UNIT))


def unit_subscribed_topics(request: Request[None], state: State) -> Command:
    """Topics with a subscription bound to one data centre."""
    return _topic_list(request, state.routes.topics_with(has=TopicFlag.UNIT_SUBSCRIBED))


def unit_subscribed_other_topics(request: Request[None], state: State) -> Command:
    """Topics with such a subscription that are not bound themselves."""
    return _topic_list(
        request,
        state.routes.topics_with(has=TopicFlag.UNIT_SUBSCRIBED, lacks=TopicFlag.UNIT),
    )


def wipe_write_permission(request: Request[BrokerNameHeader], state: State) -> Command:
    """Keep producers away from a broker."""
    count = state.routes.wipe_write_permission(request.header.broker_name)
    LOGGER.info("write permission wiped broker=%s topics=%d", request.header.broker_name, count)
    return request.reply(WipeWriteReply(topic_count=count))


def add_write_permission(request: Request[BrokerNameHeader], state: State) -> Command:
    """Let producers come back to a broker."""
    count = state.routes.add_write_permission(request.header.broker_name)
    LOGGER.info("write permission added broker=%s topics=%d", request.header.broker_name, count)
    return request.reply(AddWriteReply(topic_count=count))


def delete_topic(request: Request[DeleteTopicHeader], state: State) -> Command:
    """Forget a topic, everywhere or in one cluster."""
    state.routes.delete_topic(request.header.topic, request.header.cluster or None)
    return request.reply()


def register_topic(request: Request[TopicHeader], state: State) -> Command:
    """Add one topic's queues between registrations."""
    route = decode(request.body, TopicRouteData)
    state.routes.register_topic(request.header.topic, route.queues)
    return request.reply()


def put_key_value(request: Request[PutSettingHeader], state: State) -> Command:
    """Set a value; it is on disk when the answer leaves."""
    header = request.header
    try:
        state.key_values.put(header.namespace, header.key, header.value)
    except OSError as error:
        raise RequestRejected(f"the value could not be kept: {error}") from error
    return request.reply()


def get_key_value(request: Request[SettingHeader], state: State) -> Command:
    """One value."""
    header = request.header
    value = state.key_values.get(header.namespace, header.key)
    if value is None:
        raise RequestRejected(
            f"No config item, Namespace: {header.namespace} Key: {header.key}",
            ResponseCode.QUERY_NOT_FOUND,
        )
    return request.reply(SettingReply(value=value))


def delete_key_value(request: Request[SettingHeader], state: State) -> Command:
    """Forget a value."""
    try:
        state.key_values.delete(request.header.namespace, request.header.key)
    except OSError as error:
        raise RequestRejected(f"the removal could not be kept: {error}") from error
    return request.reply()


def key_values_of_namespace(request: Request[NamespaceHeader], state: State) -> Command:
    """All values of a namespace."""
    table = state.key_values.namespace(request.header.namespace)
    if table is None:
        raise RequestRejected(
            f"No config item, Namespace: {request.header.namespace}", ResponseCode.QUERY_NOT_FOUND
        )
    return request.reply(body=encode(KeyValueTable(table=table)))


def get_config(request: Request[None], state: State) -> Command:
    """The settings as properties text."""
    lines = [f"{key}={value}\n" for key, value in shown(state.config).items()]
    return request.reply(body="".join(lines).encode())


def update_config(request: Request[None], state: State) -> Command:
    """Change settings that may be changed while running."""
    try:
        text = request.body.decode()
    except UnicodeDecodeError as error:
        raise RequestRejected(f"the settings are not UTF-8 text: {error}") from error
    state.config = updated(state.config, text)
    LOGGER.info("settings changed peer=%s:%d", *request.connection.peer)
    return request.reply()


def _topic_list(request: Request[Any], topics: list[str]) -> Command:
    return request.reply(body=encode(TopicList(topics=topics)))


def _registered_table(command: Command) -> TopicConfigTable:
    if not command.body:
        return TopicConfigTable()
    if command.version < BARE_TABLE_BEFORE:
        return decode(command.body, TopicConfigTable)
    return decode_register_body(command.body).table


def _ascii(text: bytes) -> bytes:
    """The same JSON with everything beyond ASCII escaped, as clients in C++ need it."""
    return text if text.isascii() else json.dumps(json.loads(text), separators=(",", ":")).encode()
