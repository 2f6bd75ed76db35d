"""A broker and two name servers on real sockets: registration, membership and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from ariane.broker.broker import Broker
from ariane.clock import SystemClock, Timers
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig, NameServerConfig
from ariane.disk import RealDisk
from ariane.nameserver.server import NameServer
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    TopicRouteData,
)
from ariane.protocol.command import Command
from ariane.remoting.client import connect
from ariane.remoting.connection import Connection
from ariane.remoting.loop_timers import drive
from tests.unit.broker.rig import SMALL_STORE

DEADLINE_S = 10.0


class World:
    """What runs, and ways to ask it."""

    def __init__(self, root: Path, timers: Timers) -> None:
        self.root = root
        self.timers = timers
        self.name_servers: list[NameServer] = []
        self.broker: Broker

    async def start_name_server(self, port: int = 0) -> NameServer:
        server = NameServer(
            NameServerConfig(port=port),
            disk=RealDisk(self.root / f"namesrv{port}"),
            clock=self.timers.clock,
            timers=self.timers,
        )
        await server.start()
        return server

    async def start_broker(self) -> None:
        addresses = ";".join(f"127.0.0.1:{server.port}" for server in self.name_servers)
        self.broker = Broker(
            BrokerConfig(port=0, name_servers=addresses),
            SMALL_STORE,
            clock=self.timers.clock,
            disk=RealDisk(self.root / "store"),
            random=Random(1),
            timers=self.timers,
        )
        await self.broker.start()

    async def stop_broker(self) -> None:
        await self.broker.stop()

    async def ask(self, port: int, code: int, body: bytes = b"", **ext: object) -> Command:
        """One request on a connection of its own."""
        connection = await connect("127.0.0.1", port, timers=self.timers)
        try:
            fields = {name: str(value) for name, value in ext.items()}
            return await connection.request(Command(code, ext=fields, body=body), DEADLINE_S)
        finally:
            connection.close("asked")

    async def route(self, server: NameServer, topic: str) -> TopicRouteData | None:
        answer = await self.ask(server.port, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return fastjson.decode(answer.body, TopicRouteData) if answer.code == 0 else None

    async def create(self, topic: str) -> Command:
        return await self.ask(
            self.broker.port, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic,
            defaultTopic="TBW102", readQueueNums=4, writeQueueNums=4, perm=6,
        )  # fmt: skip


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[World]:
    timers = Timers(SystemClock())
    driver = drive(timers, asyncio.get_running_loop())
    async with AsyncExitStack() as stack:
        stack.callback(driver.stop)
        world = World(root, timers)
        for _ in range(2):
            world.name_servers.append(await world.start_name_server())
        for server in world.name_servers:
            stack.push_async_callback(server.stop)
        await world.start_broker()
        stack.push_async_callback(world.stop_broker)
        yield world


async def test_a_topic_is_routed_by_every_name_server_once_its_making_is_answered(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        for number in range(20):
            topic = f"topic{number}"
            assert (await world.create(topic)).code == ResponseCode.SUCCESS
            for server in world.name_servers:
                route = await world.route(server, topic)
                assert route is not None
                assert [queue.write_queue_count for queue in route.queues] == [4]
                assert route.brokers[0].addresses == {0: f"127.0.0.1:{world.broker.port}"}


async def test_a_broker_finds_its_way_back_to_a_name_server_that_restarted(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.create("kept")
        first = world.name_servers[0]
        port = first.port
        await first.stop()
        answer = await world.create("meanwhile")  # the other one is there
        assert answer.code == ResponseCode.SUCCESS
        back = await world.start_name_server(port)
        async with asyncio.timeout(DEADLINE_S):
            while await world.route(back, "kept") is None:
                pass
        assert await world.route(back, "meanwhile") is not None
        await back.stop()


async def test_a_broker_that_stops_is_routed_no_more(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.create("gone")
        await world.broker.stop()
        for server in world.name_servers:
            assert await world.route(server, "gone") is None
        await world.start_broker()
        for server in world.name_servers:
            assert await world.route(server, "gone") is not None


class Member:
    """A consumer that notes what it is told."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.connection: Connection

    async def join(self, world: World, client_id: str) -> None:
        self.connection = await connect(
            "127.0.0.1", world.broker.port, timers=world.timers, handler=self._handle
        )
        consumer = ConsumerData(group="readers", subscriptions=[SubscriptionData(topic="T")])
        body = fastjson.encode(HeartbeatData(client_id=client_id, consumers=[consumer]))
        answer = await self.connection.request(Command(34, body=body), DEADLINE_S)
        assert answer.code == ResponseCode.SUCCESS

    def _handle(self, connection: Connection, command: Command) -> Command | None:
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        self.told.put_nowait(command.ext["consumerGroup"])
        return None

    async def hears(self) -> str:
        """The group it is told of next."""
        return await asyncio.wait_for(self.told.get(), DEADLINE_S)


async def test_members_hear_of_a_broken_connection_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        first, second = Member(), Member()
        await first.join(world, "c1")
        await second.join(world, "c2")
        for member in (first, first, second):  # of its own coming, and of the other's
            assert await member.hears() == "readers"
        second.connection.drop("pulled out")
        assert await first.hears() == "readers"
        group = world.broker.state.clients.consumer_group("readers")
        assert group is not None
        assert group.client_ids() == ["c1"]
        for server in world.name_servers:
            assert await world.route(server, "%RETRY%readers") is not None
        first.connection.close("done")


async def test_offsets_groups_and_settings_outlive_the_process(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.create("T")
        member = Member()
        await member.join(world, "c1")
        answer = await world.ask(
            world.broker.port, RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="readers", topic="T", queueId=2, commitOffset=7,
        )  # fmt: skip
        assert answer.code == ResponseCode.SUCCESS
        answer = await world.ask(
            world.broker.port, RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=false\n"
        )
        assert answer.code == ResponseCode.SUCCESS
        await world.broker.stop()
        await world.start_broker()
        state = world.broker.state
        assert state.offsets.get("T", "readers", 2) == 7
        assert "readers" in state.groups
        assert state.topics.get("%RETRY%readers") is not None
        assert not state.config.auto_create_topics
        assert state.topics.get("TBW102") is None
