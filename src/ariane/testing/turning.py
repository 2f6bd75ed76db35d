"""Time that passes for a client because its test turns the broker's clock.

The client's clock goes on by itself as well, and whatever waits for an answer waits in real time: a
turn comes after the broker's own and when sends and calls have their answers, and what the broker
holds gets as much more time. So nothing is late because the clock jumped.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

from ariane.client.session import Session
from ariane.clock import SystemClock

PATIENCE_S: Final = 1.0  # in real time, for answers that are under way
LOOK_S: Final = 0.001
BRIEF_S: Final = 10.0  # what may take longer is a pull or a pop that the broker holds
TURNS: Final = 8  # of the client's loop: enough to take what has come and to ask again


class _Client(Protocol):
    @property
    def session(self) -> Session: ...


C = TypeVar("C", bound=_Client)


class TurnedClock:
    """The machine's clocks, and how far they have been turned."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._turned_s = 0.0

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._real.wall_ms() + round(self._turned_s * 1000)

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment."""
        return self._real.monotonic_s() + self._turned_s

    def turn(self, seconds: float) -> None:
        """Let so much time have passed."""
        self._turned_s += seconds


class TurnedClients:
    """The clients whose time a broker's `advance` turns."""

    def __init__(self) -> None:
        self._turned: list[tuple[Session, TurnedClock]] = []

    def added(self, client: C, clock: TurnedClock) -> C:
        """The client, whose time is turned from now on while it is open."""
        self._turned.append((client.session, clock))
        return client

    def check(self) -> None:
        """Raise RuntimeError where `advance` would wait for the very loop that called it."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if any(session.loop is here for session, _ in self._turned):
            raise RuntimeError(
                "this loop's own client must go on while time passes;"
                " write `await broker.aio.advance(...)`"
            )

    async def turn(self, seconds: float) -> None:
        """Let time pass for all of them, each on its own loop."""
        for session, clock in self._turned:
            if session.loop is not None:
                work = _turn(session, clock, seconds)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, session.loop))


async def _turn(session: Session, clock: TurnedClock, seconds: float) -> None:
    real = SystemClock()
    until_s = real.monotonic_s() + PATIENCE_S
    quiet_turns = 0  # one is not enough: who got an answer may be about to ask again
    while quiet_turns < TURNS and real.monotonic_s() < until_s:
        is_busy = session.is_busy(within_s=BRIEF_S)
        quiet_turns = 0 if is_busy else quiet_turns + 1
        await asyncio.sleep(LOOK_S if is_busy else 0)
    session.give_time(seconds)
    clock.turn(seconds)
    session.timers.run_due()
    if session.timers.on_earlier is not None:
        session.timers.on_earlier()  # what is left is due sooner than the loop was told
    for _ in range(TURNS):
        await asyncio.sleep(0)
