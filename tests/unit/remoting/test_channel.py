"""The short way to a socket: order, ends, faults, and a broker's lane that reads by it."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from ariane.broker.dispatch import dispatch
from ariane.codes import RequestCode
from ariane.kernel.sockets import Channel
from ariane.protocol.command import Command, reply, request
from ariane.remoting.connection import Connection, ConnectionLimits
from tests.unit.broker.rig import Rig, send_fields
from tests.unit.remoting.peers import RawPeer, soon, world


class Owner:
    """Whoever owns a channel: what it was given, and how the socket ended."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self.rest: list[bytes] = []
        self.ends: list[int] = []
        self.channel = Channel(ours.fileno(), self.rest.append, self.ends.append)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_a_socket_takes_is_sent_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    owner = Owner(pair[0])
    owner.channel.write(b"one")
    owner.channel.write(b"two")
    assert pair[1].recv(100) == b"onetwo"
    assert owner.rest == []


def test_what_a_full_socket_leaves_is_for_the_owner(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    owner = Owner(pair[0])
    data = bytes(range(256)) * 40_000
    owner.channel.write(data)
    owner.channel.is_direct = False
    owner.channel.write(b"behind")
    (rest, behind) = owner.rest
    assert behind == b"behind"
    taken = b""
    while len(taken) < len(data) - len(rest):
        taken += pair[1].recv(1 << 20)
    assert taken + rest == data


def test_a_peer_that_is_gone_leaves_everything_to_the_owner(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    owner = Owner(pair[0])
    pair[1].close()
    owner.channel.write(b"too late")
    assert owner.rest == [b"too late"]


def send(opaque: int, body: bytes = b"hello", **fields: object) -> bytes:
    ext = {name: str(value) for name, value in send_fields(**fields).items()}
    return Command(RequestCode.SEND_MESSAGE_V2, opaque=opaque, ext=ext, body=body).encode()


class LaneWorld:
    """A broker's lane behind real sockets."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.topic("T")

    def answer(self, connection: Connection, command: Command) -> Command | None:
        return dispatch(self.rig.state, connection, command)

    async def sends(self, peer: RawPeer, opaque: int) -> None:
        text = f"UNIQ_KEY\x01K{opaque}\x02"
        await peer.send(send(opaque, properties=text))
        answer = await peer.receive()
        assert answer is not None
        assert (answer.opaque, answer.code) == (opaque, 0)


async def test_the_lane_reads_and_answers_by_itself() -> None:
    broker = LaneWorld()
    async with world(broker.answer, decoder_of=broker.rig.state.lane.reader_of) as around:
        peer = await around.connect_raw()
        for opaque in range(20):
            await broker.sends(peer, opaque)
        assert broker.rig.state.lane.request_count == 19  # the first one opened the topic
        # Commands for the handlers stand between those for the lane, and all are answered.
        other = request(9999, opaque=55).encode()
        await peer.send(send(20, properties="UNIQ_KEY\x01A\x02") + other + send(21) + b"\0")
        answers = [await peer.receive() for _ in range(3)]
        assert sorted(answer.opaque for answer in answers if answer) == [20, 21, 55]


async def test_frames_of_the_lane_keep_a_connection_from_being_idle() -> None:
    broker = LaneWorld()
    limits = ConnectionLimits(idle_s=120.0)
    reader_of = broker.rig.state.lane.reader_of
    async with world(broker.answer, decoder_of=reader_of, limits=limits) as around:
        peer = await around.connect_raw()
        connection = await around.next_accepted()
        for opaque in range(4):
            await broker.sends(peer, opaque)
            around.clock.advance(100.0)
            assert not connection.is_closed
        around.clock.advance(130.0)
        assert await soon(around.closed.get()) is connection
        assert connection.close_reason == "idle for 120 s"


async def test_bytes_that_are_no_frame_close_the_connection() -> None:
    broker = LaneWorld()
    async with world(broker.answer, decoder_of=broker.rig.state.lane.reader_of) as around:
        peer = await around.connect_raw()
        await broker.sends(peer, 1)
        await peer.send(struct.pack(">iI", -5, 0))
        assert await peer.receive() is None
        assert "a frame of -5 bytes" in (await around.next_closed()).close_reason


@pytest.mark.parametrize("resets", [False, True])
async def test_a_peer_that_leaves_is_noticed(resets: bool) -> None:
    broker = LaneWorld()
    async with world(broker.answer, decoder_of=broker.rig.state.lane.reader_of) as around:
        peer = await around.connect_raw()
        await broker.sends(peer, 1)
        if resets:
            linger = struct.pack("ii", 1, 0)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.close()
        reason = (await around.next_closed()).close_reason
        assert (f"[Errno {errno.ECONNRESET}]" if resets else "closed by the peer") in reason


async def test_answers_keep_their_order_though_the_peer_reads_late() -> None:
    body = b"x" * 100_000

    def answer(connection: Connection, command: Command) -> Command | None:
        for number in range(100):
            connection.write(reply(command, body=b"%03d" % number + body).encode())
        return None

    limits = ConnectionLimits(unread_bytes_pause=1 << 20)
    async with world(answer, limits=limits) as around:
        peer = await around.connect_raw(receive_bytes=4096)
        await peer.send(request(1, opaque=7).encode())
        connection = await around.next_accepted()
        for number in range(100):
            found = await peer.receive()
            assert found is not None
            assert found.body[:3] == b"%03d" % number
            if number == 0:
                assert connection.unread_bytes > 0
        await peer.send(request(1, opaque=8).encode())  # and it is read from again
        found = await peer.receive()
        assert found is not None
        assert found.opaque == 8
