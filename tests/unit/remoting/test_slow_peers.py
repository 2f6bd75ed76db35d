"""Peers that ask for more than they read: they wait, the others do not, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from ariane.codes import RequestCode
from ariane.protocol.command import Command, reply, request
from ariane.remoting.connection import Connection
from tests.unit.broker.rig import pull_fields
from tests.unit.remoting.peers import RawPeer, World, soon, world
from tests.unit.remoting.test_channel import LaneWorld

BODY_BYTES = 4000
COUNT = 30
ANSWER_BYTES = COUNT * BODY_BYTES


def pull(opaque: int) -> bytes:
    fields = {name: str(value) for name, value in pull_fields("T", 0, 0).items()}
    return Command(RequestCode.PULL_MESSAGE, opaque=opaque, ext=fields).encode()


@pytest.fixture
async def around() -> AsyncIterator[World]:
    """A broker with something to pull, whose answers to a pull are large."""
    broker = LaneWorld()
    for _ in range(COUNT):
        broker.rig.send(body=b"x" * BODY_BYTES)
    async with world(broker.answer, decoder_of=broker.rig.state.lane.reader_of) as around:
        peer = await around.connect_raw()
        await peer.send(pull(0))
        await asks_for(peer, 0)  # by a handler, which lets the next ones take the lane
        await around.next_accepted()
        yield around


async def asks_for(peer: RawPeer, opaque: int) -> None:
    """The next answer is to this, and whole."""
    answer = await peer.receive()
    assert answer is not None
    assert (answer.opaque, answer.code) == (opaque, 0)
    assert len(answer.body) > ANSWER_BYTES or answer.body == b"done"


async def stalled(server: Connection) -> None:
    """Return when the peer is seen to be slow."""
    for _ in range(1_000_000):
        if server.is_congested:
            return
        await asyncio.sleep(0)
    raise AssertionError("the peer keeps up")


async def test_a_peer_that_reads_slowly_gets_everything_in_order(around: World) -> None:
    peer = await around.connect_raw(receive_bytes=4096)
    server = await around.next_accepted()
    await peer.send(b"".join(pull(opaque) for opaque in range(300)))
    await stalled(server)
    for opaque in range(300):
        await asks_for(peer, opaque)
        assert server.unread_bytes <= (256 << 10) + ANSWER_BYTES * 2
    await peer.send(pull(300))  # and it is read from again
    await asks_for(peer, 300)


async def test_requests_of_both_kinds_wait_in_their_order(around: World) -> None:
    peer = await around.connect_raw(receive_bytes=4096)
    server = await around.next_accepted()
    unknown = [request(9999, opaque=1000 + number).encode() for number in range(60)]
    mixed = [pull(number // 2) if number % 2 else unknown[number // 2] for number in range(120)]
    await peer.send(b"".join(mixed))
    await stalled(server)
    answers = [await peer.receive() for _ in range(120)]
    opaques = [answer.opaque for answer in answers if answer is not None]
    assert [opaque for opaque in opaques if opaque < 1000] == list(range(60))
    assert [opaque for opaque in opaques if opaque >= 1000] == list(range(1000, 1060))


async def test_a_peer_that_reads_fast_leaves_the_others_their_turn(around: World) -> None:
    greedy, other = await around.connect_raw(), await around.connect_raw()
    reading = asyncio.gather(*[asyncio.ensure_future(all_of(greedy, 180))])
    await greedy.send(b"".join(pull(opaque) for opaque in range(180)))
    await other.send(pull(1))
    await asks_for(other, 1)
    assert not reading.done()
    await soon(reading)


async def all_of(peer: RawPeer, count: int) -> None:
    for opaque in range(count):
        await asks_for(peer, opaque)


async def test_a_peer_that_never_reads_is_not_read_from_and_then_cut_off(
    around: World, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await around.connect_raw(receive_bytes=4096)
    server = await around.next_accepted()
    pouring = asyncio.ensure_future(pour(peer))
    good = await around.connect_raw()
    await stalled(server)
    for opaque in range(50):
        await good.send(pull(opaque))
        await asks_for(good, opaque)
        assert server.unread_bytes <= (256 << 10) + ANSWER_BYTES * 2
        assert server.reader.partial_bytes <= 128 << 10
    with caplog.at_level(logging.WARNING, "ariane.remoting"):
        for _ in range(14):
            around.clock.advance(5.0)
    assert (await around.next_closed()) is server
    assert server.close_reason == "the peer does not read its answers"
    assert f"peer={server.peer_text}" in caplog.text
    pouring.cancel()
    await good.send(pull(50))
    await asks_for(good, 50)


async def pour(peer: RawPeer) -> None:
    asked = b"".join(pull(opaque) for opaque in range(100))
    while True:
        await asyncio.get_running_loop().sock_sendall(peer.socket, asked)


async def test_a_peer_that_takes_a_little_now_and_then_is_not_cut_off(around: World) -> None:
    peer = await around.connect_raw(receive_bytes=4096)
    server = await around.next_accepted()
    await peer.send(b"".join(pull(opaque) for opaque in range(100)))
    await stalled(server)
    for opaque in range(20):
        around.clock.advance(50.0)
        await asks_for(peer, opaque)
    assert not server.is_closed


async def test_commands_that_were_read_wait_too() -> None:
    handled: list[int] = []

    def large(connection: Connection, command: Command) -> Command | None:
        handled.append(command.opaque)
        return reply(command, body=bytes(100_000))

    async with world(large) as around:
        peer = await around.connect_raw(receive_bytes=4096)
        server = await around.next_accepted()
        await peer.send(b"".join(request(1, opaque=number).encode() for number in range(200)))
        await stalled(server)
        assert len(handled) < 100
        for number in range(200):
            answer = await peer.receive()
            assert answer is not None
            assert answer.opaque == number
        assert handled == list(range(200))
