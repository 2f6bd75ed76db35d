"""Which staged chunks make a batch."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ChunkReference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One chunk: where it waits, and what must be found there."""

    offset: int  # in the queue of chunks
    row_count: int
    crc32: int


class BatchPlan(msgspec.Struct, frozen=True):
    """The chunks of a batch by the broker that holds them, in the order they are published."""

    brokers: dict[str, list[ChunkReference]]


class BatchState(StrEnum):
    """What a broker knows of a batch."""

    UNKNOWN = "unknown"  # not decided here
    DECIDED = "decided"  # being published
    PUBLISHED = "published"
    DISCARDED = "discarded"  # will never be published
    CUT_SHORT = "cutShort"  # published in part, and the plan is gone
