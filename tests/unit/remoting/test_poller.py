"""A poller: rounds, their ends, and callbacks that fail or take others away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ariane.remoting.poller import ROUND_EVENTS, ROUNDS_MAX, Poller
from tests.unit.remoting.peers import soon


class Sockets:
    """Pairs of connected sockets: what is written to a far end makes its near end readable."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.near: list[socket.socket] = []
        self.far: list[socket.socket] = []

    def pair(self) -> int:
        near, far = socket.socketpair()
        near.setblocking(False)
        self.near.append(self.stack.enter_context(near))
        self.far.append(self.stack.enter_context(far))
        return near.fileno()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    with sockets.stack:
        yield sockets


async def turn(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_round_serves_all_that_are_ready_and_then_ends_once(sockets: Sockets) -> None:
    poller = Poller(asyncio.get_running_loop())
    seen: list[object] = []

    def readable(number: int) -> None:
        sockets.near[number].recv(10)
        seen.append(number)
        if "asked" not in asked:
            asked.append("asked")
            poller.call_soon(lambda: seen.append("end"))

    asked: list[str] = []
    for number in range(5):
        poller.add_reader(sockets.pair(), lambda number=number: readable(number))  # type: ignore[misc]
    for far in sockets.far:
        far.send(b"x")
    await turn()
    assert sorted(seen[:-1], key=str) == [0, 1, 2, 3, 4]
    assert seen[-1] == "end"
    poller.close()


async def test_between_rounds_the_loop_calls_back(sockets: Sockets) -> None:
    poller = Poller(asyncio.get_running_loop())
    called = asyncio.Event()
    poller.call_soon(called.set)
    assert not called.is_set()
    await soon(called.wait())
    poller.close()


async def test_a_callback_that_fails_takes_nothing_from_the_others(sockets: Sockets) -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    poller = Poller(loop)
    seen: list[str] = []

    def fails() -> None:
        sockets.near[0].recv(10)
        poller.call_soon(lambda: seen.append("end"))
        raise RuntimeError("broken")

    poller.add_reader(sockets.pair(), fails)
    poller.add_reader(sockets.pair(), lambda: seen.append(str(sockets.near[1].recv(10))))
    for far in sockets.far:
        far.send(b"x")
    await turn()
    assert sorted(seen) == ["b'x'", "end"]
    assert [str(context["exception"]) for context in told] == ["broken"]
    poller.close()


async def test_who_is_taken_away_within_a_round_is_not_called(sockets: Sockets) -> None:
    poller = Poller(asyncio.get_running_loop())
    seen: list[int] = []

    def first_come(number: int) -> None:
        seen.append(number)
        for descriptor in (sockets.near[0].fileno(), sockets.near[1].fileno()):
            poller.remove_reader(descriptor)

    for number in range(2):
        poller.add_reader(sockets.pair(), lambda number=number: first_come(number))  # type: ignore[misc]
    for far in sockets.far:
        far.send(b"x")
    await turn()
    assert len(seen) == 1
    poller.close()


async def test_reading_and_writing_come_and_go_by_themselves(sockets: Sockets) -> None:
    poller = Poller(asyncio.get_running_loop())
    descriptor = sockets.pair()
    seen: list[str] = []
    poller.add_writer(descriptor, lambda: seen.append("write"))
    await turn()
    assert set(seen) == {"write"}
    poller.add_reader(descriptor, lambda: seen.append("read"))
    poller.remove_writer(descriptor)
    seen.clear()
    await turn()
    assert seen == []
    sockets.far[0].close()  # the end of the stream is something to read, too
    await turn()
    assert set(seen) == {"read"}
    poller.remove_reader(descriptor)
    seen.clear()
    await turn()
    assert seen == []
    poller.close()
    poller.remove_reader(descriptor)


async def test_more_than_a_round_holds_are_all_served(sockets: Sockets) -> None:
    poller = Poller(asyncio.get_running_loop())
    served: list[int] = []
    all_served = asyncio.Event()

    def readable(number: int) -> None:
        sockets.near[number].recv(10)
        served.append(number)
        if len(served) == ROUND_EVENTS + 10:
            all_served.set()

    for number in range(ROUND_EVENTS + 10):
        poller.add_reader(sockets.pair(), lambda number=number: readable(number))  # type: ignore[misc]
    for far in sockets.far:
        far.send(b"x")
    await soon(all_served.wait())
    assert sorted(served) == list(range(ROUND_EVENTS + 10))
    poller.close()


async def test_what_comes_during_a_round_is_served_before_the_loop_goes_on(
    sockets: Sockets,
) -> None:
    loop = asyncio.get_running_loop()
    poller = Poller(loop)
    seen: list[str] = []

    def first() -> None:
        sockets.near[0].recv(10)
        seen.append("first")
        loop.call_soon(seen.append, "loop")
        sockets.far[1].send(b"x")
        poller.call_soon(lambda: poller.call_soon(lambda: seen.append("end")))

    poller.add_reader(sockets.pair(), first)
    poller.add_reader(
        sockets.pair(), lambda: seen.append(f"second {sockets.near[1].recv(10).decode()}")
    )
    sockets.far[0].send(b"x")
    await turn()
    assert seen == ["first", "end", "second x", "loop"]
    poller.close()


async def test_a_busy_socket_leaves_the_loop_its_turns(sockets: Sockets) -> None:
    loop = asyncio.get_running_loop()
    poller = Poller(loop)
    rounds: list[int] = []
    waits: list[int] = []

    def readable() -> None:  # and stays so
        if len(rounds) % ROUNDS_MAX == 0:
            loop.call_soon(lambda: waits.append(len(rounds)))
        rounds.append(1)

    poller.add_reader(sockets.pair(), readable)
    sockets.far[0].send(b"x")
    await turn(12)
    poller.close()
    assert len(waits) > 3
    assert waits == [ROUNDS_MAX * (number + 1) for number in range(len(waits))]


async def test_a_poller_may_be_closed_within_a_round(sockets: Sockets) -> None:
    poller = Poller(asyncio.get_running_loop())
    seen: list[str] = []

    def readable() -> None:
        seen.append("served")
        poller.close()

    poller.add_reader(sockets.pair(), readable)
    sockets.far[0].send(b"x")
    await turn()
    assert seen == ["served"]


async def test_what_is_no_descriptor_is_refused_and_leaves_in_peace() -> None:
    poller = Poller(asyncio.get_running_loop())
    with pytest.raises(ValueError, match="-1 is no descriptor"):
        poller.add_reader(-1, lambda: None)
    poller.remove_reader(-1)
    poller.remove_writer(1 << 20)
    poller.close()
