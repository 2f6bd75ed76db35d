"""Streaming reads: a thin adapter between Spark's calls and `StreamPlan`.

Spark keeps one such reader in a process of its own beside the driver as long as the query runs, and
pickles others on their way to the executors: those are never asked to plan, so they open nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ariane.clock import SystemClock
from ariane.spark.offsets import stream_offset_of
from ariane.spark.options import Limits, SourceOptions
from ariane.spark.reader import partitions_of
from ariane.spark.stream_plan import StreamPlan, limits_with
from ariane.spark.survey import Cluster

if TYPE_CHECKING:
    import pyarrow as pa

# ruff: noqa: N802 - the method names are Spark's


class PartitionReader(Protocol):
    """What executors do with a partition; it is pickled on its way there."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows that become of a partition."""
        ...


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues from where the checkpoint says."""

    def __init__(self, options: SourceOptions, rows: PartitionReader) -> None:
        self._options = options
        self._rows = rows
        self._opened: tuple[Cluster, StreamPlan] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return self._plan.initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark hands back to `latestOffset`; it knows no limit of two kinds at once."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself when there is nothing to read."""
        return self._plan.latest(stream_offset_of(start), self._limits(limit)).json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of all queues, for the backlog in the query's progress."""
        newest = self._plan.newest
        return None if newest is None else newest.json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, then end."""
        self._plan.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What lies between two offsets."""
        divided = self._plan.partitions(stream_offset_of(start), stream_offset_of(end))
        return partitions_of(divided)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition; runs in an executor."""
        return self._rows.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Show operators how far the query has got; nothing is ever read back from there."""
        if self._options.group is not None:
            self._open()[0].mirror(self._options.group, stream_offset_of(end).queues)

    def stop(self) -> None:
        """The query ends."""
        if self._opened is not None:
            self._opened[0].close()

    @property
    def _plan(self) -> StreamPlan:
        return self._open()[1]

    def _open(self) -> tuple[Cluster, StreamPlan]:
        if self._opened is None:
            from ariane.spark.cluster import cluster_of  # noqa: PLC0415 - a driver's; see above

            cluster = cluster_of(self._options.access)
            self._opened = (cluster, StreamPlan(self._options, cluster, SystemClock()))
        return self._opened

    def _limits(self, limit: ReadLimit) -> Limits | None:
        limits = self._options.limits
        match limit:
            case ReadAllAvailable():
                return None
            case ReadMaxRows(max_rows=rows):
                return limits_with(limits, max_rows=rows)
            case ReadMaxBytes(max_bytes=size):
                return limits_with(limits, max_bytes=size)
            case ReadMinRows(min_rows=rows):
                return limits_with(limits, min_rows=rows)
            case _:
                return limits
