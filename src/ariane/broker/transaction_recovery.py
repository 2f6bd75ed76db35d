"""What a start learns of half messages: which are open, by all that is in the log.

Progress was saved some seconds ago at best. From there on, a copy tells that the half message it
was made from is done with; a note in the operation queue tells which transactions ended; and since
notes are gathered before they are written, a kill takes the last of them, and the committed (or
discarded) messages themselves are looked for behind the last notes. What remains is open.

Copies made by Apache's broker do not say what they are copies of. They have been checked once
more than their original and share everything else with it. It also copies what has ended until the
note of that is written, so the end may lie in front of the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ariane.broker.half_messages import (
    CHECK_TIMES_KEY,
    FIRST_OFFSET_KEY,
    Identity,
    check_times_of,
    ended_by,
    first_offset_of,
    identity_of,
)
from ariane.broker.transaction_checks import Fate, Ledger
from ariane.errors import ProtocolError
from ariane.kernel.queue import Queue
from ariane.kernel.reading import commits_between
from ariane.protocol.message import StoredMessage, decode_records
from ariane.protocol.properties import UNIQUE_KEY
from ariane.store.store import Store
from ariane.topics import DISCARD_TOPIC, HALF_TOPIC, OPERATION_TOPIC

NOTES_LATE_MS: Final = 10_000  # how long after its transaction a note may have been written
COPY_MARKS: Final = (CHECK_TIMES_KEY.encode(), FIRST_OFFSET_KEY.encode())


class Recovered(NamedTuple):
    """What was found."""

    ledger: Ledger
    unnoted: list[int]  # half offsets whose transactions ended without a note of it
    adopted: dict[Identity, int]  # copies of unknown origin, by what they share with it


def recover(store: Store, progress: int | None, operation_progress: int | None) -> Recovered:
    """The ledger as it was before the last stop or kill, from the progress saved."""
    return _Recovery(store, progress, operation_progress).run()


def open_offset_of(
    half: StoredMessage, ledger: Ledger, adopted: Mapping[Identity, int]
) -> int | None:
    """Where the transaction of a half message stands open; None when it has ended."""
    at = half.queue_offset
    found = ledger.open_offset(at, first_offset_of(half))
    if found is None and adopted and ledger.fate_of(at) is Fate.PAST:
        copy_offset = adopted.get(identity_of(half))
        found = None if copy_offset is None else ledger.open_offset(copy_offset)
    return found


def record_of(store: Store, queue: Queue, queue_offset: int) -> StoredMessage | None:
    """The message at a queue offset, if its record is there, whether or not consumers see it."""
    entry = queue.entry(queue_offset)
    record = None if entry is None else store.log.record(entry[0], store.written)
    if record is None:
        return None
    try:
        (stored,) = decode_records(record)
    except ProtocolError:
        return None
    return stored if stored.queue_offset == queue_offset else None


class _Recovery:
    def __init__(self, store: Store, progress: int | None, operation_progress: int | None) -> None:
        self.store = store
        self.halves = store.queue(HALF_TOPIC, 0)
        self.operations = store.queue(OPERATION_TOPIC, 0)
        self.ledger = Ledger(
            progress=_within(progress, self.halves),
            operation_progress=_within(operation_progress, self.operations),
        )
        self.unnoted: list[int] = []
        self.adopted: dict[Identity, int] = {}
        self.has_foreign_copies = False

    def run(self) -> Recovered:
        self._find_copies()
        self._read_notes()
        self._find_ends_without_note()
        self.ledger.advance(self.halves.end)
        return Recovered(self.ledger, self.unnoted, self.adopted)

    def _find_copies(self) -> None:
        """Let each copy stand for what it was made from."""
        copies = list(self._copies())
        orphans = {identity_of(copy) for copy in copies if first_offset_of(copy) is None}
        self.has_foreign_copies = bool(orphans)
        firsts = self._firsts_of(orphans)
        for copy in copies:
            at, identity = copy.queue_offset, identity_of(copy)
            first = firsts.get(identity) if identity in orphans else self._named_by(copy)
            if first is not None and first < at:
                self.ledger.found(at, first)
            else:
                self.adopted[identity] = at

    def _copies(self) -> Iterator[StoredMessage]:
        for queue_offset in range(self.ledger.progress, self.halves.end):
            entry = self.halves.entry(queue_offset)
            record = None if entry is None else self.store.log.record(entry[0], self.store.written)
            if record is None or not any(mark in record for mark in COPY_MARKS):
                continue  # nearly all of them, without a closer look
            half = record_of(self.store, self.halves, queue_offset)
            if half and (check_times_of(half) or first_offset_of(half) is not None):
                yield half

    def _firsts_of(self, identities: set[Identity]) -> dict[Identity, int]:
        """The oldest half message with each identity, from progress on."""
        firsts: dict[Identity, int] = {}
        for queue_offset in range(self.ledger.progress, self.halves.end) if identities else ():
            half = record_of(self.store, self.halves, queue_offset)
            if half is not None and (identity := identity_of(half)) in identities:
                firsts.setdefault(identity, queue_offset)
        return firsts

    def _named_by(self, copy: StoredMessage) -> int | None:
        """The first half a copy names, unless that is the half of another transaction."""
        first = first_offset_of(copy)
        if first is None or first < self.halves.min_offset:
            return first  # its record is gone by now
        half = record_of(self.store, self.halves, first)
        return first if half is not None and identity_of(half) == identity_of(copy) else None

    def _read_notes(self) -> None:
        """End what the operation queue says has ended."""
        for operation_offset in range(self.ledger.operation_progress, self.operations.end):
            note = record_of(self.store, self.operations, operation_offset)
            half_offsets = [] if note is None else ended_by(note)
            for half_offset in half_offsets:
                entry = self.halves.entry(half_offset)
                if note is None or entry is None or entry[0] >= note.log_offset:
                    continue  # it cannot have known of this one
                if (at := self._open_offset(half_offset)) is not None:
                    self.ledger.end(at, Fate.ENDED)
            self.ledger.noted(operation_offset, half_offsets)

    def _open_offset(self, half_offset: int) -> int | None:
        """Where a transaction that a note names stands open, if it does."""
        half = record_of(self.store, self.halves, half_offset) if self.adopted else None
        if half is None:
            return self.ledger.open_offset(half_offset)
        return open_offset_of(half, self.ledger, self.adopted)

    def _find_ends_without_note(self) -> None:
        """End what was committed or discarded just before a kill."""
        end = self.halves.end
        first_open = self.ledger.next_open(self.ledger.progress, end)
        entry = self.halves.entry(first_open) if first_open < end else None
        if entry is None:
            return
        first = entry[0]
        if self.has_foreign_copies:
            first = min(first, self._old_segment_log_offset())
        scan_first = max(first, self._old_note_log_offset())
        for log_offset, half_log_offset in commits_between(
            self.store.log, scan_first, self.store.written
        ):
            at = self._open_half_at(half_log_offset, log_offset)
            if at is not None:
                topic = self._message_at(log_offset).topic
                fate = Fate.DISCARDED if topic == DISCARD_TOPIC else Fate.COMMITTED
                self.ledger.end(at, fate)
                self.unnoted.append(at)

    def _open_half_at(self, half_log_offset: int, end_log_offset: int) -> int | None:
        """Where the transaction that a record claims to end stands open, if it does."""
        queue_offset = self.halves.first_from(half_log_offset)
        entry = self.halves.entry(queue_offset) if queue_offset < self.halves.end else None
        if entry is None or entry[0] != half_log_offset or half_log_offset >= end_log_offset:
            return None
        half, ending = self._message_at(half_log_offset), self._message_at(end_log_offset)
        if half.properties.get(UNIQUE_KEY) != ending.properties.get(UNIQUE_KEY):
            return None
        return open_offset_of(half, self.ledger, self.adopted)

    def _message_at(self, log_offset: int) -> StoredMessage:
        record = self.store.log.record(log_offset, self.store.written)
        assert record is not None
        return decode_records(record)[0]

    def _old_segment_log_offset(self) -> int:
        """Where the newest segment begins that is too old to have missed a note before it."""
        log = self.store.log
        old_ms = log.last_store_ms - NOTES_LATE_MS
        for base in range(log.end_position - log.file_bytes, log.first_position, -log.file_bytes):
            if 0 < log.store_ms_of(base) <= old_ms:
                return base
        return log.first_position

    def _old_note_log_offset(self) -> int:
        """Where the newest note lies that is too old to have missed an end before it."""
        log = self.store.log
        for operation_offset in range(self.operations.end - 1, self.operations.min_offset - 1, -1):
            entry = self.operations.entry(operation_offset)
            if entry is None:
                break
            if log.store_ms_of(entry[0]) <= log.last_store_ms - NOTES_LATE_MS:
                return entry[0]
        return 0


def _within(queue_offset: int | None, queue: Queue) -> int:
    """Saved progress, brought to where the queue really is."""
    if queue_offset is None:
        return queue.min_offset
    return max(queue.min_offset, min(queue_offset, queue.end))
