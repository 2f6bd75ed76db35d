"""A connection: requests and answers both ways, timeouts, errors, and hostile peers."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from ariane.codes import ResponseCode
from ariane.errors import BadHeader, ConnectionLost, RequestRejected, RequestTimeout
from ariane.protocol.command import Command, Serializer, reply, request
from ariane.remoting.connection import Connection, ConnectionLimits
from tests.unit.remoting.peers import echo, soon, world


async def test_answers_find_their_requests_in_any_order() -> None:
    held: list[tuple[Connection, Command]] = []

    def answer_backwards(connection: Connection, command: Command) -> Command | None:
        held.append((connection, command))
        if len(held) == 50:
            for asker, asked in reversed(held):
                asker.send(reply(asked, body=asked.body))
        return None

    async with world(answer_backwards) as around:
        client = await around.connect()
        bodies = [b"%d" % number for number in range(50)]
        answers = await soon(
            asyncio.gather(*(client.request(request(1, body=body), 3.0) for body in bodies))
        )
        assert [answer.body for answer in answers] == bodies


async def test_both_sides_ask_at_once_with_the_same_opaques() -> None:
    def client_side(connection: Connection, command: Command) -> Command | None:
        return reply(command, body=b"client says " + command.body)

    def server_side(connection: Connection, command: Command) -> Command | None:
        return reply(command, body=b"server says " + command.body)

    async with world(server_side) as around:
        client = await around.connect(client_side)
        server = await around.next_accepted()
        calls = [
            end.request(request(5, body=b"%d" % n), 3.0)
            for n in range(20)
            for end in (client, server)
        ]
        answers = await soon(asyncio.gather(*calls))
        for number in range(20):
            assert answers[2 * number].body == b"server says %d" % number
            assert answers[2 * number + 1].body == b"client says %d" % number


@pytest.mark.provokes("handler failed")
async def test_one_way_requests_are_never_answered() -> None:
    handled = []

    def handler(connection: Connection, command: Command) -> Command | None:
        handled.append(command.code)
        if command.code == 2:
            raise RequestRejected("no")
        if command.code == 3:
            raise RuntimeError("a bug")
        return reply(command)

    async with world(handler) as around:
        peer = await around.connect_raw()
        one_ways = [request(code, one_way=True, opaque=code) for code in (1, 2, 3)]
        last = request(4, opaque=44)
        await peer.send(b"".join(command.encode() for command in (*one_ways, last)))
        answer = await peer.receive()
        assert answer is not None
        assert answer.opaque == 44
        assert handled == [1, 2, 3, 4]


class Holding:
    """A handler that keeps every request and answers none."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Command] = asyncio.Queue()

    def __call__(self, connection: Connection, command: Command) -> Command | None:
        self.requests.put_nowait(command)
        return None

    async def next(self) -> Command:
        return await soon(self.requests.get())


async def test_a_handler_may_answer_later() -> None:
    holding = Holding()
    async with world(holding) as around:
        client = await around.connect()
        server = await around.next_accepted()
        answer = client.start_request(request(1), 3.0)
        server.send(reply(await holding.next(), body=b"later"))
        assert (await soon(answer)).body == b"later"


async def test_each_request_times_out_at_its_own_time() -> None:
    async with world(Holding()) as around:
        client = await around.connect()
        calls = {
            wait_s: client.start_request(request(1), wait_s) for wait_s in (5.0, 1.0, 3.0, 0.5)
        }
        for elapsed_s, late in (
            (0.4, set()),
            (0.5, {0.5}),
            (1.0, {0.5, 1.0}),
            (4.9, {0.5, 1.0, 3.0}),
        ):
            around.clock.advance(elapsed_s - around.clock.monotonic_s())
            assert {wait_s for wait_s, call in calls.items() if call.done()} == late
        around.clock.advance(1.0)
        for call in calls.values():
            with pytest.raises(RequestTimeout, match="no answer from"):
                await call


