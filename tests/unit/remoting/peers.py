"""A server and raw peers on loopback, with time that moves only when told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from ariane.clock import ManualClock, Timers
from ariane.protocol.command import Command, CommandDecoder, reply
from ariane.remoting.client import connect
from ariane.remoting.connection import Connection, ConnectionLimits, DecoderOf, Handler
from ariane.remoting.server import Server, serve

DEADLINE_S = 20.0
T = TypeVar("T")


def echo(connection: Connection, command: Command) -> Command | None:
    """Answers with what it was sent."""
    return reply(command, body=command.body)


async def soon(awaitable: Awaitable[T]) -> T:
    """What is awaited, within a deadline that no working machine misses."""
    return await asyncio.wait_for(awaitable, DEADLINE_S)


class RawPeer:
    """A plain socket that sends whatever bytes it is told to."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self._loop = asyncio.get_running_loop()
        self._decoder = CommandDecoder(header_bytes_max=1 << 20)
        self._commands: list[Command] = []

    async def send(self, data: bytes) -> None:
        await soon(self._loop.sock_sendall(self.socket, data))

    async def receive(self) -> Command | None:
        """The next command, or None when the other side has closed."""
        while not self._commands:
            try:
                data = await soon(self._loop.sock_recv(self.socket, 1 << 16))
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._commands = self._decoder.feed(data)
        return self._commands.pop(0)

    def close(self) -> None:
        self.socket.close()


@dataclass
class World:
    """One server, its clock, and the connections it has met."""

    clock: ManualClock
    timers: Timers
    server: Server
    accepted: asyncio.Queue[Connection]
    closed: asyncio.Queue[Connection]
    opened: list[Connection] = field(default_factory=list)
    raw: list[RawPeer] = field(default_factory=list)

    async def connect(self, handler: Handler | None = None) -> Connection:
        """A connection of our own kind to the server."""
        port = self.server.port
        connection = await connect("127.0.0.1", port, timers=self.timers, handler=handler)
        self.opened.append(connection)
        return connection

    async def connect_raw(
        self, *, receive_bytes: int | None = None, source: str = "127.0.0.1"
    ) -> RawPeer:
        """A peer of no kind at all."""
        peer = socket.socket()
        peer.bind((source, 0))
        if receive_bytes is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", self.server.port))
        self.raw.append(RawPeer(peer))
        return self.raw[-1]

    async def next_accepted(self) -> Connection:
        return await soon(self.accepted.get())

    async def next_closed(self) -> Connection:
        return await soon(self.closed.get())


@contextlib.asynccontextmanager
async def world(
    handler: Handler = echo,
    *,
    limits: ConnectionLimits | None = None,
    connections_max: int = 100,
    host_connections_max: int = 100,
    unfinished_bytes_max: int = 1 << 30,
    decoder_of: DecoderOf | None = None,
) -> AsyncIterator[World]:
    """A running server that is closed, with all its peers, at the end."""
    clock = ManualClock()
    timers = Timers(clock)
    clock.timers.append(timers)
    accepted: asyncio.Queue[Connection] = asyncio.Queue()
    closed: asyncio.Queue[Connection] = asyncio.Queue()
    server = await serve(
        "127.0.0.1",
        0,
        handler=handler,
        timers=timers,
        decoder_of=decoder_of,
        on_connect=accepted.put_nowait,
        on_close=closed.put_nowait,
        connections_max=connections_max,
        host_connections_max=host_connections_max,
        unfinished_bytes_max=unfinished_bytes_max,
        limits=limits,
    )
    around = World(clock, timers, server, accepted, closed)
    try:
        yield around
    finally:
        for connection in around.opened:
            connection.close("the test is over")
            await soon(connection.wait_lost())
        for peer in around.raw:
            peer.close()
        await soon(server.close())
