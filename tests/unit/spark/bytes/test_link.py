"""A blocking connection against a peer that answers late, out of order, in bits, or with lies."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

import pytest

from ariane.codes import RequestCode
from ariane.errors import ConnectionLost, FrameError, RequestTimeout
from ariane.protocol.command import Command, CommandDecoder, reply
from ariane.protocol.headers.topics import TopicHeader
from ariane.spark.bytes.link import FRAME_BYTES_MAX, Answer, Link

HEADER = TopicHeader(topic="T")


class Wire:
    """A socket whose other end is a list."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.coming = b""
        self.bits = 1 << 20
        self.is_closed = False
        self.error: OSError | None = None
        self.patience_s: float | None = 30.0

    def sendall(self, data: bytes) -> None:
        self.asked += CommandDecoder().feed(data)

    def recv_into(self, buffer: memoryview) -> int:
        if self.error is not None:
            raise self.error
        count = min(self.bits, len(self.coming), len(buffer))
        buffer[:count] = self.coming[:count]
        self.coming = self.coming[count:]
        return count

    def recv(self, size: int, flags: int) -> bytes:
        if not self.coming and not self.is_closed:
            raise BlockingIOError
        return self.coming[:size]

    def gettimeout(self) -> float | None:
        return self.patience_s

    def settimeout(self, value: float | None) -> None:
        self.patience_s = value

    def close(self) -> None:
        self.is_closed = True

    def answer(self, order: Iterable[int], body_bytes: int = 10) -> None:
        for i in order:
            body = bytes([i]) * body_bytes
            self.coming += reply(self.asked[i], remark=f"r{i}", body=body).encode()


def linked() -> tuple[Wire, Link]:
    wire = Wire()
    return wire, Link("there:1", wire)


@pytest.mark.parametrize("bits", [1, 7, 1 << 20])
@pytest.mark.parametrize("body_bytes", [0, 10, 70_000, 600_000])
def test_answers_are_taken_in_any_order_and_any_bits(bits: int, body_bytes: int) -> None:
    if bits < 1000 and body_bytes > 10:
        bits = 1000
    wire, link = linked()
    wire.bits = bits
    numbers = [link.ask(RequestCode.PULL_MESSAGE, HEADER) for _ in range(4)]
    wire.answer([2, 0, 3, 1], body_bytes)
    for i in (0, 1, 2, 3):
        answer = link.take(numbers[i])
        assert (answer.remark, bytes(answer.body)) == (f"r{i}", bytes([i]) * body_bytes)
    assert link.is_quiet


def test_the_head_is_seen_before_the_body_is_here() -> None:
    wire, link = linked()
    number = link.ask(RequestCode.BULK_READ, HEADER)
    wire.answer([0], 500_000)
    seen: list[Answer] = []

    def look(answer: Answer) -> None:
        seen.append(answer)
        assert len(wire.coming) > 100_000
        link.ask(RequestCode.BULK_READ, HEADER)

    assert len(link.take(number, look).body) == 500_000
    assert [answer.remark for answer in seen] == ["r0"]
    assert len(wire.asked) == 2
    assert not link.is_quiet


LIES = {
    "a frame too long": struct.pack(">iI", FRAME_BYTES_MAX + 1, 10),
    "a frame of negative length": struct.pack(">iI", -5, 10),
    "a header longer than its frame": struct.pack(">iI", 10, 50),
    "an endless header": struct.pack(">iI", 50 << 20, 0xFFFFFF),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_lengths_that_lie_end_the_connection(lie: bytes) -> None:
    wire, link = linked()
    number = link.ask(RequestCode.PULL_MESSAGE, HEADER)
    wire.coming = lie + bytes(100)
    with pytest.raises(FrameError, match="there:1"):
        link.take(number)
    assert wire.is_closed and not link.is_quiet


def test_a_peer_that_goes_or_says_nothing() -> None:
    wire, link = linked()
    number = link.ask(RequestCode.PULL_MESSAGE, HEADER)
    wire.error = TimeoutError()
    with pytest.raises(RequestTimeout, match="there:1"):
        link.take(number)
    wire, link = linked()
    number = link.ask(RequestCode.PULL_MESSAGE, HEADER)
    with pytest.raises(ConnectionLost, match="there:1 closed"):
        link.take(number)
    wire, link = linked()
    assert link.is_alive()
    wire.coming = b"?"
    assert not link.is_alive()
    assert wire.is_closed


def test_whether_a_peer_is_there_is_known_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        link = Link("there:1", ours)
        assert link.is_alive()  # and not after half a minute, as a timeout
        assert ours.gettimeout() == 30
        theirs.close()
        assert not link.is_alive()
