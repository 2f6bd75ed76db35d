"""Consumer groups: who is in them, how far behind they are, and moving them elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ariane.client.admin.asking import Asking, decoded
from ariane.client.pull_consumer import PullConsumer
from ariane.client.routes import Address
from ariane.client.starting import FIRST, TIMESTAMP, Start
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import InvalidArgument, RequestFailed, UnknownGroup
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    MessageQueue,
    OffsetProgress,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from ariane.protocol.bodies.statistics import TimeSpans
from ariane.protocol.command import request
from ariane.protocol.headers.groups import AllGroupsHeader, DeleteGroupHeader, GroupHeader
from ariane.protocol.headers.offsets import ResetOffsetHeader
from ariane.topics import dead_letter_topic_of, group_fault, is_system_group, retry_topic_of

END_MS: Final = -1  # as RocketMQ's tools ask for the end of a queue
TIME_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Member:
    """One client that consumes for a group now."""

    client_id: str
    address: str  # as its brokers see it
    language: str
    version: int  # RocketMQ's number of the version it says it is


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far behind a group is in one queue."""

    queue: MessageQueue
    consume_offset: int  # the first message that is not consumed
    end_offset: int  # the offset that the next message gets
    seconds: float  # how long the oldest message that is not consumed has waited

    @property
    def messages(self) -> int:
        """How many messages are not consumed."""
        return max(self.end_offset - self.consume_offset, 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far behind a group is, its messages that wait for another try among them."""

    group: str
    queues: tuple[QueueLag, ...]

    @property
    def messages(self) -> int:
        """How many messages are not consumed."""
        return sum(queue.messages for queue in self.queues)

    @property
    def seconds(self) -> float:
        """How long the oldest message that is not consumed has waited."""
        return max((queue.seconds for queue in self.queues), default=0.0)


@dataclass(frozen=True, slots=True)
class QueueMove:
    """Where a reset takes a group in one queue."""

    queue: MessageQueue
    before: int | None  # None: the group has not told yet how far it got
    after: int

    @property
    def messages(self) -> int:
        """How many messages will be consumed again; below zero, how many are passed over."""
        return 0 if self.before is None else self.before - self.after


class Groups(Asking):
    """The part of `Admin` that looks after consumer groups."""

    async def groups(self, *, cluster: str | None = None) -> list[str]:
        """The names of all groups but RocketMQ's own, sorted."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        masters = await self._masters(cluster)
        answers = await asyncio.gather(
            *(self._ask(address, code, AllGroupsHeader()) for address in masters.values())
        )
        tables = [decoded(answer, SubscriptionGroupTable) for answer in answers]
        names = {name for table in tables for name in table.groups}
        return sorted(name for name in names if not is_system_group(name))

    async def create_group(
        self,
        group: str,
        *,
        retries: int = 16,
        orderly: bool = False,
        enabled: bool = True,
        cluster: str | None = None,
    ) -> list[str]:
        """Create the group, or change it, on every broker; returns the brokers' names.

        `retries` holds for consumers that do not say how often they try; one that is not `enabled`
        gets no messages.
        """
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        if retries < 0:
            raise InvalidArgument(f"retries={retries}: 0 or more")
        config = SubscriptionGroupConfig(
            name=group,
            retry_times_max=retries,
            is_orderly=orderly,
            consume_enabled=enabled,
        )
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, fastjson.encode(config)
        masters = await self._masters(cluster)
        await self._on_all(list(masters.values()), lambda: request(code, body=body))
        return list(masters)

    async def delete_group(
        self, group: str, *, keep_dead_letters: bool = False, cluster: str | None = None
    ) -> list[str]:
        """Delete the group, its progress and what it has to try again; returns the brokers' names.

        A group that has members is made again by their next heartbeat, where brokers allow that.
        """
        masters = await self._masters(cluster)
        topics = [retry_topic_of(group)]
        if not keep_dead_letters:
            topics.append(dead_letter_topic_of(group))
        for topic in topics:  # first: pulls that are held there would make the group again
            await self._delete_topic(topic, list(masters.values()), cluster)
        header = DeleteGroupHeader(group=group, clean_offset=True)
        await self._on_all(
            list(masters.values()), lambda: request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        )
        return list(masters)

    async def members(self, group: str) -> list[Member]:
        """Who consumes for the group now, by client id; nobody when it is offline."""
        masters = await self._masters()
        answers = await asyncio.gather(
            *(self._members(address, group) for address in masters.values())
        )
        found = {
            member.client_id: Member(
                member.client_id, member.client_address, member.language, member.version
            )
            for answer in answers
            if answer is not None
            for member in answer.connections
        }
        return [found[client_id] for client_id in sorted(found)]

    async def lag(self, group: str, *, topic: str | None = None) -> GroupLag:
        """How far behind the group is, in messages and in seconds, in all it reads or one topic."""
        masters = await self._masters()
        found = await asyncio.gather(
            *(self._lag(address, group, topic) for address in masters.values())
        )
        queues = sorted((lag for part in found for lag in part), key=lambda lag: lag.queue)
        return GroupLag(group, tuple(queues))

    async def reset_offsets(
        self, group: str, topic: str, *, to: Start, preview: bool = False
    ) -> list[QueueMove]:
        """Have the group go on elsewhere in the topic; returns what that means for each queue.

        `to` is `Start.FIRST`, `Start.LAST` (the end, past all there is) or `Start.at(moment)`. With
        `preview` nothing is moved. Members that are online go on there within moments.
        """
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        reader = PullConsumer(self._session, group)
        moves = [
            QueueMove(queue, await reader.committed(queue), await _offset(reader, queue, to))
            for queue in await reader.queues(topic)
        ]
        if not preview:
            await self._reset(group, topic, to, reader, moves)
        return moves

    async def _reset(
        self, group: str, topic: str, to: Start, reader: PullConsumer, moves: list[QueueMove]
    ) -> None:
        first_ms = 0 if to.where == FIRST else END_MS
        header = ResetOffsetHeader(
            topic=topic,
            group=group,
            timestamp_ms=to.moment_ms if to.where == TIMESTAMP else first_ms,
            is_force=True,
        )
        route = await self._session.routes.for_reading(topic)
        for broker in sorted(route.addresses):
            try:
                await self._ask(
                    route.master(broker), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
                )
            except RequestFailed as error:
                # Brokers that have members move cannot do it for a group that has none.
                if isinstance(error, UnknownGroup) or await self.members(group):
                    raise
                for move in moves:
                    if move.queue.broker_name == broker:
                        await reader.commit(move.queue, move.after)

    async def _lag(self, address: Address, group: str, topic: str | None) -> list[QueueLag]:
        progress = (await self._progress(address, group, topic)).offsets
        topics = sorted({queue.topic for queue in progress})
        waited = await asyncio.gather(*(self._waited(address, group, name) for name in topics))
        seconds = {queue: ms / 1000 for part in waited for queue, ms in part.items()}
        return [_lag_of(queue, found, seconds.get(queue, 0.0)) for queue, found in progress.items()]

    async def _waited(self, address: Address, group: str, topic: str) -> dict[MessageQueue, int]:
        header = GroupHeader(group=group, topic=topic)
        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        answer = await self._ask(address, code, header, accept=TIME_ANSWERS)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        return {span.queue: span.delay_ms for span in decoded(answer, TimeSpans).spans}


def _lag_of(queue: MessageQueue, found: OffsetProgress, seconds: float) -> QueueLag:
    lag = QueueLag(queue, found.consume_offset, found.broker_offset, max(seconds, 0.0))
    return lag if lag.messages else QueueLag(queue, lag.consume_offset, lag.end_offset, 0.0)


async def _offset(reader: PullConsumer, queue: MessageQueue, to: Start) -> int:
    if to.where == FIRST:
        return await reader.min_offset(queue)
    if to.where == TIMESTAMP:
        return await reader.offset_at(queue, datetime.fromtimestamp(to.moment_ms / 1000, UTC))
    return await reader.max_offset(queue)
