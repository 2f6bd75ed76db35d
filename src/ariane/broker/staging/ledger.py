"""What is known of queries and their batches: a pure machine that is fed the journal's notes.

Batches of a query come one after the other. So of each query only the last batch that ended is
remembered, and the one being published. A note that is read twice changes nothing the second time.

Invariant: of a batch, one plan at most is ever decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ariane.broker.staging.notes import Decided, Discarded, Enlisted, Intent, Note, Published
from ariane.protocol.bodies.staging import BatchPlan, BatchState, ChunkReference

HOUR_MS: Final = 3_600_000
NO_BATCH: Final = -1


@dataclass(slots=True)
class Publication:
    """A decided batch on its way: everything before `row` of chunk `chunk` is in its queue."""

    query: str
    batch: int
    decision: int  # the journal offset of its note
    chunks: Sequence[ChunkReference] | None  # None: not read from the journal yet
    chunk: int = 0
    row: int = 0
    position: int = 0  # of that row in the chunk's body
    intent: Intent | None = None  # the last one, and the log offset behind its note
    intent_end: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether no row is left."""
        return self.chunks is not None and self.chunk >= len(self.chunks)

    @property
    def row_count(self) -> int:
        """How many rows it has in all."""
        return sum(chunk.row_count for chunk in self.chunks or ())

    def stand_at(self, chunk: int, row: int, position: int) -> None:
        """Everything before that row is in its queue."""
        assert self.chunks is not None
        if chunk < len(self.chunks) and row >= self.chunks[chunk].row_count:
            chunk, row, position = chunk + 1, 0, 0
        self.chunk, self.row, self.position = chunk, row, position


@dataclass(slots=True)
class Query:
    """One stream of batches."""

    last_batch: int = NO_BATCH  # that ended
    last_state: BatchState = BatchState.UNKNOWN
    last_decision: int = -1  # the journal offset of its note, if it was decided
    last_rows: int = 0
    used_ms: int = 0
    keep_hours: int = 0
    brokers: set[str] = field(default_factory=set)
    publication: Publication | None = None


class Ledger:
    """Queries by id."""

    def __init__(self, broker: str) -> None:
        self.queries: dict[str, Query] = {}
        self._broker = broker
        self._by_decision: dict[int, Publication] = {}

    def __iter__(self) -> Iterator[Publication]:
        return iter(list(self._by_decision.values()))

    def state_of(self, query: str, batch: int) -> BatchState:
        """What is known of a batch; those before the last one that ended were published."""
        known = self.queries.get(query)
        if known is None:
            return BatchState.UNKNOWN
        if known.publication is not None and batch == known.publication.batch:
            return BatchState.DECIDED
        if batch < known.last_batch:
            return BatchState.PUBLISHED
        return known.last_state if batch == known.last_batch else BatchState.UNKNOWN

    def take(self, note: Note, journal_offset: int, at_ms: int, log_end: int) -> None:
        """Learn from a note: where it is in the journal, when it was written, where it ends."""
        match note:
            case Enlisted():
                known = self._used(note.query, at_ms, note.keep_hours)
                known.brokers.update(note.brokers)
            case Decided():
                self._decided(note, journal_offset, at_ms)
            case Intent():
                self._intended(note, log_end)
            case Published():
                self._published(note, at_ms)
            case Discarded():
                known = self._used(note.query, at_ms, note.keep_hours)
                if note.batch > known.last_batch and known.publication is None:
                    known.last_batch, known.last_state = note.batch, BatchState.DISCARDED
                    known.last_decision, known.last_rows = -1, 0

    def restore(self, query: str, known: Query, pending: tuple[int, int] | None) -> None:
        """Take over what was saved of a query, and the (batch, decision) it was publishing."""
        self.queries[query] = known
        if pending is not None:
            batch, decision = pending
            known.publication = Publication(query, batch, decision, None)
            self._by_decision[decision] = known.publication

    def give_up_unread(self) -> list[Publication]:
        """End publications whose plan the journal does not have any more; which they were."""
        lost = [publication for publication in self if publication.chunks is None]
        for publication in lost:
            self._end(publication, BatchState.CUT_SHORT)
        return lost

    def first_needed(self, end: int) -> int:
        """The journal offset from which on a start must read, the journal ending at `end`."""
        return min(self._by_decision, default=end)

    def forget_unused(self, now_ms: int) -> int:
        """Forget queries that were not heard of for as long as they asked to be kept."""
        unused = [
            name
            for name, known in self.queries.items()
            if known.publication is None and known.used_ms + known.keep_hours * HOUR_MS < now_ms
        ]
        for name in unused:
            del self.queries[name]
        return len(unused)

    def _used(self, query: str, at_ms: int, keep_hours: int) -> Query:
        known = self.queries.setdefault(query, Query())
        known.used_ms = max(known.used_ms, at_ms)
        known.keep_hours = keep_hours
        return known

    def _decided(self, note: Decided, journal_offset: int, at_ms: int) -> None:
        known = self._used(note.query, at_ms, note.keep_hours)
        publication = self._by_decision.get(journal_offset)
        if publication is not None:  # known from the snapshot, but not its plan
            if publication.chunks is None:
                publication.chunks = self._own_part(note.plan)
            return
        if note.batch <= known.last_batch or known.publication is not None:
            return
        known.brokers.update(note.plan.brokers)
        known.publication = Publication(
            note.query, note.batch, journal_offset, self._own_part(note.plan)
        )
        self._by_decision[journal_offset] = known.publication

    def _own_part(self, plan: BatchPlan) -> list[ChunkReference]:
        return plan.brokers.get(self._broker, [])

    def _intended(self, note: Intent, log_end: int) -> None:
        publication = self._by_decision.get(note.decision)
        if publication is not None and publication.chunks is not None:
            publication.stand_at(note.chunk, note.row, note.position)
            publication.intent, publication.intent_end = note, log_end

    def _published(self, note: Published, at_ms: int) -> None:
        publication = self._by_decision.get(note.decision)
        if publication is not None:
            self.queries[publication.query].used_ms = at_ms
            self._end(publication, BatchState.PUBLISHED)

    def _end(self, publication: Publication, state: BatchState) -> None:
        known = self.queries[publication.query]
        known.publication = None
        known.last_batch, known.last_state = publication.batch, state
        known.last_decision, known.last_rows = publication.decision, publication.row_count
        del self._by_decision[publication.decision]
