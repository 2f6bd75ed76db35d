"""Which half messages are still open, and what a round of checking does about them. Pure.

Theory of operation. Half messages lie in one queue in the order they were sent. A transaction ends
by a decision of its producer (commit or rollback), or is discarded when nobody decides. A round
walks the open half messages from the oldest on. One that is old enough is copied to the end of the
queue with its count of checks raised, and its producer is asked about the copy; one that was asked
about often enough, or is too old, is discarded; the first that is too young ends the round, for
those behind it are younger still. A message may ask for more time of its own. The walk looks past
such a one, and copies it to the end (unasked) only when something behind it is due.

`progress` is the queue offset below which nothing is open; it is saved, so that a restart begins
there. A note that transactions ended ("operation") is needed until progress has passed the half
messages it names; `operation_progress` follows from that.

The ledger keeps one byte for each half message from a little below progress on. A transaction
whose half message was copied is known by its first half's offset: a decision about any of its
copies is about the newest.

Invariants: everything below `progress` is not open; of the copies of one transaction at most the
newest is open; a fate other than OPEN and MOVED never changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ariane.errors import MessageTooLarge

HISTORY: Final = 1 << 18  # fates kept below progress, so that a repeated decision is recognised
HISTORY_SLACK: Final = 1 << 16  # dropped at once, so that dropping is rare
PASSED_MAX: Final = 1_000  # immune halves that a round looks past before it copies them
BEHIND_MAX: Final = 100_000  # half messages that one immune half may hold up


class Fate(IntEnum):
    """What has become of a half message."""

    OPEN = 0
    MOVED = 1  # a later copy stands for it
    COMMITTED = 2
    ROLLED_BACK = 3
    DISCARDED = 4
    ENDED = 5  # by a decision that is not known any more
    GONE = 6  # its record is no longer there
    PAST = 7  # ended or moved so long ago that nothing is kept about it


class Half(NamedTuple):
    """What the rules need to know of a half message."""

    check_times: int
    began_ms: int | None  # None when no clock can tell
    immunity_ms: int | None  # the time it asks for before it is first checked
    may_be_checked: bool = True  # it says what topic it is meant for


class Rules(NamedTuple):
    """The settings a round goes by."""

    timeout_ms: int
    check_max: int
    age_max_ms: int


class Verdict(IntEnum):
    """What is due for an open half message."""

    CHECK = 1
    DISCARD = 2
    IMMUNE = 3  # it asked for more time: those behind it may be due
    YOUNG = 4  # so are those behind it
    LOST = 5  # its record is gone


class Actions(Protocol):
    """What a round does to the world; each may raise, and then has done nothing."""

    def read(self, queue_offset: int) -> Half | None:
        """The half message at an offset, or None when its record is gone."""
        ...

    def copy(self, queue_offset: int) -> int:
        """Place it again at the end, as it is; the copy's offset."""
        ...

    def check(self, queue_offset: int) -> int:
        """Place it again at the end, count one more check, ask its producer; the copy's offset."""
        ...

    def discard(self, queue_offset: int) -> None:
        """Put it where an operator finds it, and note that it ended."""
        ...

    def look_past(self, queue_offset: int, error: Exception) -> None:
        """Hear of one that cannot be copied; it stays where it is."""
        ...


def verdict_on(half: Half, now_ms: int, rules: Rules) -> Verdict:
    """What is due for an open half message at a moment."""
    age_ms = -1 if half.began_ms is None else now_ms - half.began_ms
    if not half.may_be_checked or half.check_times >= rules.check_max or age_ms > rules.age_max_ms:
        return Verdict.DISCARD
    if half.immunity_ms is not None:
        return Verdict.IMMUNE if 0 <= age_ms <= half.immunity_ms else Verdict.CHECK
    # A negative age: a clock went back, and nobody knows how old it is.
    return Verdict.YOUNG if 0 <= age_ms <= rules.timeout_ms else Verdict.CHECK


