"""The journal of batches: notes in the staging topic's second queue, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ariane.broker.staging.chunks import JOURNAL_QUEUE
from ariane.broker.staging.ledger import Ledger
from ariane.broker.staging.notes import Note, decode_note, encode_note
from ariane.clock import Clock
from ariane.errors import ProtocolError
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.messages import NewMessage, Placed
from ariane.store.store import Store
from ariane.topics import STAGING_TOPIC

PROPERTIES: Final = b""


class Journal:
    """Every note that is written here is taken by the ledger at once."""

    def __init__(self, store: Store, clock: Clock, host: tuple[str, int], ledger: Ledger) -> None:
        self.ledger = ledger
        self._store = store
        self._clock = clock
        self._host = host

    @property
    def end(self) -> int:
        """The offset the next note gets."""
        return self._store.queue(STAGING_TOPIC, JOURNAL_QUEUE).end

    def write(self, note: Note) -> Placed:
        """Append a note; or a StoreError, and nothing was written."""
        placed = self._store.append(self.message_of(note))
        self.written(note, placed)
        return placed

    def written(self, note: Note, placed: Placed) -> None:
        """A note has been appended by somebody else, with what belongs behind it."""
        self.ledger.take(note, placed.queue_offset, placed.store_ms, placed.end_offset)

    def message_of(self, note: Note) -> NewMessage:
        """A note as it is stored."""
        return NewMessage(
            topic=STAGING_TOPIC,
            queue_id=JOURNAL_QUEUE,
            body=encode_note(note),
            properties=PROPERTIES,
            born_host=self._host,
            born_at_ms=self._clock.wall_ms(),
        )

    def read(self, first: int) -> int:
        """Let the ledger take every note from an offset on; how many there were."""
        count = 0
        for journal_offset in range(max(first, self._first), self.end):
            for note, stored in self._at(journal_offset):
                log_end = stored.log_offset + stored.size
                self.ledger.take(note, journal_offset, stored.stored_at_ms, log_end)
                count += 1
        return count

    def note_at(self, journal_offset: int) -> Note | None:
        """One note, if it is still there."""
        if not self._first <= journal_offset < self.end:
            return None
        return next((note for note, _ in self._at(journal_offset)), None)

    @property
    def _first(self) -> int:
        return self._store.queue(STAGING_TOPIC, JOURNAL_QUEUE).min_offset

    def _at(self, journal_offset: int) -> Iterator[tuple[Note, StoredMessage]]:
        entry = self._store.queue(STAGING_TOPIC, JOURNAL_QUEUE).entry(journal_offset)
        record = None if entry is None else self._store.log.record(entry[0], self._store.written)
        try:
            stored = [] if record is None else decode_records(record)
        except ProtocolError:
            return
        for message in stored:
            if (note := decode_note(message.body)) is not None:
                yield note, message
