"""Moving groups from outside, and asking their members where they stand.

A move is made in one of two ways (`useServerSideResetOffset`). On the server's side, which is
RocketMQ's newer way, the group's offsets are set and each queue's next pull is sent to the new
place. Or by the clients: every member is told to drop what it holds and to go on from there, which
only works for groups that are online.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ariane.broker.clients import Client, ConsumerGroup
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    GroupNotFound,
    InvalidParameter,
    ProtocolError,
    RequestRejected,
)
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue, ResetOffsets, TopicConfig
from ariane.protocol.bodies.statistics import ConsumerStatus, QueueOffset, ResetOffsetsForC
from ariane.protocol.command import Command
from ariane.protocol.command import request as request_of
from ariane.protocol.headers.offsets import ConsumerStatusHeader, ResetOffsetHeader

STATUS_TIMEOUT_S: Final = 5.0
CALL_VERSION_MIN: Final = 28  # 3.0.7: older clients know neither call

QueueOffsets = dict[MessageQueue, int]


def reset_offset(request: Request[ResetOffsetHeader], state: BrokerState) -> Reply:
    """Move a group to a moment, to the end of its queues, or to an offset of one queue."""
    header = request.header
    topic = state.topics.existing(header.topic)
    if not state.config.resets_here:
        return reset_by_clients(request, topic, state)
    if header.group not in state.groups:
        raise GroupNotFound(header.group)
    queue_count = max(topic.read_queue_count, topic.write_queue_count)
    if header.queue_id >= queue_count:
        raise InvalidParameter(f"queueId={header.queue_id} is no queue of {topic.name}")
    if header.queue_id >= 0:
        offsets = {header.queue_id: target_offset(header, header.queue_id, state)}
    else:
        queue_ids = range(topic.read_queue_count)
        offsets = {queue_id: offset_by_time(header, queue_id, state) for queue_id in queue_ids}
    if not offsets:
        raise RequestRejected("No queues to reset.")
    state.offsets.reset(header.topic, header.group, offsets)
    return Reply.of(body=fastjson.encode(ResetOffsets(offsets=by_queue(topic, offsets, state))))


def reset_by_clients(
    request: Request[ResetOffsetHeader], topic: TopicConfig, state: BrokerState
) -> Reply:
    """Tell every member of a group to go on from another place."""
    header = request.header
    offsets: dict[int, int] = {}
    for queue_id in range(topic.write_queue_count):
        stored = state.offsets.get(topic.name, header.group, queue_id)
        if stored is None or stored < 0:
            raise RequestRejected(f"THe consumer group <{header.group}> not exist")
        by_time = offset_by_time(header, queue_id, state)
        offsets[queue_id] = by_time if header.is_force or by_time < stored else stored
    group = state.clients.consumer_group(header.group)
    if group is None:
        raise RequestRejected(
            f"Consumer not online, so can not reset offset, Group: {header.group} "
            f"Topic: {header.topic} Timestamp: {header.timestamp_ms}",
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
    check_versions(group)
    moved = by_queue(topic, offsets, state)
    told = ResetOffsetHeader(
        topic=topic.name, group=header.group, timestamp_ms=header.timestamp_ms, is_force=False
    )
    body = fastjson.encode(
        for_c(moved) if request.command.language == "CPP" else ResetOffsets(offsets=moved)
    )
    for connection in list(group.members):
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        connection.send(request_of(code, told, body, one_way=True))
    return Reply.of(body=fastjson.encode(ResetOffsets(offsets=moved)))


def target_offset(header: ResetOffsetHeader, queue_id: int, state: BrokerState) -> int:
    """The offset named for one queue, checked against what the queue holds."""
    asked = header.consume_offset
    if asked is None or asked == -1:
        return offset_by_time(header, queue_id, state)
    first = state.store.min_offset(header.topic, queue_id)
    end = state.store.max_offset(header.topic, queue_id)
    if not first <= asked <= end:
        raise RequestRejected(f"Target offset {asked} not in consume queue range [{first}-{end}]")
    return asked


def offset_by_time(header: ResetOffsetHeader, queue_id: int, state: BrokerState) -> int:
    """The first offset at or after the moment asked for; the end of the queue for -1."""
    if header.timestamp_ms < 0:
        return state.store.max_offset(header.topic, queue_id)
    return state.store.offset_at(header.topic, queue_id, header.timestamp_ms)


def by_queue(topic: TopicConfig, offsets: dict[int, int], state: BrokerState) -> QueueOffsets:
    """Offsets under the queues' full names."""
    return {
        MessageQueue(broker_name=state.config.name, queue_id=queue_id, topic=topic.name): offset
        for queue_id, offset in offsets.items()
    }


def for_c(moved: QueueOffsets) -> ResetOffsetsForC:
    """The same as a list, for clients whose JSON knows no objects as keys."""
    return ResetOffsetsForC(
        offsets=[
            QueueOffset(
                broker_name=queue.broker_name,
                offset=offset,
                queue_id=queue.queue_id,
                topic=queue.topic,
            )
            for queue, offset in moved.items()
        ]
    )


def check_versions(group: ConsumerGroup) -> None:
    """Raise RequestRejected when a member is too old to be asked or told anything."""
    for member in group.members.values():
        if member.version < CALL_VERSION_MIN:
            raise RequestRejected(
                f"the client does not support this feature. version={member.version}; "
                f"it needs at least {CALL_VERSION_MIN}"
            )


def consumer_status(request: Request[ConsumerStatusHeader], state: BrokerState) -> None:
    """Ask the members of a group, or one of them, where they stand in each queue they read."""
    header = request.header
    group = state.clients.consumer_group(header.group)
    if group is None:
        raise RequestRejected(f"No Any Consumer online in the consumer group: [{header.group}]")
    check_versions(group)
    asked = [
        member
        for member in group.members.values()
        if not (header.client_id or "").strip() or member.client_id == header.client_id
    ]
    question = ConsumerStatusHeader(topic=header.topic, group=header.group)
    futures = {
        member.connection.start_request(
            request_of(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question), STATUS_TIMEOUT_S
        ): member
        for member in asked
    }
    gathered = asyncio.gather(*futures, return_exceptions=True)
    gathered.add_done_callback(lambda _: answer_status(request, futures))


def answer_status(
    request: Request[ConsumerStatusHeader], futures: dict[asyncio.Future[Command], Client]
) -> None:
    """Tell whoever asked what the members said; who did not answer well is left out."""
    found = {}
    for future, member in futures.items():
        if future.cancelled() or future.exception() is not None:
            continue
        answer = future.result()
        if answer.code == ResponseCode.SUCCESS and answer.body:
            try:
                found[member.client_id] = fastjson.decode(answer.body, ConsumerStatus).queues
            except ProtocolError:
                continue
    request.answer(Reply.of(body=fastjson.encode(ConsumerStatus(clients=found))))
