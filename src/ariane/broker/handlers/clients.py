"""Heartbeats, goodbyes and leases of clients; lists of them; and calls relayed to one of them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ariane.broker.clients import Client
from ariane.broker.filters import TAG_TYPES
from ariane.broker.handlers.pull import check_supported
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.broker.tables import TableFull
from ariane.codes import ResponseCode
from ariane.errors import (
    ClientError,
    GroupNotFound,
    InvalidParameter,
    ProtocolError,
    RequestRejected,
    RequestTimeout,
)
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    CheckClientRequest,
    ConnectionInfo,
    ConsumerConnections,
    ConsumerData,
    HeartbeatData,
    LockReply,
    LockRequest,
    ProducerConnections,
)
from ariane.protocol.bodies.clients import AllProducers, GroupSubscription, ProducerInfo
from ariane.protocol.command import Command, reply
from ariane.protocol.headers.clients import (
    ConsumeDirectlyHeader,
    HeartbeatReply,
    RunningInfoHeader,
    UnregisterHeader,
)
from ariane.protocol.headers.groups import ConsumerGroupHeader, GroupHeader, ProducerGroupHeader
from ariane.protocol.identifiers import decode_offset_id

RELAY_TIMEOUT_S: Final = 10.0
RELAY_VERSION_MIN: Final = 62  # 3.1.8: older clients do not answer relayed calls


def heartbeat(request: Request[None], state: BrokerState) -> Reply:
    """Enter or refresh a client in the groups it belongs to."""
    data = fastjson.decode(request.body, HeartbeatData)
    client = Client(
        request.connection,
        client_id=data.client_id,
        language=request.command.language,
        version=request.command.version,
        fingerprint=data.fingerprint,
    )
    must_send_all = not data.fingerprint  # a client that never leaves subscriptions out
    for consumer in data.consumers:
        if not prepare_group(consumer, state):
            continue
        if data.fingerprint and data.without_subscriptions:
            must_send_all |= not state.clients.refresh(client, consumer)
        else:
            state.clients.join(client, consumer)
    for producer in data.producers:
        state.clients.produce(client, producer.group)
    return Reply.of(HeartbeatReply(supports_v2=True, subscription_changed=must_send_all))


def prepare_group(consumer: ConsumerData, state: BrokerState) -> bool:
    """Make the group and its retry topic if need be; False for a group that may not be."""
    try:
        state.topics.ensure_retry(state.groups.for_consumer(consumer.group))
    except (GroupNotFound, TableFull):
        return False  # its pulls will be told; the client's other groups are served
    return True


def unregister(request: Request[UnregisterHeader], state: BrokerState) -> Reply:
    """Take a client that is about to leave out of its groups."""
    header = request.header
    state.clients.leave(
        request.connection,
        consumer_group=header.consumer_group,
        producer_group=header.producer_group,
    )
    return Reply.of()


def consumer_list(request: Request[ConsumerGroupHeader], state: BrokerState) -> Reply:
    """The client ids of a group, for its members to share the queues out among them."""
    group = state.clients.consumer_group(request.header.group)
    if group is None:
        raise RequestRejected(f"no consumer for this group, {request.header.group}")
    return Reply.of(body=group.id_list())


def check_client(request: Request[None], state: BrokerState) -> Reply:
    """Whether the broker can filter as a client wants it to, and understands the expression."""
    data = fastjson.decode(request.body, CheckClientRequest).subscription
    if data.expression_type not in TAG_TYPES:
        check_supported(data.expression_type, state)
        state.filters.of_request(data.expression, data.expression_type)
    return Reply.of()


def lock_queues(request: Request[None], state: BrokerState) -> Reply:
    """Lease queues to an orderly consumer; the answer names those it holds."""
    asked = fastjson.decode(request.body, LockRequest)
    locked = state.locks.lock(asked.group, asked.client_id, asked.queues)
    return Reply.of(body=fastjson.encode(LockReply(locked=locked)))


def unlock_queues(request: Request[None], state: BrokerState) -> Reply:
    """Give up leases."""
    asked = fastjson.decode(request.body, LockRequest)
    state.locks.unlock(asked.group, asked.client_id, asked.queues)
    return Reply.of()


def consumers(request: Request[ConsumerGroupHeader], state: BrokerState) -> Reply:
    """Who consumes for a group, and what."""
    group = state.clients.consumer_group(request.header.group)
    if group is None:
        raise RequestRejected(
            f"the consumer group[{request.header.group}] not online",
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
    body = ConsumerConnections(
        connections=[info_of(member) for member in group.members.values()],
        consume_from_where=group.consume_from_where,
        consume_type=group.consume_type,
        message_model=group.message_model,
        subscriptions={topic: found.data for topic, found in group.subscriptions.items()},
    )
    return Reply.of(body=fastjson.encode(body))


def producers(request: Request[ProducerGroupHeader], state: BrokerState) -> Reply:
    """Who produces for a group."""
    members = state.clients.producers.get(request.header.group)
    if not members:
        raise RequestRejected(f"the producer group[{request.header.group}] not exist")
    body = ProducerConnections(connections=[info_of(member) for member in members.values()])
    return Reply.of(body=fastjson.encode(body))


def info_of(client: Client) -> ConnectionInfo:
    """A client as connection lists show it."""
    return ConnectionInfo(
        client_address=client.address,
        client_id=client.client_id,
        language=client.language,
        version=client.version,
    )


def all_producers(request: Request[None], state: BrokerState) -> Reply:
    """Who produces, by group."""
    groups = {
        group: [
            ProducerInfo(
                client_id=member.client_id,
                language=member.language,
                last_update_ms=member.seen_ms,
                client_address=member.address,
                version=member.version,
            )
            for member in members.values()
        ]
        for group, members in state.clients.producers.items()
    }
    return Reply.of(body=fastjson.encode(AllProducers(groups=groups)))


def subscription(request: Request[GroupHeader], state: BrokerState) -> Reply:
    """What a group subscribes to on a topic."""
    header = request.header
    found = state.clients.subscription(header.group, header.topic or "")
    data = found and found.data
    body = GroupSubscription(group=header.group, subscription=data, topic=header.topic)
    return Reply.of(body=fastjson.encode(body))


def running_info(request: Request[RunningInfoHeader], state: BrokerState) -> None:
    """Ask a consumer what it is doing, and hand its answer on."""
    relay(request, request.command.body, request.header.group, request.header.client_id, state)


def consume_directly(request: Request[ConsumeDirectlyHeader], state: BrokerState) -> None:
    """Have a consumer consume one stored message now, and hand its answer on."""
    header = request.header
    try:
        _, log_offset = decode_offset_id(header.message_id or "")
    except ProtocolError as error:
        raise InvalidParameter(f"msgId {header.message_id!r}: {error}") from error
    record = state.store.record_at(log_offset)
    if record is None:
        raise RequestRejected(f"there is no message with id {header.message_id}")
    ext = request.command.ext
    ext["brokerName"] = state.config.name
    if (topic := state.topics.get(header.topic or "")) is not None:
        ext["topicSysFlag"] = str(topic.system_flag)
    if (group := state.groups.get(header.group)) is not None:
        ext["groupSysFlag"] = str(group.system_flag)
    relay(request, record, header.group, header.client_id or "", state)


def relay(
    request: Request[Any], body: bytes, group: str, client_id: str, state: BrokerState
) -> None:
    """Pass a request on to a consumer under an opaque of our own; its answer goes back."""
    member = state.clients.member(group, client_id)
    if member is None:
        raise RequestRejected(f"The Consumer <{group}> <{client_id}> not online")
    if member.version < RELAY_VERSION_MIN:
        raise RequestRejected(
            f"The Consumer <{client_id}> Version <{member.version}> too low to finish"
        )
    passed_on = Command(request.command.code, ext=dict(request.command.ext), body=body)
    answer = member.connection.start_request(passed_on, RELAY_TIMEOUT_S)
    answer.add_done_callback(lambda future: hand_back(request, future, group, client_id))


def hand_back(
    request: Request[Any], future: asyncio.Future[Command], group: str, client_id: str
) -> None:
    """Give the consumer's answer, or why there is none, to whoever asked."""
    if future.cancelled():
        return
    try:
        answer = future.result()
    except RequestTimeout as error:
        request.answer(
            Reply.refusal(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> {error}"
            )
        )
    except ClientError as error:
        request.answer(
            Reply.refusal(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}>: {error}"
            )
        )
    else:
        back = reply(request.command, answer.code, body=answer.body, remark=answer.remark)
        back.ext = answer.ext
        request.connection.send(back)
