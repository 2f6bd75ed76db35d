"""The pool: one connection an address, made on demand, made again when lost."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ariane.errors import ConnectionLost, RequestTimeout
from ariane.protocol.command import Command, reply, request
from ariane.remoting.client import ConnectionPool, connect, split_address
from ariane.remoting.connection import Connection
from tests.unit.remoting.peers import World, echo, soon, world


def address_of(around: World) -> str:
    return f"127.0.0.1:{around.server.port}"


async def test_all_who_ask_share_one_connection() -> None:
    async with world(echo) as around:
        pool = ConnectionPool(around.timers)
        address = address_of(around)
        assert pool.existing(address) is None
        answers = await soon(
            asyncio.gather(
                *(pool.request(address, request(1, body=b"%d" % n), 3.0) for n in range(20))
            )
        )
        assert [answer.body for answer in answers] == [b"%d" % n for n in range(20)]
        assert len(around.server.connections) == 1
        assert pool.existing(address) is await pool.get(address)
        await pool.close()


async def test_a_lost_connection_is_made_again() -> None:
    async with world(echo) as around:
        pool = ConnectionPool(around.timers)
        address = address_of(around)
        first = await pool.get(address)
        (await around.next_accepted()).close("restart")
        await soon(first.wait_lost())
        assert pool.existing(address) is None
        second = await pool.get(address)
        assert second is not first
        assert (await soon(pool.request(address, request(1), 3.0))).code == 0
        await pool.close()


async def test_one_way() -> None:
    seen: asyncio.Queue[Command] = asyncio.Queue()

    def handler(connection: Connection, command: Command) -> Command | None:
        seen.put_nowait(command)
        return None

    async with world(handler) as around:
        pool = ConnectionPool(around.timers)
        await pool.send_one_way(address_of(around), request(15, one_way=True))
        assert (await soon(seen.get())).is_one_way
        await pool.close()


async def test_requests_of_the_server_reach_the_handler() -> None:
    def handler(connection: Connection, command: Command) -> Command | None:
        return reply(command, body=b"here")

    async with world(echo) as around:
        pool = ConnectionPool(around.timers, handler=handler)
        await pool.get(address_of(around))
        server = await around.next_accepted()
        assert (await soon(server.request(request(307), 3.0))).body == b"here"
        await pool.close()


async def test_a_client_that_serves_nothing_says_so() -> None:
    async with world(echo) as around:
        await around.connect()
        server = await around.next_accepted()
        answer = await soon(server.request(request(307), 3.0))
        assert (answer.code, answer.remark) == (3, "request code 307 is not served here")


async def test_nobody_listening() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with world(echo) as around:
            pool = ConnectionPool(around.timers)
            address = f"127.0.0.1:{bound.getsockname()[1]}"
            for _ in range(2):
                with pytest.raises(ConnectionLost, match="cannot connect"):
                    await pool.request(address, request(1), 1.0)
            await pool.close()


async def test_a_connection_that_takes_too_long() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # more than the backlog takes: the next must wait
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        async with world(echo) as around:
            with pytest.raises(ConnectionLost, match="within"):
                await connect("127.0.0.1", port, timers=around.timers, timeout_s=0.05)
        for filler in fillers:
            filler.close()


async def test_a_request_that_is_not_answered() -> None:
    async with world(lambda connection, command: None) as around:
        pool = ConnectionPool(around.timers)
        await pool.get(address_of(around))
        call = asyncio.ensure_future(pool.request(address_of(around), request(1), 3.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        around.clock.advance(3.0)
        with pytest.raises(RequestTimeout):
            await soon(call)
        await pool.close()


async def test_a_closed_pool_connects_no_more() -> None:
    async with world(echo) as around:
        pool = ConnectionPool(around.timers)
        connection = await pool.get(address_of(around))
        await pool.close()
        assert connection.is_closed
        with pytest.raises(ConnectionLost):
            await pool.get(address_of(around))


async def test_idle_connections_of_a_pool_are_closed() -> None:
    async with world(echo) as around:
        pool = ConnectionPool(around.timers)
        connection = await pool.get(address_of(around))
        around.clock.advance(130.0)
        await soon(connection.wait_lost())
        assert pool.existing(address_of(around)) is None
        assert (await soon(pool.request(address_of(around), request(1), 3.0))).code == 0
        await pool.close()


ADDRESSES = {
    "10.0.0.1:10911": ("10.0.0.1", 10911),
    "broker.example:1": ("broker.example", 1),
    "[::1]:9876": ("::1", 9876),
}


@pytest.mark.parametrize(("address", "parts"), ADDRESSES.items())
def test_address(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536"])
def test_bad_address(address: str) -> None:
    with pytest.raises(ConnectionLost, match="host:port"):
        split_address(address)
