"""What time it is for delayed messages, when the wall clock cannot be trusted to go forward.

A waiting message says in its queue entry when it is due: its store time and its delay, by the wall
clock. While that clock runs evenly, or jumps ahead, it is simply believed. When it is set back,
what already waits would come late by as much; so `DelayClock` goes on from where it was, ahead of
the wall clock by a correction. Messages that arrive from then on are stamped with a time that
stands still (the log never stamps backwards) and then lags behind the corrected one, so their
entries say nothing of use. `Arrivals` remembers for these when they came, coarsely, by how the
queue grew.

Once the wall clock has passed the moment it was set back from, and everything stamped before is
delivered, all is well again and the correction goes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

STEP_MS: Final = 50  # a clock that differs by more from what was expected was set
GRAINS: Final = 100  # arrivals are remembered to this fraction of a level's delay


class DelayClock:
    """The wall clock, made to go on evenly when it is set back."""

    def __init__(
        self, wall_ms: int, monotonic_s: float, *, newest_ms: int, longest_ms: int
    ) -> None:
        self.correction_ms = max(0, newest_ms - wall_ms)  # set back while the broker was down
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        self._longest_ms = longest_ms
        self._passed_ms = newest_ms  # stamps up to here are from before the clock was set back

    def tick(self, wall_ms: int, monotonic_s: float) -> int:
        """What time it is for delayed messages; to be asked often, as it learns by comparing."""
        elapsed_ms = round((monotonic_s - self._monotonic_s) * 1000)
        gained_ms = wall_ms - self._wall_ms - elapsed_ms
        if abs(gained_ms) > STEP_MS:
            if gained_ms < 0:
                self._passed_ms = max(self._passed_ms, wall_ms - gained_ms)
            self.correction_ms = max(0, self.correction_ms - gained_ms)
        if self.correction_ms and wall_ms > self._passed_ms + self._longest_ms:
            self.correction_ms = 0
        self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
        return wall_ms + self.correction_ms


class Arrivals:
    """When the messages of one queue came, from `first` on, while their stamps do not tell."""

    def __init__(self, first: int, delay_ms: int) -> None:
        self.first = first  # what is before was stamped by a clock that was right
        self._delay_ms = delay_ms
        self._grain_ms = max(1, delay_ms // GRAINS)
        self._seen: deque[tuple[int, int]] = deque()  # (end of the queue, when)
        self._due_end = first

    def note(self, end: int, now_ms: int) -> None:
        """The queue ends at `end` now; some of it may be new."""
        last_end, last_ms = self._seen[-1] if self._seen else (self._due_end, -1)
        if end == last_end:
            return
        if last_ms // self._grain_ms == now_ms // self._grain_ms:
            self._seen.pop()  # late by a grain is better than early
        self._seen.append((end, now_ms))

    def due_end(self, now_ms: int) -> int:
        """The queue offset before which everything has waited long enough."""
        while self._seen and self._seen[0][1] + self._delay_ms <= now_ms:
            self._due_end = self._seen.popleft()[0]
        return self._due_end
