"""What the journal of batches holds: one note for each thing that must be known after a kill.

A note is a message in the journal's queue, and is named by its offset there. What a broker cannot
read is no note of ours, and counts for nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ariane.protocol.bodies.staging import BatchPlan


class Enlisted(msgspec.Struct, frozen=True, tag="enlisted"):
    """These brokers may take part in batches of a query."""

    query: str
    brokers: list[str]
    keep_hours: int


class Decided(msgspec.Struct, frozen=True, tag="decided"):
    """A batch is to be published by this plan, and by no other."""

    query: str
    batch: int
    plan: BatchPlan
    keep_hours: int


class Intent(msgspec.Struct, frozen=True, tag="intent"):
    """The records behind this note in the log are so many rows of a chunk, from one row on."""

    decision: int  # the offset of the note that decided it
    chunk: int  # which chunk of the plan's part for this broker
    row: int
    position: int  # where the row begins in the chunk's body
    row_count: int


class Published(msgspec.Struct, frozen=True, tag="published"):
    """Every row of a decided batch is in its queue."""

    decision: int


class Discarded(msgspec.Struct, frozen=True, tag="discarded"):
    """A batch is never to be published."""

    query: str
    batch: int
    keep_hours: int


Note = Enlisted | Decided | Intent | Published | Discarded

_decoder: Final = msgspec.json.Decoder(Note)


def encode_note(note: Note) -> bytes:
    """The body of the message that holds a note."""
    return msgspec.json.encode(note)


def decode_note(body: bytes) -> Note | None:
    """The note a message holds; None when it is none of ours."""
    try:
        note: Note = _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return note
