"""The servers' loop: it sleeps where sockets are served, and misses nothing that is its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ariane.remoting.poller import poller_of
from ariane.remoting.rounds_loop import RoundsLoop, server_loop

DEADLINE_S = 30


def run(main: Callable[[RoundsLoop], Coroutine[Any, Any, None]]) -> None:
    def loop_of() -> asyncio.AbstractEventLoop:
        loops.append(server_loop())
        return loops[0]

    async def within() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, RoundsLoop)
        await asyncio.wait_for(main(loop), DEADLINE_S)

    loops: list[asyncio.AbstractEventLoop] = []
    with asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(within())
    assert loops[0].is_closed()


def echo_until(near: socket.socket, last: bytes, then: Callable[[], object]) -> Callable[[], None]:
    """Answers what it reads; what is called for the last of it is asked of the loop."""

    def readable() -> None:
        data = near.recv(10)
        near.send(data)
        if data == last:
            then()

    return readable


def test_sockets_are_served_without_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: RoundsLoop) -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        done = asyncio.Event()
        turns: list[None] = []
        turn = loop._run_once  # type: ignore[attr-defined]
        monkeypatch.setattr(loop, "_run_once", lambda: (turns.append(None), turn()))
        loop.poller.add_reader(near.fileno(), echo_until(near, b"100", done.set))

        def ask() -> None:
            for number in range(101):
                far.send(b"%d" % number)
                assert far.recv(10) == b"%d" % number

        asker = threading.Thread(target=ask)
        asker.start()
        await done.wait()
        asker.join()
        loop.poller.remove_reader(near.fileno())
        near.close()
        far.close()
        assert len(turns) < 20

    run(main)


async def called(call: Callable[[], object]) -> None:
    call()


def told_by_descriptor(loop: RoundsLoop, call: Callable[[], object]) -> None:
    near, far = socket.socketpair()

    def readable() -> None:
        loop.remove_reader(near)
        near.close()
        far.close()
        call()

    loop.add_reader(near, readable)
    far.send(b"x")


WAYS: dict[str, Callable[[RoundsLoop, Callable[[], object]], object]] = {
    "soon": lambda loop, call: loop.call_soon(call),
    "a timer": lambda loop, call: loop.call_later(0.001, call),
    "a task": lambda loop, call: loop.create_task(called(call)),
    "another thread": lambda loop, call: threading.Thread(
        target=lambda: loop.call_soon_threadsafe(call)
    ).start(),
    "a descriptor of the loop's": told_by_descriptor,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_socket_asks_of_the_loop_is_done_though_no_socket_comes_after(
    way: Callable[[RoundsLoop, Callable[[], object]], object],
) -> None:
    async def main(loop: RoundsLoop) -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        done = asyncio.Event()
        readable = echo_until(near, b"x", lambda: way(loop, done.set))
        loop.poller.add_reader(near.fileno(), readable)
        loop.call_later(0.01, far.send, b"x")  # when the loop sleeps
        await done.wait()
        loop.poller.remove_reader(near.fileno())
        near.close()
        far.close()

    run(main)


def test_a_timer_is_heeded_while_a_socket_is_always_ready() -> None:
    async def main(loop: RoundsLoop) -> None:
        near, far = socket.socketpair()
        far.send(b"x")
        loop.poller.add_reader(near.fileno(), lambda: None)  # and stays so
        await asyncio.sleep(0.01)
        loop.poller.remove_reader(near.fileno())
        near.close()
        far.close()

    run(main)


def test_the_loop_may_be_stopped_by_a_socket() -> None:
    loop = server_loop()
    assert isinstance(loop, RoundsLoop)
    near, far = socket.socketpair()
    loop.poller.add_reader(near.fileno(), lambda: (near.recv(10), loop.stop()))  # type: ignore[arg-type, return-value]
    far.send(b"x")
    loop.run_forever()
    loop.close()
    near.close()
    far.close()


def test_a_poller_that_servers_share_is_the_loops_own_and_outlives_them() -> None:
    async def main(loop: RoundsLoop) -> None:
        near, far = socket.socketpair()
        done = asyncio.Event()
        shared = [poller_of(loop), poller_of(loop)]
        assert shared == [loop.poller, loop.poller]
        for poller in shared:
            assert poller is not None
            poller.close()
        loop.poller.add_reader(near.fileno(), done.set)
        far.send(b"x")
        await done.wait()
        loop.poller.remove_reader(near.fileno())
        near.close()
        far.close()

    run(main)
