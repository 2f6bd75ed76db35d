"""A server: its cap, its budget, its stopping."""

from __future__ import annotations

import asyncio
import importlib
import logging
import select
import socket
import struct
from pathlib import Path

import pytest

from ariane.clock import ManualClock, Timers
from ariane.protocol.command import Command, CommandDecoder, FrameReader, reply, request
from ariane.remoting import poller
from ariane.remoting.connection import Connection
from ariane.remoting.server import serve
from tests.unit.remoting.peers import echo, soon, world

CALLERS_MAX = int(Path("/proc/sys/net/core/somaxconn").read_text())


async def test_connections_over_the_cap_are_closed_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(echo, connections_max=3) as around:
        inside = [await around.connect() for _ in range(3)]
        for client in inside:
            assert (await soon(client.request(request(1), 1.0))).code == 0
        with caplog.at_level(logging.WARNING, "ariane.remoting"):
            for _ in range(5):
                outside = await around.connect_raw()
                assert await outside.receive() is None
        assert around.server.refused_count == 5
        assert len(caplog.records) == 1
        inside[0].close("making room")
        await around.next_closed()
        again = await around.connect()
        assert (await soon(again.request(request(1), 1.0))).code == 0
        assert (await soon(inside[1].request(request(1), 1.0))).code == 0


async def test_as_many_may_call_at_once_as_the_system_allows() -> None:
    """While the loop is busy nobody is taken in; who finds no room then waits for a second."""
    async with world(echo, connections_max=1000, host_connections_max=1000) as around:
        callers = [
            socket.create_connection(("127.0.0.1", around.server.port), timeout=30)
            for _ in range(min(CALLERS_MAX, 400))
        ]
        for caller in callers:
            caller.close()


async def test_one_address_cannot_take_every_connection() -> None:
    async with world(echo, connections_max=8, host_connections_max=6) as around:
        inside = [await around.connect_raw() for _ in range(6)]
        outside = await around.connect_raw()
        assert await outside.receive() is None
        assert around.server.refused_count == 1
        other = await around.connect_raw(source="127.0.0.2")
        await other.send(request(1).encode())
        assert await other.receive() is not None
        inside[0].close()
        await around.next_closed()
        again = await around.connect_raw()
        await again.send(request(1).encode())
        assert await again.receive() is not None


async def test_unfinished_frames_of_many_peers_share_a_budget() -> None:
    async with world(echo, unfinished_bytes_max=1 << 20) as around:
        good = await around.connect()
        half = request(1, body=bytes(200_000)).encode()[:100_000]
        for _ in range(40):
            peer = await around.connect_raw()
            await peer.send(half)
            assert (await soon(good.request(request(1), 1.0))).code == 0
        # Each of the forty holds a tenth of the budget or has been closed.
        assert len(around.server.connections) <= 12
        assert good in around.opened
        assert not good.is_closed


async def test_idle_connections_hold_no_buffer() -> None:
    async with world(echo) as around:
        clients = [await around.connect() for _ in range(20)]
        for client in clients:
            await soon(client.request(request(1, body=bytes(1000)), 1.0))
        buffers = {id(end.reader.get_buffer(-1).obj) for end in around.server.connections}
        assert len(buffers) == 1
        assert all(end.reader.partial_bytes == 0 for end in around.server.connections)


async def test_a_decoder_of_ones_own() -> None:
    made: list[Connection] = []

    def decoder_of(connection: Connection) -> FrameReader:
        made.append(connection)
        return CommandDecoder(frame_bytes_max=1000, scratch=connection.scratch)

    async with world(echo, decoder_of=decoder_of) as around:
        client = await around.connect()
        server = await around.next_accepted()
        assert made == [server]
        assert (await soon(client.request(request(1, body=bytes(500)), 1.0))).code == 0
        client.send(request(1, body=bytes(1000)))
        await soon(client.wait_lost())


async def test_closing_delivers_what_was_answered() -> None:
    held: list[tuple[Connection, Command]] = []
    arrived = asyncio.Event()

    def hold(connection: Connection, command: Command) -> Command | None:
        held.append((connection, command))
        arrived.set()
        return None

    async with world(hold) as around:
        client = await around.connect()
        call = client.start_request(request(1), 60.0)
        await soon(arrived.wait())
        held[0][0].send(reply(held[0][1], body=b"last words"))
        await soon(around.server.close())
        assert (await soon(call)).body == b"last words"
        await soon(client.wait_lost())
        assert around.server.connections == set()


async def test_closing_does_not_wait_for_a_peer_that_does_not_read() -> None:
    async with world(echo) as around:
        await around.connect_raw(receive_bytes=4096)
        server = await around.next_accepted()
        for _ in range(40):
            server.send(request(40, one_way=True, body=bytes(1 << 20)))
        await soon(around.server.close(grace_s=0.01))
        assert (await around.next_closed()) is server


async def test_a_closing_connection_that_cannot_finish_is_dropped() -> None:
    async with world(echo) as around:
        await around.connect_raw(receive_bytes=4096)
        server = await around.next_accepted()
        for _ in range(40):
            server.send(request(40, one_way=True, body=bytes(1 << 20)))
        server.close("go away")
        around.clock.advance(10.0)
        assert (await around.next_closed()) is server
        assert server.close_reason == "go away"


async def test_a_port_in_use_is_an_error_that_leaves_nothing_running() -> None:
    async with world(echo) as around:
        clock = ManualClock()
        timers = Timers(clock)
        with pytest.raises(OSError, match="in use"):
            await serve("127.0.0.1", around.server.port, handler=echo, timers=timers)
        assert timers.next_due_s() is None


async def test_a_thousand_connections_come_and_go() -> None:
    async with world(echo, connections_max=2000, host_connections_max=2000) as around:
        for _ in range(10):
            clients = await asyncio.gather(*(around.connect() for _ in range(100)))
            await soon(asyncio.gather(*(client.request(request(1), 9.0) for client in clients)))
            for client in clients:
                client.close("done")
            for _ in clients:
                await around.next_closed()
        assert around.server.connections == set()


async def test_where_there_is_no_epoll_the_loop_watches_the_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        for name in ("epoll", "EPOLLIN", "EPOLLOUT"):
            elsewhere.delattr(select, name)
        importlib.reload(poller)
    monkeypatch.delattr(select, "epoll")
    async with world(echo) as around:
        client = await around.connect()
        answer = await soon(client.request(request(1, body=bytes(1 << 20)), 1.0))
        assert len(answer.body) == 1 << 20


async def test_a_peer_that_is_gone_before_it_was_accepted_leaves_nothing_behind() -> None:
    taken: list[Connection] = []

    def decoder_of(connection: Connection) -> FrameReader:
        taken.append(connection)
        assert connection.peer[0], "a connection without a peer"
        return CommandDecoder()

    async with world(echo, decoder_of=decoder_of) as around:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", around.server.port)) as hasty:
                hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client = await around.connect()
        assert (await soon(client.request(request(1), 1.0))).code == 0
        *gone, stayed = taken
        for connection in gone:
            await soon(connection.wait_lost())
        assert around.server.connections == {stayed}
