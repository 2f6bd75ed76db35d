"""Long work on the loop, done a few milliseconds at a time, with requests served in between.

Works are generators that yield where they may be parted; they are done one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ariane.clock import Clock
from ariane.store.background import Post

SLICE_S: Final = 0.002


class Slices:
    """Does works in slices, or at once where there is no loop to be held up."""

    def __init__(self, clock: Clock, post: Post | None) -> None:
        self._clock = clock
        self._post = post
        self._works: deque[Iterator[None]] = deque()
        self._is_at_work = False

    def begin(self, work: Iterator[None]) -> None:
        """Start a work, behind those that are under way."""
        self._works.append(work)
        if not self._is_at_work:
            self._is_at_work = True
            self._go_on()

    def finish(self) -> None:
        """Bring everything to its end now."""
        while self._works:
            for _ in self._works[0]:
                pass
            self._works.popleft()

    def _go_on(self) -> None:
        end_s = self._clock.monotonic_s() + SLICE_S
        while self._works:
            for _ in self._works[0]:
                if self._post is not None and self._clock.monotonic_s() >= end_s:
                    self._post(self._go_on)
                    return
            self._works.popleft()
        self._is_at_work = False
