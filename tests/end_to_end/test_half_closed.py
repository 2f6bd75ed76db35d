"""A peer that sends no more is answered all the same; one that sends nonsense, what came before."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.processes import Ariane
from tests.harness.wire import PULL, SEND_V2, Wire, frame, properties_of, send_header

TOPIC = "Halves"
HALF_FRAME = b"\x7f\xff\xff\xff" + bytes(20)  # longer than any frame may be


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    with Ariane(tmp_path).start(flushDiskType=request.param) as server:
        with Wire(server.broker, timeout_s=30) as wire:
            wire.create_topic(TOPIC, 1)
            for number in range(40):  # the first opens the topic, so that the rest take the lane
                wire.socket.sendall(send(number, bytes(4000)))
                wire.read()
            wire.pull(TOPIC, 0, 0)
        yield server.broker


def send(opaque: int, body: bytes = b"x") -> bytes:
    header = send_header(TOPIC, 0, key="", tag="T")
    header["i"] = properties_of(UNIQ_KEY=f"{opaque:032X}", TAGS="T", WAIT="true")
    return frame(SEND_V2, header, body, opaque=opaque)


def pull(opaque: int) -> bytes:
    ext = {
        "consumerGroup": "harness", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return frame(PULL, ext, opaque=opaque)


def answered(wire: Wire, count: int) -> set[int]:
    return {wire.read().opaque for _ in range(count)}


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([send(1)], id="one message"),
        pytest.param([send(number) for number in range(1, 301)], id="messages"),
        pytest.param([*map(pull, range(1, 61)), send(61)], id="more answers than a turn gives"),
    ],
)
def test_all_that_was_asked_before_the_end_is_answered(
    address: tuple[str, int], requests: Sequence[bytes]
) -> None:
    with Wire(address, timeout_s=30) as wire:
        wire.socket.sendall(b"".join(requests))
        wire.socket.shutdown(socket.SHUT_WR)
        assert answered(wire, len(requests)) == set(range(1, len(requests) + 1))
        assert wire.socket.recv(1) == b""


@pytest.mark.parametrize("address", ["ASYNC_FLUSH"], indirect=True)
def test_what_came_before_nonsense_is_answered(address: tuple[str, int]) -> None:
    with Wire(address, timeout_s=30) as wire:
        wire.socket.sendall(send(1) + send(2) + HALF_FRAME)
        assert answered(wire, 2) == {1, 2}
        assert wire.socket.recv(1) == b""
