"""How far the log has come, and what may be done with that: the rule of each mode, in one place.

A mark is a log offset that only grows; every record below it has been through what its name says.
A mode is three answers: how far the end of a round brings a record by itself, what consumers may
read, and what an answer waits for. Nothing else asks which mode it is. Pure: it is told of marks
moving, and says what follows.

Invariant: placed >= stored >= flushed; what was sent to others (replicated, committed) was stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

from ariane.config import StoreConfig


class Mark(IntEnum):
    """What a record has been through, in the order in which the marks follow each other."""

    PLACED = 0  # it has its place in the log, with queue and index entries for all who ask
    STORED = 1  # it is in the log's file
    FLUSHED = 2  # it is on the platter
    REPLICATED = 3  # enough others have it
    COMMITTED = 4  # it can never be taken back


@dataclass(frozen=True)
class Policy:
    """What a mode goes by."""

    round: Mark  # reached at the end of a round, at the latest
    shown: tuple[Mark, ...]  # consumers may read what all of these have passed
    safe: tuple[Mark, ...]  # an answer may leave when all of these have passed its record

    @cached_property
    def parks(self) -> bool:
        """Whether an answer waits for more than the end of its round."""
        return max(self.safe) > self.round

    @cached_property
    def shows_at_once(self) -> bool:
        """Whether consumers may read whatever the end of a round has reached."""
        return max(self.shown) <= self.round

    @cached_property
    def flushes_at_once(self) -> bool:
        """Whether somebody waits for the disk."""
        return Mark.FLUSHED in self.shown or Mark.FLUSHED in self.safe


ASYNC_FLUSH: Final = Policy(Mark.STORED, shown=(Mark.STORED,), safe=(Mark.STORED,))
SYNC_FLUSH: Final = Policy(Mark.STORED, shown=(Mark.FLUSHED,), safe=(Mark.FLUSHED,))
POOLED: Final = Policy(Mark.PLACED, shown=(Mark.STORED,), safe=(Mark.PLACED,))


def policy_of(config: StoreConfig) -> Policy:
    """The mode that is set; who waits for each flush anyway gains nothing from a pool."""
    if config.is_sync_flush:
        return SYNC_FLUSH
    return POOLED if config.transient_pool_enabled else ASYNC_FLUSH


class Watermarks:
    """The marks of one log, and what its mode makes of them."""

    def __init__(self, policy: Policy, end: int) -> None:
        self.policy = policy
        self._at = [end] * len(Mark)

    @property
    def placed(self) -> int:
        """As far as was told of; the log itself may have gone on within the round."""
        return self._at[Mark.PLACED]

    @property
    def stored(self) -> int:
        """How far the log is in its files."""
        return self._at[Mark.STORED]

    @property
    def flushed(self) -> int:
        """How far the log is on the platter."""
        return self._at[Mark.FLUSHED]

    @property
    def shown(self) -> int:
        """How far consumers may read."""
        return self.reached(self.policy.shown)

    @property
    def safe(self) -> int:
        """How far answers may be given."""
        return self.reached(self.policy.safe)

    def reached(self, marks: Iterable[Mark]) -> int:
        """How far all of these have come."""
        return min([self._at[mark] for mark in marks])

    def round_ended(self, end: int) -> None:
        """Everything that was placed is where the end of a round brings it."""
        at, count = self._at, self.policy.round + 1
        assert end >= at[0], f"the log fell from {at[0]} to {end}"
        at[:count] = [end] * count

    def move(self, mark: Mark, end: int) -> None:
        """Every record below `end` has been through this now."""
        assert end >= self._at[mark], f"{mark.name} fell from {self._at[mark]} to {end}"
        limit = self._at[min(mark - 1, Mark.STORED)] if mark else end
        assert end <= limit, f"{mark.name} at {end} passed what it follows, at {limit}"
        self._at[mark] = end

    def late(self, marks: Iterable[Mark], end: int) -> Mark:
        """Which of these a record that ends there waits for still: the last of them, if several."""
        return max(mark for mark in marks if self._at[mark] < end)
