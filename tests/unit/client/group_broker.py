"""A broker with queues, members, offsets and locks, small enough to be obvious.

It holds pulls until something arrives, and tells members when the group changes. Everything it was
asked is remembered by the `FakeServer` it answers for.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from ariane.client import Client, MessageQueue
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerList, HeartbeatData, LockReply, LockRequest
from ariane.protocol.command import Command, reply, request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.groups import ConsumerGroupHeader
from ariane.protocol.headers.offsets import OffsetReply
from ariane.protocol.headers.pull import PullHeader, PullReply
from ariane.protocol.message import encode_properties
from ariane.remoting.connection import Connection
from tests.unit.client.fake import FakeCluster, FakeServer, client_of, running

TOPIC = "orders"
GROUP = "billing"


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Let everything run that can, until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0)


async def settle() -> None:
    """Let everything run that can, for long enough to see what does not happen."""
    for _ in range(60):
        await asyncio.sleep(0)


def queue(number: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="a", queue_id=number)


def stored_record(
    place: tuple[str, int], offset: int, body: bytes, tries: int, properties: dict[str, str]
) -> bytes:
    topic, number = place
    text = encode_properties({"UNIQ_KEY": f"{offset:032X}", **properties}).encode()
    host = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
    rest = b"".join(
        (
            struct.pack(">Iiiiqqi", 0xDAA320A7, 0, number, 0, offset, 1000 + offset, 0),
            struct.pack(">q", 1_700_000_000_000) + host,
            struct.pack(">q", 1_700_000_000_001) + host,
            struct.pack(">iq", tries, 0),
            struct.pack(">i", len(body)) + body,
            bytes([len(topic)]) + topic.encode(),
            struct.pack(">h", len(text)) + text,
        )
    )
    return struct.pack(">i", 4 + len(rest)) + rest


@dataclass
class Held:
    connection: Connection
    command: Command
    header: PullHeader


@dataclass
class GroupBroker:
    """Answers for one fake broker."""

    server: FakeServer
    records: defaultdict[tuple[str, int], list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    first: dict[tuple[str, int], int] = field(default_factory=dict)  # offset of the oldest record
    members: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # members that are not really there
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    commits: list[tuple[str, int, int]] = field(default_factory=list)
    locks: dict[tuple[str, int], str] = field(default_factory=dict)  # somebody else's
    locked: set[tuple[str, int]] = field(default_factory=set)  # ours
    held: list[Held] = field(default_factory=list)
    count_max: int = 32

    def __post_init__(self) -> None:
        self.server.answers |= {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_MAX_OFFSET: lambda c: self._number(c, self.end(*self._place(c))),
            RequestCode.GET_MIN_OFFSET: lambda c: self._number(
                c, self.first.get(self._place(c), 0)
            ),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def end(self, topic: str, number: int) -> int:
        return self.first.get((topic, number), 0) + len(self.records[topic, number])

    def store(
        self,
        body: bytes,
        number: int = 0,
        *,
        topic: str = TOPIC,
        tries: int = 0,
        **properties: str,
    ) -> None:
        """Put a message into a queue; a pull that waits for it is answered."""
        offset = self.end(topic, number)
        self.records[topic, number].append(
            stored_record((topic, number), offset, body, tries, properties)
        )
        held, self.held = self.held, []
        for waiting in held:
            answer = self._answer(waiting.command, waiting.header)
            if answer is None:
                self.held.append(waiting)
            else:
                waiting.connection.send(answer)

    def notify(self) -> None:
        """Tell everybody that the group has changed."""
        header = ConsumerGroupHeader(group=GROUP)
        for connection in self.server.connections:
            connection.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, one_way=True))

    async def ask(self, command: Command) -> Command:
        """Ask a client something; the last one that spoke."""
        return await self.server.connections[-1].request(command, 10)

    def pulls(self, number: int | None = None, topic: str = TOPIC) -> list[PullHeader]:
        headers = [
            decode_header(PullHeader, command.ext)
            for command in self.server.of(RequestCode.PULL_MESSAGE)
        ]
        return [
            header
            for header in headers
            if header.topic == topic and number in (None, header.queue_id)
        ]

    def _place(self, command: Command) -> tuple[str, int]:
        return command.ext["topic"], int(command.ext["queueId"])

    def _number(self, command: Command, number: int) -> Command:
        return reply(command, header=OffsetReply(offset=number))

    def _heartbeat(self, command: Command) -> Command:
        heartbeat = fastjson.decode(command.body, HeartbeatData)
        if heartbeat.consumers and heartbeat.client_id not in self.members:
            self.members.append(heartbeat.client_id)
        return reply(command)

    def _unregister(self, command: Command) -> Command:
        if "consumerGroup" in command.ext and command.ext["clientID"] in self.members:
            self.members.remove(command.ext["clientID"])
        return reply(command)

    def _list(self, command: Command) -> Command:
        body = ConsumerList(client_ids=[*self.members, *self.strangers])
        return reply(command, body=fastjson.encode(body))

    def _offset(self, command: Command) -> Command:
        place = self._place(command)
        if place not in self.offsets:
            return reply(command, ResponseCode.QUERY_NOT_FOUND)
        return self._number(command, self.offsets[place])

    def _commit(self, command: Command) -> Command:
        place, offset = self._place(command), int(command.ext["commitOffset"])
        self.offsets[place] = offset
        self.commits.append((*place, offset))
        return reply(command)

    def _pull(self, command: Command) -> Command | None:
        header = decode_header(PullHeader, command.ext)
        if header.system_flag & 1:
            self.offsets[header.topic, header.queue_id] = header.commit_offset
        answer = self._answer(command, header)
        if answer is None:
            self.held.append(Held(self.server.connections[-1], command, header))
        return answer

    def _answer(self, command: Command, header: PullHeader) -> Command | None:
        place = (header.topic, header.queue_id)
        first, end = self.first.get(place, 0), self.end(*place)
        code = ResponseCode.SUCCESS
        next_offset = min(header.queue_offset + self.count_max, end)
        if header.queue_offset == end:
            return None
        if not first <= header.queue_offset < end:
            code = ResponseCode.PULL_OFFSET_MOVED
            next_offset = first if header.queue_offset < first else end
        found = self.records[place][header.queue_offset - first : next_offset - first]
        outcome = PullReply(
            suggested_broker_id=0, next_offset=next_offset, min_offset=first, max_offset=end
        )
        body = b"".join(found) if code == ResponseCode.SUCCESS else b""
        return reply(command, code, outcome, body)

    def _lock(self, command: Command) -> Command:
        asked = fastjson.decode(command.body, LockRequest).queues
        granted = [mq for mq in asked if (mq.topic, mq.queue_id) not in self.locks]
        self.locked |= {(mq.topic, mq.queue_id) for mq in granted}
        return reply(command, body=fastjson.encode(LockReply(locked=granted)))

    def _unlock(self, command: Command) -> Command:
        for mq in fastjson.decode(command.body, LockRequest).queues:
            self.locked.discard((mq.topic, mq.queue_id))
        return reply(command)


@dataclass
class World:
    """A cluster of one such broker, a client of it, and the clock they live by."""

    cluster: FakeCluster
    broker: GroupBroker
    client: Client
    clock: ManualClock

    @property
    def server(self) -> FakeServer:
        return self.broker.server

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that it brings about."""
        await settle()
        self.clock.advance(seconds)
        await settle()


@contextlib.asynccontextmanager
async def world(queues: int = 1) -> AsyncIterator[World]:
    """One topic with so many queues, and the group's retry topic."""
    clock = ManualClock()
    async with running("a", **{TOPIC: queues, f"%RETRY%{GROUP}": 1}) as cluster:
        broker = GroupBroker(cluster.brokers["a"])
        async with client_of(cluster, clock) as client:
            try:
                yield World(cluster, broker, client, clock)
            finally:
                closing = asyncio.create_task(client.close())
                while not closing.done():  # handlers that a test left behind are not waited for
                    await settle()
                    clock.advance(10)
                await closing
