"""A name server on a real socket with a clock that moves when told, and a peer to talk to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from ariane.clock import ManualClock, Timers
from ariane.codes import RequestCode, ResponseCode
from ariane.config import NameServerConfig
from ariane.disk import SimulatedDisk
from ariane.nameserver.server import NameServer
from ariane.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicRouteData,
)
from ariane.protocol.command import Command, request
from ariane.protocol.fastjson import decode, encode
from ariane.protocol.headers.nameserver import RegisterBrokerHeader
from ariane.protocol.headers.topics import TopicHeader
from ariane.remoting.client import connect
from ariane.remoting.connection import Connection

DEADLINE_S = 10.0


@dataclass
class World:
    """One name server and everybody who talks to it."""

    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    clock: ManualClock = field(default_factory=ManualClock)
    config: NameServerConfig = field(default_factory=lambda: NameServerConfig(port=0))
    peers: list[Peer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timers = Timers(self.clock)
        self.clock.timers.append(self.timers)
        self.server = self.new_server()

    def new_server(self) -> NameServer:
        return NameServer(self.config, disk=self.disk, clock=self.clock, timers=self.timers)

    async def restart(self) -> None:
        await self.server.stop()
        self.server = self.new_server()
        await self.server.start()

    async def peer(self) -> Peer:
        connection = await connect("127.0.0.1", self.server.port, timers=self.timers)
        self.peers.append(Peer(connection))
        return self.peers[-1]

    async def close(self) -> None:
        for peer in self.peers:
            await peer.leave()
        await self.server.stop()


@dataclass
class Peer:
    """One connection to the name server, as a broker, a client or a tool."""

    connection: Connection

    async def ask(self, command: Command) -> Command:
        async with asyncio.timeout(DEADLINE_S):
            return await self.connection.request(command, DEADLINE_S)

    async def leave(self) -> None:
        self.connection.close("the test is done with it")
        await self.connection.wait_lost()

    async def register(
        self,
        name: str,
        address: str,
        *topics: str,
        broker_id: int = 0,
        cluster: str = "DefaultCluster",
        counter: int = 1,
    ) -> Command:
        return await self.ask(
            registration(
                name, address, *topics, broker_id=broker_id, cluster=cluster, counter=counter
            )
        )

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.ask(
            request(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=topic))
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        assert answer.code == ResponseCode.SUCCESS, answer
        return decode(answer.body, TopicRouteData)

    async def route_is_gone(self, topic: str) -> None:
        """Return once nobody serves the topic; fail at the deadline."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.route(topic) is not None:
                pass


def topic_table(*topics: str, counter: int = 1) -> TopicConfigTable:
    return TopicConfigTable(
        data_version=DataVersion(counter=counter, timestamp=7),
        topics={
            name: TopicConfig(name=name, read_queue_count=4, write_queue_count=4) for name in topics
        },
    )


def registration(
    name: str,
    address: str,
    *topics: str,
    broker_id: int = 0,
    cluster: str = "DefaultCluster",
    counter: int = 1,
    **fields: object,
) -> Command:
    header = RegisterBrokerHeader(
        broker_name=name,
        broker_address=address,
        cluster=cluster,
        ha_address=address + "+ha",
        broker_id=broker_id,
    )
    return request(
        RequestCode.REGISTER_BROKER,
        msgspec.structs.replace(header, **fields),
        encode(RegisterBrokerBody(table=topic_table(*topics, counter=counter))),
    )
