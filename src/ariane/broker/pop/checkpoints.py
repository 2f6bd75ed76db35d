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
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ariane.kernel.pop import Checkpoint

EARLY_MAX: Final = 100_000
EARLY_KEPT_MS: Final = 5 * 60_000


class Key(NamedTuple):
    """What a consumer says to name a checkpoint."""

    topic: str
    group: str
    queue_id: int
    first: int  # the queue offset the pop began at
    popped_ms: int


class EarlyAcks:
    """Acknowledgements of a checkpoint that is not here yet: another broker's timer may hold it."""

    __slots__ = ("due_ms", "is_closed", "journal_offset", "key", "offsets", "revive_queue_id")

    def __init__(self, key: Key, revive_queue_id: int, journal_offset: int, due_ms: int) -> None:
        self.key = key
        self.revive_queue_id = revive_queue_id
        self.journal_offset = journal_offset  # of the first note
        self.due_ms = due_ms
        self.offsets: set[int] = set()
        self.is_closed = False

    @property
    def popped_ms(self) -> int:
        """When the messages were popped."""
        return self.key.popped_ms


Noted = Checkpoint | EarlyAcks  # what a note in the journal is needed for


class Checkpoints:
    """All open checkpoints, by key and in the order of their notes."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, int, int, int], Checkpoint] = {}  # the lane settles too
        self._early: dict[tuple[str, str, int, int, int], EarlyAcks] = {}
        self._notes: dict[int, deque[tuple[int, Noted]]] = {}  # revive queue -> (where, for what)

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(list(self.by_key.values()))

    def __contains__(self, key: object) -> bool:
        return key in self.by_key

    def get(self, key: Key) -> Checkpoint | None:
        """The open checkpoint of a key."""
        return self.by_key.get(key)

    def add(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint whose note is in the journal; a newer note replaces an older one."""
        key = checkpoint.key
        known = self.by_key.get(key)
        if known is not None:
            checkpoint.settled |= known.settled
            known.close()
        early = self._early.pop(key, None)
        if early is not None:
            early.is_closed = True
            for queue_offset in early.offsets:
                checkpoint.settled |= checkpoint.bit_of(queue_offset)
        if checkpoint.is_closed:
            self.by_key.pop(key, None)
            return
        self.by_key[key] = checkpoint
        self._note(checkpoint.revive_queue_id, checkpoint)

    def settle(self, checkpoint: Checkpoint, bits: int) -> None:
        """These messages of an open checkpoint are done with."""
        checkpoint.settled |= bits
        if checkpoint.is_closed:
            self.by_key.pop(checkpoint.key, None)

    def is_settled_early(self, key: Key, offsets: Iterable[int]) -> bool:
        """Whether acknowledgements are remembered already."""
        early = self._early.get(key)
        return early is not None and early.offsets.issuperset(offsets)

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
            early = EarlyAcks(key, revive_queue_id, journal_offset, due_ms)
            self._early[key] = early
            self._note(revive_queue_id, early)
        early.offsets.update(offsets)

    def forget_early(self, now_ms: int) -> None:
        """Drop the acknowledgements whose checkpoint will not come any more."""
        late_ms = now_ms - EARLY_KEPT_MS
        for key in [key for key, early in self._early.items() if early.due_ms <= late_ms]:
            self._early.pop(key).is_closed = True

    def moved(self, noted: Noted, journal_offset: int) -> None:
        """What is still needed was noted anew; its old note is not needed any more."""
        noted.journal_offset = journal_offset
        self._note(noted.revive_queue_id, noted)

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
        for key, checkpoint in self.by_key.items():
            topic, owner, queue_id, _, _ = key
            if group is None or owner == group:
                offsets = found.setdefault((topic, owner, queue_id), [])
                offsets += checkpoint.open_offsets()
        return found

    def _note(self, revive_queue_id: int, noted: Noted) -> None:
        self._notes.setdefault(revive_queue_id, deque()).append((noted.journal_offset, noted))
