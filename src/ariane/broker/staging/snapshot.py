"""`config/staging.json`: the ledger as it was, and where in the journal to go on reading."""

from __future__ import annotations

from typing import Final

import msgspec

from ariane.broker.staging.ledger import Ledger, Query
from ariane.protocol.bodies.staging import BatchState

PATH: Final = "config/staging.json"


class SavedQuery(msgspec.Struct, rename="camel"):
    """One query."""

    last_batch: int
    last_state: BatchState
    last_decision: int
    last_rows: int
    used_ms: int
    keep_hours: int
    brokers: list[str]
    pending_batch: int = -1
    pending_decision: int = -1


class Snapshot(msgspec.Struct, rename="camel"):
    """The file."""

    journal_offset: int = 0  # notes from here on are not all known
    queries: dict[str, SavedQuery] = {}


def encode(ledger: Ledger, journal_end: int) -> bytes:
    """The file's content for a ledger that has taken every note before `journal_end`."""
    queries = {name: _saved(known) for name, known in ledger.queries.items()}
    snapshot = Snapshot(ledger.first_needed(journal_end), queries)
    return msgspec.json.format(msgspec.json.encode(snapshot), indent=1)


def restore(snapshot: Snapshot, ledger: Ledger) -> None:
    """Fill an empty ledger."""
    for name, saved in snapshot.queries.items():
        known = Query(
            last_batch=saved.last_batch,
            last_state=saved.last_state,
            last_decision=saved.last_decision,
            last_rows=saved.last_rows,
            used_ms=saved.used_ms,
            keep_hours=saved.keep_hours,
            brokers=set(saved.brokers),
        )
        pending = (saved.pending_batch, saved.pending_decision)
        ledger.restore(name, known, pending if saved.pending_decision >= 0 else None)


def _saved(known: Query) -> SavedQuery:
    publication = known.publication
    return SavedQuery(
        last_batch=known.last_batch,
        last_state=known.last_state,
        last_decision=known.last_decision,
        last_rows=known.last_rows,
        used_ms=known.used_ms,
        keep_hours=known.keep_hours,
        brokers=sorted(known.brokers),
        pending_batch=-1 if publication is None else publication.batch,
        pending_decision=-1 if publication is None else publication.decision,
    )
