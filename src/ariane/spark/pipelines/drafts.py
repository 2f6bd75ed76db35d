"""Parquet files of a lake, written by the task that reads the messages: no row goes through Spark.

A file holds messages of one topic and one day in one row group, by queue and offset. A task holds
what it has read until it is worth a file, so at any time there is no file that is half written but
the one at hand, and a task that dies leaves nothing but files in its job's staging directory.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ariane.spark._checksums import checksum
from ariane.spark.offsets import Queue
from ariane.spark.pipelines.layout import COMPRESSION, DAY_US, day_of, directory_of
from ariane.spark.pipelines.manifest import FileRange, LakeFile

HELD_BYTES_MAX: Final = 128 << 20  # in memory, of all files together; about 50 MB of a file
# Columns with few values. To look for repeated ones in the others takes long and finds nothing.
FEW_VALUES: Final = (
    "brokerName", "queueId", "tags", "properties.key_value.key", "bornHost", "reconsumeTimes",
    "sysFlag",
)  # fmt: skip


class Drafts:
    """The files that one task writes, in a directory of their own below the lake's root."""

    def __init__(self, root: Path, directory: str) -> None:
        self._root = root
        self._directory = directory
        self._drafts: dict[tuple[str, str], _Draft] = {}  # by topic and day
        self._written: list[LakeFile] = []

    def add(self, queue: Queue, batch: pa.RecordBatch) -> None:
        """Take messages of one queue; the columns are the source's without `topic`."""
        for day, first_us, last_us, rows in _by_day(batch):
            key = (queue.topic, day)
            draft = self._drafts.get(key)
            if draft is None:
                draft = self._drafts[key] = _Draft()
            draft.add(queue, rows, first_us, last_us)
        while sum(draft.byte_count for draft in self._drafts.values()) > HELD_BYTES_MAX:
            self._write(max(self._drafts, key=lambda key: self._drafts[key].byte_count))

    def finish(self) -> list[LakeFile]:
        """Write what is left; all files of the task, on the disk and safe there."""
        for key in list(self._drafts):
            self._write(key)
        return self._written

    def _write(self, key: tuple[str, str]) -> None:
        topic, day = key
        path = f"{self._directory}/{directory_of(topic, day)}/{uuid.uuid4().hex}.parquet"
        self._written.append(self._drafts.pop(key).write(self._root, path, topic, day))


class _Draft:
    """Messages of one topic and day, and what is told of them."""

    def __init__(self) -> None:
        self.byte_count = 0
        self._batches: list[pa.RecordBatch] = []
        self._ranges: dict[Queue, FileRange] = {}
        self._first_us: int | None = None
        self._last_us = 0

    def add(self, queue: Queue, rows: pa.RecordBatch, first_us: int, last_us: int) -> None:
        self.byte_count += rows.nbytes
        self._batches.append(rows)
        self._first_us = first_us if self._first_us is None else min(self._first_us, first_us)
        self._last_us = max(self._last_us, last_us)
        found = _range_of(queue, rows)
        before = self._ranges.get(queue)
        if before is not None:
            found = msgspec.structs.replace(
                found,
                first=min(before.first, found.first),
                end=max(before.end, found.end),
                count=before.count + found.count,
                checksum=before.checksum ^ found.checksum,
            )
        self._ranges[queue] = found

    def write(self, root: Path, path: str, topic: str, day: str) -> LakeFile:
        """Write the file; it is told of only when it would survive the machine."""
        assert self._first_us is not None
        whole = root / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches(self._batches)
        pq.write_table(
            table,
            whole,
            row_group_size=table.num_rows,
            compression=COMPRESSION,
            use_dictionary=list(FEW_VALUES),
            write_page_checksum=True,
            store_schema=False,
        )
        return LakeFile(
            path=path,
            topic=topic,
            day=day,
            byte_count=_synced_size(whole),
            stored_first_ms=self._first_us // 1000,
            stored_last_ms=self._last_us // 1000,
            ranges=tuple(self._ranges[queue] for queue in sorted(self._ranges)),
        )


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, pa.RecordBatch]]:
    """The rows of each day (UTC), in order, with their first and last store time."""
    stored_us = batch.column("storeTimestamp").view(pa.int64())
    first_us, last_us = _edges(stored_us)
    if first_us // DAY_US == last_us // DAY_US:  # nearly always
        yield day_of(first_us), first_us, last_us, batch
        return
    days = pc.divide(stored_us, DAY_US)
    for day in sorted(pc.unique(days).to_pylist()):
        rows = batch.filter(pc.equal(days, day))
        first_us, last_us = _edges(rows.column("storeTimestamp").view(pa.int64()))
        yield day_of(first_us), first_us, last_us, rows


def _edges(numbers: Any) -> tuple[int, int]:
    found = pc.min_max(numbers)
    return found["min"].as_py(), found["max"].as_py()


def _range_of(queue: Queue, rows: pa.RecordBatch) -> FileRange:
    offsets, bodies = rows.column("queueOffset"), rows.column("body")
    assert offsets.offset == bodies.offset
    _, bounds, data = bodies.buffers()
    total = checksum(offsets.buffers()[1], bounds, data, bodies.offset, rows.num_rows)
    first, last = _edges(offsets)
    return FileRange(queue.broker, queue.queue_id, first, last + 1, rows.num_rows, total)


def _synced_size(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size
