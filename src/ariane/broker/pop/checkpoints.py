"""Checkpoints: what was popped and is not settled yet. Pure: told what happened, and when.

A pop lends messages of one queue to a consumer and leaves a checkpoint. Each message of it is
settled once: acknowledged, lent anew under another checkpoint, or given back when its time is up.
A checkpoint whose messages are all settled is forgotten. Every checkpoint and every settlement is
noted in a journal (the revive topic) before it counts, and a restart reads the journal again from
the oldest note that is still needed.

Invariant: a message that was popped is in exactly one open checkpoint, or it is settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

MESSAGES_MAX: Final = 64  # of one checkpoint; a pop gives 32 at most
EARLY_MAX: Final = 100_000
EARLY_KEPT_MS: Final = 5 * 60_000


class Key(NamedTuple):
    """What a consumer says to name a checkpoint."""

    topic: str
    group: str
    queue_id: int
    first: int  # the queue offset the pop began at
    popped_ms: int


class Checkpoint:
    """Messages of one queue popped together; bit N of `settled` is for the one at `gaps[N]`."""

    __slots__ = (
        "attempts",
        "gaps",
        "invisible_ms",
        "journal_offset",
        "key",
        "log_offset",
        "revive_queue_id",
        "settled",
    )

    def __init__(
        self,
        key: Key,
        invisible_ms: int,
        gaps: Sequence[int],
        *,
        settled: int = 0,
        attempts: int = 0,
        revive_queue_id: int = 0,
        journal_offset: int = -1,
        log_offset: int = -1,
    ) -> None:
        self.key = key
        self.invisible_ms = invisible_ms
        self.gaps = gaps  # from `key.first` to each message
        self.settled = settled
        self.attempts = attempts  # how often giving back has failed
        self.revive_queue_id = revive_queue_id
        self.journal_offset = journal_offset  # where in that queue its note is
        self.log_offset = log_offset  # of its note: everything popped lies before

    @property
    def due_ms(self) -> int:
        """When what is not settled becomes visible again."""
        return self.key.popped_ms + self.invisible_ms

    @property
    def is_closed(self) -> bool:
        """Whether every message is settled."""
        return self.settled == (1 << len(self.gaps)) - 1

    def bit_of(self, queue_offset: int) -> int:
        """The bit of a message, or 0 when the checkpoint does not have it."""
        gap = queue_offset - self.key.first
        gaps = self.gaps
        if 0 <= gap < len(gaps) and gaps[gap] == gap:  # nothing was left out: nearly always
            return 1 << gap
        return 1 << gaps.index(gap) if gap in gaps else 0

    def open_offsets(self) -> list[int]:
        """The queue offsets of what is not settled."""
        first, settled = self.key.first, self.settled
        return [first + gap for n, gap in enumerate(self.gaps) if not settled >> n & 1]

    def __repr__(self) -> str:
        return f"Checkpoint({self.key}, due_ms={self.due_ms}, open={self.open_offsets()})"


class EarlyAcks:
    """Acknowledgements of a checkpoint that is not here yet: another broker's timer may hold it."""

    __slots__ = ("is_closed", "journal_offset", "offsets", "revive_queue_id", "until_ms")

    def __init__(self, revive_queue_id: int, journal_offset: int, until_ms: int) -> None:
        self.revive_queue_id = revive_queue_id
        self.journal_offset = journal_offset  # of the first note
        self.until_ms = until_ms
        self.offsets: set[int] = set()
        self.is_closed = False


class Noted(Protocol):
    """What a note in the journal is needed for."""

    @property
    def is_closed(self) -> bool:
        """Whether the note has become useless."""
        ...

    @property
    def journal_offset(self) -> int:
        """Where the note is; another one once it was written anew."""
        ...


class Checkpoints:
    """All open checkpoints, by key and in the order of their notes."""

    def __init__(self) -> None:
        self._open: dict[Key, Checkpoint] = {}
        self._early: dict[Key, EarlyAcks] = {}
        self._notes: dict[int, deque[tuple[int, Noted]]] = {}  # revive queue -> (where, for what)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(list(self._open.values()))

    def __contains__(self, key: object) -> bool:
        return key in self._open

    def get(self, key: Key) -> Checkpoint | None:
        """The open checkpoint of a key."""
        return self._open.get(key)

    def add(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint whose note is in the journal; a newer note replaces an older one."""
        key = checkpoint.key
        known = self._open.get(key)
        if known is not None:
            checkpoint.settled |= known.settled
            known.settled = (1 << len(known.gaps)) - 1
        early = self._early.pop(key, None)
        if early is not None:
            early.is_closed = True
            for queue_offset in early.offsets:
                checkpoint.settled |= checkpoint.bit_of(queue_offset)
        if checkpoint.is_closed:
            self._open.pop(key, None)
            return
        self._open[key] = checkpoint
        self._note(checkpoint.revive_queue_id, checkpoint)

    def settle(self, checkpoint: Checkpoint, bits: int) -> None:
        """These messages of an open checkpoint are done with."""
        checkpoint.settled |= bits
        if checkpoint.is_closed:
            self._open.pop(checkpoint.key, None)

    def settle_early(
        self,
        key: Key,
        offsets: Iterable[int],
        revive_queue_id: int,
        journal_offset: int,
        due_ms: int,
    ) -> None:
        """Remember acknowledgements, noted in the journal, for a checkpoint that may yet come."""
        early = self._early.get(key)
        if early is None:
            if len(self._early) >= EARLY_MAX:
                return
            early = EarlyAcks(revive_queue_id, journal_offset, due_ms + EARLY_KEPT_MS)
            self._early[key] = early
            self._note(revive_queue_id, early)
        early.offsets.update(offsets)

    def forget_early(self, now_ms: int) -> None:
        """Drop the acknowledgements whose checkpoint will not come any more."""
        for key in [key for key, early in self._early.items() if early.until_ms <= now_ms]:
            self._early.pop(key).is_closed = True

    def moved(self, checkpoint: Checkpoint, journal_offset: int) -> None:
        """An open checkpoint was noted anew; its old note is not needed any more."""
        checkpoint.journal_offset = journal_offset
        self._note(checkpoint.revive_queue_id, checkpoint)

    def oldest(self, revive_queue_id: int) -> Noted | None:
        """What has the oldest note still needed in a revive queue."""
        notes = self._notes.get(revive_queue_id)
        while notes:
            journal_offset, noted = notes[0]
            if not noted.is_closed and noted.journal_offset == journal_offset:
                return noted
            notes.popleft()
        return None

    def count_needed(self, revive_queue_id: int) -> int:
        """How many notes of a revive queue are still needed; the others are forgotten."""
        notes = self._notes.get(revive_queue_id, deque())
        needed = [
            note for note in notes if not note[1].is_closed and note[1].journal_offset == note[0]
        ]
        self._notes[revive_queue_id] = deque(needed)
        return len(needed)

    def lent(self, group: str | None = None) -> dict[tuple[str, str, int], list[int]]:
        """What is popped and not settled by (topic, group, queue); of all groups, or of one."""
        found: dict[tuple[str, str, int], list[int]] = {}
        for key, checkpoint in self._open.items():
            topic, owner, queue_id, _, _ = key
            if group is None or owner == group:
                offsets = found.setdefault((topic, owner, queue_id), [])
                offsets += checkpoint.open_offsets()
        return found

    def _note(self, revive_queue_id: int, noted: Noted) -> None:
        self._notes.setdefault(revive_queue_id, deque()).append((noted.journal_offset, noted))