async def test_a_late_answer_is_ignored() -> None:
    holding = Holding()
    async with world(holding) as around:
        client = await around.connect()
        server = await around.next_accepted()
        late = client.start_request(request(1), 1.0)
        asked = await holding.next()
        around.clock.advance(1.0)
        with pytest.raises(RequestTimeout):
            await late
        next_call = client.start_request(request(1), 1.0)
        server.send(reply(asked, body=b"late"))
        server.send(Command(0, opaque=12_345, flag=1))  # to a question nobody asked
        server.send(reply(await holding.next(), body=b"in time"))
        assert (await soon(next_call)).body == b"in time"


async def test_a_cancelled_request_leaves_nothing_behind() -> None:
    async with world(echo) as around:
        client = await around.connect()
        call = client.start_request(request(1), 1.0)
        call.cancel()
        assert (await soon(client.request(request(1, body=b"x"), 1.0))).body == b"x"
        around.clock.advance(2.0)
        assert not client.is_closed


async def test_a_broken_connection_fails_what_waits_on_it() -> None:
    holding = Holding()
    async with world(holding) as around:
        client = await around.connect()
        server = await around.next_accepted()
        calls = [client.start_request(request(1), 60.0) for _ in range(3)]
        for _ in calls:
            await holding.next()
        server.close("enough")
        for call in calls:
            with pytest.raises(ConnectionLost, match="closed by the peer"):
                await soon(call)
        with pytest.raises(ConnectionLost):
            await client.request(request(1), 1.0)
        client.send(request(1))  # dropped in silence


@pytest.mark.provokes("handler failed")
async def test_errors_of_a_handler_become_answers(caplog: pytest.LogCaptureFixture) -> None:
    def handler(connection: Connection, command: Command) -> Command | None:
        if command.code == 1:
            raise RequestRejected("no such topic", ResponseCode.TOPIC_NOT_EXIST)
        if command.code == 2:
            raise BadHeader("queueId is missing")
        if command.code == 3:
            raise ZeroDivisionError("a bug")
        return reply(command)

    async with world(handler) as around:
        client = await around.connect()
        with caplog.at_level(logging.INFO, "ariane.remoting"):
            answers = [await soon(client.request(request(code), 1.0)) for code in (1, 2, 3, 4)]
        assert [(answer.code, answer.remark) for answer in answers] == [
            (ResponseCode.TOPIC_NOT_EXIST, "no such topic"),
            (ResponseCode.SYSTEM_ERROR, "queueId is missing"),
            (ResponseCode.SYSTEM_ERROR, "internal error in request 3: ZeroDivisionError"),
            (ResponseCode.SUCCESS, None),
        ]
        (record,) = caplog.records
        assert record.exc_info is not None
        assert "code=3" in record.getMessage()


async def test_a_binary_request_is_answered_in_binary() -> None:
    async with world(echo) as around:
        peer = await around.connect_raw()
        for serializer in Serializer:
            command = Command(1, opaque=3, body=b"x", serializer=serializer)
            await peer.send(command.encode())
            answer = await peer.receive()
            assert answer is not None
            assert (answer.serializer, answer.opaque, answer.body) == (serializer, 3, b"x")


async def test_frames_in_pieces_and_together() -> None:
    async with world(echo) as around:
        peer = await around.connect_raw()
        wire = request(1, body=b"in pieces", opaque=1).encode()
        for byte in wire:
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)
        answer = await peer.receive()
        assert answer is not None
        assert answer.body == b"in pieces"
        await peer.send(b"".join(request(1, opaque=n).encode() for n in range(1000)))
        for number in range(1000):
            answer = await peer.receive()
            assert answer is not None
            assert answer.opaque == number


async def test_a_frame_larger_than_any_buffer() -> None:
    async with world(echo) as around:
        client = await around.connect()
        body = bytes(range(256)) * (40 << 10)
        answer = await soon(client.request(request(1, body=body), 30.0))
        assert answer.body == body


