"""A cluster that says what it is told to: one name server, some brokers, real sockets.

Each server remembers every request and answers from a table of functions that tests may replace.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from typing import Self

from ariane.client import Client
from ariane.clock import ManualClock, SystemClock, Timers
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol import fastjson
from ariane.protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.pull import PullReply
from ariane.protocol.headers.send import SendHeaderV2, SendReply
from ariane.protocol.message import encode_properties
from ariane.remoting.connection import Connection
from ariane.remoting.server import Server, serve

Answer = Callable[[Command], Command | None]

PATIENCE_S = 10.0  # how long to wait for a request


class FakeServer:
    """One listening server."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.answers: dict[int, Answer] = {}
        self.connections: list[Connection] = []  # those that have asked, the last one last
        self._arrived = asyncio.Condition()
        self._timers = Timers(SystemClock())
        self._server: Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        self._server = await serve("127.0.0.1", 0, handler=self._handle, timers=self._timers)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close(grace_s=0.5)
            self._server = None

    def tell_all(self, command: Command) -> None:
        """Send a request to every client that is connected."""
        assert self._server is not None
        for connection in list(self._server.connections):
            connection.send(command)

    def drop_all(self) -> None:
        """Break every connection, answered or not."""
        assert self._server is not None
        for connection in list(self._server.connections):
            connection.drop("the test says so")

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.port}"

    def of(self, code: RequestCode) -> list[Command]:
        return [command for command in self.requests if command.code == code]

    async def received(self, code: RequestCode, count: int = 1) -> list[Command]:
        """Wait until so many requests with the code have arrived."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.of(code)) >= count)
        return self.of(code)

    def _handle(self, connection: Connection, command: Command) -> Command | None:
        self.requests.append(command)
        self.connections = [known for known in self.connections if known is not connection]
        self.connections.append(connection)
        task = asyncio.get_running_loop().create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answer = self.answers.get(command.code)
        return reply(command) if answer is None else answer(command)

    async def _tell(self) -> None:
        async with self._arrived:
            self._arrived.notify_all()


class FakeCluster:
    """A name server and the brokers it tells of."""

    def __init__(self, broker_names: Sequence[str]) -> None:
        self.name_server = FakeServer()
        self.brokers = {name: FakeServer() for name in broker_names}
        self.queue_counts: dict[str, int] = {}  # of the topics that exist

    async def start(self) -> None:
        self.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route
        self.name_server.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = self._info
        for server in (self.name_server, *self.brokers.values()):
            await server.start()
        for broker in self.brokers.values():
            broker.answers[RequestCode.SEND_MESSAGE_V2] = stored
            broker.answers[RequestCode.SEND_BATCH_MESSAGE] = stored
        self._datas = {
            name: BrokerData(broker_name=name, cluster="c", addresses={0: broker.address})
            for name, broker in self.brokers.items()
        }

    async def stop(self) -> None:
        for server in (self.name_server, *self.brokers.values()):
            await server.stop()

    def _route(self, command: Command) -> Command:
        count = self.queue_counts.get(command.ext["topic"])
        if count is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        route = TopicRouteData(
            brokers=list(self._datas.values()),
            queues=[
                QueueData(
                    broker_name=name, permission=6, read_queue_count=count, write_queue_count=count
                )
                for name in self._datas
            ],
        )
        return reply(command, body=fastjson.encode(route))

    def _info(self, command: Command) -> Command:
        info = ClusterInfo(brokers=self._datas, clusters={"c": list(self._datas)})
        return reply(command, body=fastjson.encode(info))


@contextlib.asynccontextmanager
async def running(*broker_names: str, **queue_counts: int) -> AsyncIterator[FakeCluster]:
    """A cluster with these brokers and these topics."""
    cluster = FakeCluster(broker_names or ("broker-a",))
    cluster.queue_counts |= queue_counts
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


@contextlib.asynccontextmanager
async def client_of(
    cluster: FakeCluster, clock: ManualClock | None = None
) -> AsyncIterator[Client]:
    """A client of the cluster, on a clock that may be told."""
    client = Client(cluster.name_server.address, clock=clock, random=Random(1))
    if clock is not None:
        clock.timers.append(client.session.timers)
    async with client:
        yield client


def stored(command: Command) -> Command:
    """The answer of a broker that keeps everything in the queue it was asked to."""
    header = decode_header(SendHeaderV2, command.ext)
    return reply(
        command, header=SendReply(message_id="AB" * 16, queue_id=header.queue_id, queue_offset=7)
    )


def refusing(code: ResponseCode) -> Answer:
    """A function that always says no."""
    return lambda command: reply(command, code, remark="not now")


def silent(command: Command) -> None:
    """Never answers."""


def pulled(
    code: ResponseCode, *, body: bytes = b"", next_offset: int = 0, max_offset: int = 10
) -> Answer:
    """A function that answers pulls."""
    header = PullReply(
        suggested_broker_id=0, next_offset=next_offset, min_offset=0, max_offset=max_offset
    )
    return lambda command: reply(command, code, header, body)


def record(
    body: bytes,
    *,
    queue_offset: int = 0,
    tags: str = "",
    flag: int = 0,
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """A stored message as a pull brings it."""
    topic = b"orders"
    named = {**({"TAGS": tags} if tags else {}), **(properties or {})}
    text = encode_properties(named).encode()
    tail = (
        struct.pack(">i", len(body))
        + body
        + struct.pack(">B", len(topic))
        + topic
        + struct.pack(">h", len(text))
        + text
    )
    host = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
    head = struct.pack(
        ">IiiiqqiQ", 0xDAA320A7, 0, 0, 0, queue_offset, 4096, flag, 1_700_000_000_000
    )
    middle = host + struct.pack(">q", 1_700_000_000_001) + host + struct.pack(">iq", 0, 0)
    return struct.pack(">i", 4 + len(head + middle + tail)) + head + middle + tail


async def settled(client: Client) -> None:
    """Let sends be answered and tasks go on until everything waits for the clock."""
    calm = 0
    while calm < 20:
        await asyncio.sleep(0)
        waiting = sum(lane.pending_count for lane in client.session.lanes.values())
        calm = 0 if waiting else calm + 1