class Ledger:
    """The fate of every half message that may still matter."""

    def __init__(self, *, progress: int = 0, operation_progress: int = 0) -> None:
        self.progress = progress
        self.operation_progress = operation_progress
        self._base = progress  # the offset of the first byte
        self._fates = bytearray()  # those beyond its end are open
        self._copies: dict[int, int] = {}  # first offset -> the open copy of its transaction
        self._firsts: dict[int, int] = {}  # a copy's offset -> first offset
        self._operations: deque[tuple[int, int]] = deque()  # (its offset, highest half it names)

    @property
    def copied(self) -> dict[int, int]:
        """Open transactions that stand by a copy: first offset -> offset of the copy."""
        return dict(self._copies)

    def fate_of(self, queue_offset: int) -> Fate:
        """What has become of a half message."""
        if queue_offset < self._base:
            return Fate.PAST
        place = queue_offset - self._base
        return Fate(self._fates[place]) if place < len(self._fates) else Fate.OPEN

    def first_of(self, queue_offset: int) -> int:
        """The first half of a half message's transaction; itself unless it is a known copy."""
        return self._firsts.get(queue_offset, queue_offset)

    def open_offset(self, queue_offset: int, first_offset: int | None = None) -> int | None:
        """Where the transaction of a half message stands open; None when it has ended.

        What a record says of its transaction's first half counts only for one long past.
        """
        fate = self.fate_of(queue_offset)
        if fate is Fate.OPEN:
            return queue_offset
        if fate is Fate.MOVED or first_offset is None:
            first_offset = self.first_of(queue_offset)
        return self._copies.get(first_offset) if fate in (Fate.MOVED, Fate.PAST) else None

    def end(self, queue_offset: int, fate: Fate) -> None:
        """End the transaction that stands open at an offset."""
        assert self.fate_of(queue_offset) is Fate.OPEN
        assert fate not in (Fate.OPEN, Fate.MOVED, Fate.PAST)
        first_offset = self._firsts.pop(queue_offset, queue_offset)
        self._copies.pop(first_offset, None)
        self._set(queue_offset, fate)
        self._set(first_offset, fate)  # it may be asked about as well

    def move(self, queue_offset: int, to: int) -> None:
        """A copy stands for the half message from now on."""
        assert self.fate_of(queue_offset) is Fate.OPEN
        assert to > queue_offset
        first_offset = self.first_of(queue_offset)
        self._set(queue_offset, Fate.MOVED)
        self._copies[first_offset] = to
        self._firsts[to] = first_offset

    def found(self, copy_offset: int, first_offset: int) -> None:
        """Take in a copy that a restart found; to be called in the order of the queue."""
        assert first_offset < copy_offset
        self._set(self._copies.get(first_offset, first_offset), Fate.MOVED)
        self._copies[first_offset] = copy_offset
        self._firsts[copy_offset] = first_offset

    def noted(self, operation_offset: int, half_offsets: Iterable[int]) -> None:
        """An operation that names these half messages lies at an offset of its queue."""
        self._operations.append((operation_offset, max(half_offsets, default=-1)))
        self._forget_operations()

    def advance(self, end: int) -> None:
        """Let progress follow what has ended, up to `end`."""
        self.progress = self.next_open(self.progress, end)
        self._forget_operations()
        excess = self.progress - HISTORY - self._base
        if excess > HISTORY_SLACK:
            del self._fates[:excess]
            self._base += excess
            self._firsts = {at: first for at, first in self._firsts.items() if at >= self._base}

    def next_open(self, first: int, end: int) -> int:
        """The first open half message in [first, end), or `end`."""
        place = self._fates.find(Fate.OPEN, max(first - self._base, 0))
        found = self._base + (len(self._fates) if place < 0 else place)
        return min(max(found, first), max(end, first))

    def _set(self, queue_offset: int, fate: Fate) -> None:
        place = queue_offset - self._base
        if place < 0:
            return
        if place >= len(self._fates):
            self._fates.extend(bytes(place + 1 - len(self._fates)))
        self._fates[place] = fate

    def _forget_operations(self) -> None:
        while self._operations and self._operations[0][1] < self.progress:
            self.operation_progress = self._operations.popleft()[0] + 1


def check_round(
    ledger: Ledger, actions: Actions, rules: Rules, *, now_ms: int, end: int
) -> Iterator[None]:
    """Walk the open half messages in [progress, end), pausing after each for others to run.

    Whoever runs between two steps may end transactions.
    """
    passed: list[int] = []
    at = ledger.next_open(ledger.progress, end)
    while at < end:
        half = actions.read(at)
        verdict = Verdict.LOST if half is None else verdict_on(half, now_ms, rules)
        if verdict is Verdict.YOUNG:
            break
        if verdict is Verdict.IMMUNE:
            passed.append(at)
        if verdict is not Verdict.IMMUNE or _is_too_much(passed, end):
            yield from _copy_open(ledger, actions, passed)
        if ledger.fate_of(at) is Fate.OPEN:  # it may have ended while others were copied
            try:
                _carry_out(verdict, at, ledger, actions)
            except MessageTooLarge as error:
                actions.look_past(at, error)
        ledger.advance(end)
        yield
        at = ledger.next_open(at + 1, end)
    ledger.advance(end)


def _carry_out(verdict: Verdict, at: int, ledger: Ledger, actions: Actions) -> None:
    if verdict is Verdict.CHECK:
        ledger.move(at, actions.check(at))
    elif verdict is Verdict.DISCARD:
        actions.discard(at)
        ledger.end(at, Fate.DISCARDED)
    elif verdict is Verdict.LOST:
        ledger.end(at, Fate.GONE)


def _copy_open(ledger: Ledger, actions: Actions, passed: list[int]) -> Iterator[None]:
    """Move what was looked past to the end of the queue, so that progress can go on."""
    for at in passed:
        if ledger.fate_of(at) is Fate.OPEN:
            try:
                ledger.move(at, actions.copy(at))
            except MessageTooLarge as error:
                actions.look_past(at, error)
            yield
    passed.clear()


def _is_too_much(passed: list[int], end: int) -> bool:
    return len(passed) > PASSED_MAX or end - passed[0] > BEHIND_MAX
