"""Time, injected: the only module that reads a clock, and the timers that run on it.

Everything that waits does so through `Timers`, a heap of callbacks that somebody else drives: an
event loop in a server, `ManualClock.advance` in a test. Nothing here sleeps.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps that leave the process, monotonic time for durations."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)  # itself: it is asked at every socket read


class Timer:
    """One callback to be made at `due_s`; cancelling it is enough to forget it."""

    __slots__ = ("callback", "cancelled", "due_s", "interval_s")

    def __init__(
        self, due_s: float, callback: Callable[[], None], interval_s: float | None
    ) -> None:
        self.due_s = due_s
        self.callback = callback
        self.interval_s = interval_s
        self.cancelled = False

    def cancel(self) -> None:
        """Never call back (again)."""
        self.cancelled = True


class Timers:
    """Callbacks in the order they fall due. `run_due` is called by whoever drives time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.on_earlier: Callable[[], None] | None = (
            None  # told when a new timer is due before all others
        )
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = itertools.count()

    def after(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call back once, `delay_s` from now."""
        return self._push(Timer(self.clock.monotonic_s() + delay_s, callback, None))

    def every(
        self, interval_s: float, callback: Callable[[], None], *, first_s: float | None = None
    ) -> Timer:
        """Call back each `interval_s`, first after `first_s` (or one interval)."""
        delay_s = interval_s if first_s is None else first_s
        return self._push(Timer(self.clock.monotonic_s() + delay_s, callback, interval_s))

    def next_due_s(self) -> float | None:
        """When the earliest timer falls due, on the monotonic clock."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        """Make every callback that is due; a repeating timer that fell behind is called once."""
        now_s = self.clock.monotonic_s()
        while (due_s := self.next_due_s()) is not None and due_s <= now_s:
            timer = heapq.heappop(self._heap)[2]
            if timer.interval_s is not None:
                timer.due_s = max(timer.due_s + timer.interval_s, now_s)
                self._push(timer)
            timer.callback()

    def hurry(self, interval_max_s: float) -> None:
        """Make every callback that repeats at least this often, whether due or not.

        For a test whose clock stands still between two looks of something that looks regularly.
        """
        frequent = [
            timer
            for _, _, timer in sorted(self._heap)
            if timer.interval_s is not None and timer.interval_s <= interval_max_s
        ]
        for timer in frequent:
            if not timer.cancelled:
                timer.callback()

    def _push(self, timer: Timer) -> Timer:
        earliest_s = self.next_due_s()
        heapq.heappush(self._heap, (timer.due_s, next(self._sequence), timer))
        if self.on_earlier is not None and (earliest_s is None or timer.due_s < earliest_s):
            self.on_earlier()
        return timer


class ManualClock:
    """A clock that moves only when told, and fires the timers it passes in their order."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000) -> None:
        self._start_wall_ms = wall_ms
        self._skew_ms = 0
        self._elapsed_s = 0.0
        self.timers: list[Timers] = []

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as far as anybody asking can tell."""
        return self._start_wall_ms + self._skew_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_s

    def step_wall(self, milliseconds: int) -> None:
        """Let the wall clock jump, as an operator or NTP may; monotonic time does not move."""
        self._skew_ms += milliseconds

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at each timer on the way."""
        end_s = self._elapsed_s + seconds
        while True:
            due = [due_s for timers in self.timers if (due_s := timers.next_due_s()) is not None]
            if not due or min(due) > end_s:
                break
            self._elapsed_s = max(self._elapsed_s, min(due))
            for timers in self.timers:
                timers.run_due()
        self._elapsed_s = end_s
