"""What a Spark reader and the ways to the bytes agree on.

The reader plans ranges of queue offsets and calls `read_batches`; which way the bytes come (pulls,
bulk reads, a mapped store) shows in nothing but speed. Everything here is picklable and imports
neither pyarrow nor pyspark, so that a driver can plan without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES: Final = 4 << 20  # of one answer; with more of it, less stays in the caches
ROWS_PER_BATCH: Final = 10_000
TIMEOUT_S: Final = 30.0
RETRIES: Final = 3

TAG: Final = "TAG"
SQL92: Final = "SQL92"


class AccessWay(StrEnum):
    """How to come to the bytes."""

    AUTO = "auto"  # the fastest that can be had
    WIRE = "wire"  # pulls, which every broker answers
    BULK = "bulk"  # bulk reads, which Ariane's broker answers
    DIRECT = "direct"  # the store's own files


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Queue offsets [start, end) of one queue."""

    topic: str
    broker: str
    queue_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Where the messages are and how to come to them.

    `store_path` is the directory of a broker's store (`storePathRootDir`), or several, each with
    its broker's name: `broker-a=/data/a,broker-b=/data/b`.
    """

    name_servers: tuple[str, ...] = ()
    access: AccessWay = AccessWay.AUTO
    store_path: str | None = None
    fetch_bytes: int = FETCH_BYTES
    timeout_s: float = TIMEOUT_S
    retries: int = RETRIES
    check_crc: bool = False


@dataclass(frozen=True, slots=True)
class ReadFilter:
    """Which messages to let through: tags (`A || B`), or an SQL92 expression over properties."""

    expression: str
    kind: str = TAG


class QueueBounds(NamedTuple):
    """The readable offsets [first, end) of a queue."""

    first: int
    end: int


class StoreMetadata(Protocol):
    """What a store's files say about its queues: for a driver that has no broker to ask."""

    @property
    def broker(self) -> str:
        """The broker's name, as given with the path; `local` when none was."""
        ...

    def topics(self) -> list[str]:
        """Topics that have a queue, system topics among them."""
        ...

    def queues(self, topic: str) -> list[int]:
        """The topic's queues; none when it has none."""
        ...

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """What of a queue can be read now; (0, 0) for one that was never written."""
        ...

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at or after a moment; the end when there is none."""
        ...

    def mean_record_bytes(self, topic: str, queue_id: int, first: int, end: int) -> float:
        """How large the records of a range are on average; a sample will do. 0 for an empty one."""
        ...


class ReadBatches(Protocol):
    """The signature of `ariane.spark.bytes.read_batches`."""

    def __call__(
        self,
        options: AccessOptions,
        ranges: Sequence[QueueRange],
        columns: Sequence[str],
        message_filter: ReadFilter | None = None,
        *,
        fail_on_data_loss: bool = True,
        rows_per_batch: int = ROWS_PER_BATCH,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of the ranges, range by range in order, as batches with just these columns.

        `columns` are names of `spark.schema`, in the order of the result. No row lies outside its
        range. What is missing below a queue's first offset raises DataLoss, or with
        `fail_on_data_loss=False` is stepped over and its count logged; an end above the queue's end
        always raises DataLoss.
        """
        ...