async def test_half_a_frame_and_gone() -> None:
    handled = []

    def handler(connection: Connection, command: Command) -> Command | None:
        handled.append(command)
        return reply(command)

    async with world(handler) as around:
        peer = await around.connect_raw()
        await around.next_accepted()
        await peer.send(request(1, body=b"x" * 100).encode()[:-1])
        peer.close()
        lost = await around.next_closed()
        assert lost.is_closed
        assert handled == []
        client = await around.connect()
        assert (await soon(client.request(request(2), 1.0))).code == 0


HOSTILE = {
    "length 0": b"\0\0\0\0\0\0\0\0",
    "negative length": b"\x80\0\0\0\0\0\0\0",
    "2 GiB": b"\x7f\xff\xff\xff\0\0\0\0",
    "header beyond the frame": b"\0\0\0\x08\0\0\xff\xff",
    "header of 16 MiB": b"\0\xff\xff\xf0\0\xff\xff\x00",
    "serializer 7": b"\0\0\0\x08\x07\0\0\x04{}{}",
    "broken JSON": b"\0\0\0\x08\0\0\0\x04{}{}",
    "broken binary": b"\0\0\0\x08\x01\0\0\x04{}{}",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("wire", HOSTILE.values(), ids=HOSTILE)
async def test_bad_bytes_close_the_connection_and_say_so_once(
    wire: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(echo) as around:
        good = await around.connect()
        await around.next_accepted()
        peer = await around.connect_raw()
        with caplog.at_level(logging.INFO, "ariane.remoting"):
            await peer.send(request(1, opaque=9, body=b"before").encode() + wire + b"\0" * 100)
            answer = await peer.receive()  # what came before is still answered
            assert answer is not None
            assert answer.body == b"before"
            assert await peer.receive() is None
        assert len(caplog.records) == 1
        assert caplog.records[0].levelno == logging.INFO
        assert (await soon(good.request(request(1), 1.0))).code == 0


async def test_a_peer_that_never_reads_is_not_read_from_either() -> None:
    handled = []

    def large(connection: Connection, command: Command) -> Command | None:
        handled.append(command.opaque)
        return reply(command, body=bytes(1 << 20))

    limits = ConnectionLimits(unread_bytes_pause=4 << 20, unread_bytes_max=64 << 20)
    async with world(large, limits=limits) as around:
        peer = await around.connect_raw(receive_bytes=4096)
        server = await around.next_accepted()
        good = await around.connect()
        frames = [request(1, opaque=number, body=bytes(100_000)).encode() for number in range(200)]
        sending = asyncio.ensure_future(peer.send(b"".join(frames)))
        for _ in range(50):  # as many turns of the loop as the good client needs answers
            await soon(good.request(request(1), 1.0))
            assert server.unread_bytes <= (4 << 20) + (3 << 20)
        assert len([opaque for opaque in handled if opaque]) < 200
        assert not sending.done()
        sending.cancel()
        # What it asked for is not lost: once it reads, it gets on.
        for number in range(5):
            answer = await peer.receive()
            assert answer is not None
            assert answer.opaque == number


async def test_a_peer_that_never_reads_is_dropped_with_bounded_memory() -> None:
    limits = ConnectionLimits(unread_bytes_pause=1 << 20, unread_bytes_max=8 << 20)
    async with world(echo, limits=limits) as around:
        await around.connect_raw(receive_bytes=4096)
        server = await around.next_accepted()
        most = 0
        for number in range(10_000):
            server.send(request(40, one_way=True, opaque=number, body=bytes(1 << 18)))
            await asyncio.sleep(0)
            most = max(most, server.unread_bytes)
            if server.is_closed:
                break
        assert server.is_closed
        assert most <= (8 << 20) + (1 << 20)
        assert (await around.next_closed()) is server
        assert server.close_reason == "the peer does not read its answers"
        assert server.unread_bytes == 0


async def test_idle_connections_are_closed_after_two_minutes() -> None:
    async with world(echo) as around:
        idle = await around.connect()
        busy = await around.connect()
        for _ in range(11):
            around.clock.advance(10.0)
            await soon(busy.request(request(1), 1.0))
        assert not idle.is_closed
        around.clock.advance(20.0)
        lost = await around.next_closed()
        assert lost.close_reason == "idle for 120 s"
        await soon(idle.wait_lost())
        assert (await soon(busy.request(request(1), 1.0))).code == 0
        assert len(around.server.connections) == 1


async def test_a_frame_that_trickles_in_is_cut_off_after_a_minute() -> None:
    async with world(echo) as around:
        peer = await around.connect_raw()
        server = await around.next_accepted()
        await peer.send(request(1).encode() + request(1, body=bytes(1000)).encode()[:100])
        assert await peer.receive() is not None  # so the half behind it has been read
        for _ in range(12):
            await peer.send(b"\0")
            around.clock.advance(5.0)
        assert not server.is_closed
        around.clock.advance(5.0)
        assert server.close_reason == "a frame has not arrived whole in 60 s"
        assert await peer.receive() is None


async def test_a_slow_stream_of_whole_frames_is_not_cut_off() -> None:
    async with world(echo) as around:
        peer = await around.connect_raw()
        wire = request(1, body=bytes(100)).encode()
        await peer.send(wire[:50])
        for _ in range(40):
            await peer.send(wire[50:] + wire[:50])
            assert await peer.receive() is not None
            around.clock.advance(5.0)
        assert len(around.server.connections) == 1


async def test_closing_writes_what_is_left() -> None:
    async with world(echo) as around:
        peer = await around.connect_raw()
        server = await around.next_accepted()
        for number in range(100):
            server.send(request(40, one_way=True, opaque=number, body=bytes(10_000)))
        server.close("done")
        server.send(request(40, one_way=True, opaque=-1))
        seen = []
        while (command := await peer.receive()) is not None:
            seen.append(command.opaque)
        assert seen == list(range(100))


async def test_requests_after_closing_are_not_handled() -> None:
    handled = []

    def close_first(connection: Connection, command: Command) -> Command | None:
        handled.append(command.opaque)
        connection.close("one is enough")
        return reply(command)

    async with world(close_first) as around:
        peer = await around.connect_raw()
        await peer.send(b"".join(request(1, opaque=n).encode() for n in range(5)))
        assert await peer.receive() is None
        assert handled == [0]


@pytest.mark.provokes("close callback failed")
async def test_a_close_callback_that_fails_does_not_silence_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(connection: Connection) -> None:
        raise RuntimeError("a bug")

    async with world(echo) as around:
        client = await around.connect()
        told = []
        client.on_close += [fail, told.append]
        client.close("bye")
        await soon(client.wait_lost())
        assert told == [client]
        assert "close callback failed" in caplog.text


async def test_addresses_and_options() -> None:
    async with world(echo) as around:
        client = await around.connect()
        server = await around.next_accepted()
        assert client.peer == server.local == ("127.0.0.1", around.server.port)
        assert client.local == server.peer
        for end in (client, server):
            assert end._transport is not None
            raw = end._transport.get_extra_info("socket")
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        server.attachments["who"] = "client 7"
        assert client.attachments == {}


async def test_opaques_are_not_reused_while_in_flight() -> None:
    holding = Holding()
    async with world(holding) as around:
        client = await around.connect()
        client._last_opaque = 0x7FFF_FFFE
        calls = [client.start_request(request(1), 9.0) for _ in range(3)]
        client._last_opaque = 0x7FFF_FFFE
        calls += [client.start_request(request(1), 9.0) for _ in range(3)]
        opaques = [(await holding.next()).opaque for _ in calls]
        assert len(set(opaques)) == 6
        assert all(0 <= opaque <= 0x7FFF_FFFF for opaque in opaques)
        for call in calls:
            call.cancel()
