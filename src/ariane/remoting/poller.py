"""Readiness of all of a server's sockets, told to its loop as one.

asyncio pays for every ready socket with a key, a handle and a call through a context. Here the
sockets share one `epoll`, which the loop watches as a single descriptor, and their callbacks run
straight from what the system call returned: a round. What is worth doing once for all requests of
a round, such as writing their messages to the log, is done at its end, by `call_soon`.

After a round the poller looks again before it lets the loop sleep: going to sleep and being woken
costs more than a few dozen looks, and a peer that has just been answered often asks again within
that time. How many looks are worth it is learnt from how often they found something.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final

ROUND_EVENTS: Final = 64  # then answers leave
ROUNDS_MAX: Final = 8  # in a row; then the loop's timers and its other descriptors have their turn
LOOKS_MAX: Final = 64  # in vain before the loop may sleep: some 50 microseconds
LOOKS_STEP: Final = 8  # more, after one that found something
# EPOLLIN and EPOLLOUT, as numbers: where there is no epoll clients import this module all the same.
READABLE: Final = 0x1
WRITABLE: Final = 0x4

Callback = Callable[[], None]


class Poller:
    """Calls back for readable and writable descriptors; stands in for the loop's own methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._after: list[Callback] = []
        self._is_in_round = False
        self._looks = 1
        loop.add_reader(self._epoll.fileno(), self._ready)

    def close(self) -> None:
        """Watch nothing any more."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def add_reader(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever the descriptor can be read."""
        self._watch(self._readers, descriptor, callback)

    def add_writer(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever the descriptor can be written."""
        self._watch(self._writers, descriptor, callback)

    def remove_reader(self, descriptor: int) -> None:
        """Do not call back for reading any more."""
        self._leave(self._readers, descriptor)

    def remove_writer(self, descriptor: int) -> None:
        """Do not call back for writing any more."""
        self._leave(self._writers, descriptor)

    def call_soon(self, callback: Callback) -> None:
        """Call once, when the sockets that are ready now have been served."""
        if self._is_in_round:
            self._after.append(callback)
        else:
            self._loop.call_soon(callback)

    def _watch(self, side: dict[int, Callback], descriptor: int, callback: Callback) -> None:
        is_known = descriptor in self._readers or descriptor in self._writers
        side[descriptor] = callback
        if is_known:
            self._epoll.modify(descriptor, self._interest(descriptor))
        else:
            self._epoll.register(descriptor, self._interest(descriptor))

    def _leave(self, side: dict[int, Callback], descriptor: int) -> None:
        if side.pop(descriptor, None) is None or self._epoll.closed:
            return
        if interest := self._interest(descriptor):
            self._epoll.modify(descriptor, interest)
        else:
            self._epoll.unregister(descriptor)

    def _interest(self, descriptor: int) -> int:
        return (READABLE if descriptor in self._readers else 0) | (
            WRITABLE if descriptor in self._writers else 0
        )

    def _ready(self) -> None:
        events = self._epoll.poll(0, ROUND_EVENTS)
        for _ in range(ROUNDS_MAX):
            self._serve(events)
            events = self._look_again()
            if not events:
                return

    def _look_again(self) -> list[tuple[int, int]]:
        """What is ready by now, or soon enough; nothing in the end, or when closed meanwhile."""
        if self._epoll.closed:
            return []
        for _ in range(self._looks):
            if events := self._epoll.poll(0, ROUND_EVENTS):
                self._looks = min(self._looks + LOOKS_STEP, LOOKS_MAX)
                return events
        self._looks = max(self._looks // 2, 1)
        return []

    def _serve(self, events: list[tuple[int, int]]) -> None:
        """One round."""
        self._is_in_round = True
        try:
            for descriptor, mask in events:
                # Errors and hang-ups show when the socket is read or written.
                if mask != WRITABLE and (callback := self._readers.get(descriptor)) is not None:
                    self._call(callback)
                if mask != READABLE and (callback := self._writers.get(descriptor)) is not None:
                    self._call(callback)
            while self._after:
                after, self._after = self._after, []
                for callback in after:
                    self._call(callback)
        finally:
            self._is_in_round = False

    def _call(self, callback: Callback) -> None:
        """One socket's fault must not keep the others waiting."""
        try:
            callback()
        except Exception as error:
            context = {"message": f"a callback for a socket failed: {callback}", "exception": error}
            self._loop.call_exception_handler(context)


def poller_of(loop: asyncio.AbstractEventLoop) -> Poller | None:
    """A poller for the loop's sockets; None where there is no epoll."""
    return Poller(loop) if hasattr(select, "epoll") else None
