"""What tasks of the sink tell the driver; light to import, for many processes unpickle it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

KEEP_HOURS: Final = 24 * 30  # for a stream that is not heard of
KEEP_JOB_HOURS: Final = 24  # a batch job has one batch


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one query."""

    query: str
    number: int
    keep_hours: int = KEEP_HOURS


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk that waits on a broker."""

    broker: str
    offset: int
    row_count: int
    crc32: int


@dataclass
class WrittenPart(WriterCommitMessage):
    """What one task did."""

    query: str
    partition: int
    is_staged: bool  # else its rows have been sent already
    row_count: int
    chunks: list[StagedChunk]
    brokers: set[str]  # that have queues of the topics
