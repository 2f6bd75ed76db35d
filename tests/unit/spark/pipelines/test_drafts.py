"""Files that tasks write: what is in them, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ariane.spark._checksums import checksum
from ariane.spark.columns import arrow_schema
from ariane.spark.offsets import Queue
from ariane.spark.pipelines import drafts
from ariane.spark.pipelines.drafts import Drafts
from ariane.spark.pipelines.manifest import FileRange, LakeFile
from ariane.spark.schema import COLUMNS
from tests.harness.message_rows import START, message

DAY_S = 86_400
SCHEMA = arrow_schema([name for name in COLUMNS if name != "topic"])


def queue(queue_id: int, topic: str = "orders") -> Queue:
    return Queue(topic, "broker-a", queue_id)


def rows(queue_id: int, offsets: Iterable[int], *, stored_s: Iterable[float]) -> pa.RecordBatch:
    made = [
        dict(
            zip(COLUMNS, message("", queue_id, offset, b"%d" % offset, stored_s=s), strict=True),
            properties=[("vip", "yes")],
        )
        for offset, s in zip(offsets, stored_s, strict=True)
    ]
    return pa.RecordBatch.from_pylist(made, SCHEMA)


def read(root: Path, file: LakeFile) -> list[tuple[int, int, bytes]]:
    table = pq.ParquetFile(root / file.path).read()
    assert table.schema.remove_metadata().equals(SCHEMA)
    columns = (table[name].to_pylist() for name in ("queueId", "queueOffset", "body"))
    return list(zip(*columns, strict=True))


def test_a_file_for_each_topic_and_day(tmp_path: Path) -> None:
    task = Drafts(tmp_path, "_staging/job")
    task.add(queue(0), rows(0, [5, 6], stored_s=[1, 2]))
    # A clock that is set back at midnight mixes days; rows keep their order.
    midnight = [DAY_S - 1, DAY_S, DAY_S - 0.5, DAY_S + 7]
    task.add(queue(0), rows(0, [7, 8, 9, 10], stored_s=midnight))
    task.add(queue(1), rows(1, [3], stored_s=[9]))
    task.add(queue(0, "%DLQ%g"), rows(0, [0], stored_s=[3]))
    first, second, other = task.finish()

    day = "_staging/job/topic=orders/day=2026-11-16/"
    assert (first.path.startswith(day), first.day, first.topic) == (True, "2026-11-16", "orders")
    assert other.path.startswith("_staging/job/topic=%25DLQ%25g/day=2026-11-16/")
    assert read(tmp_path, first) == [
        *((0, offset, b"%d" % offset) for offset in (5, 6, 7, 9)),
        (1, 3, b"3"),
    ]
    assert [place[1] for place in read(tmp_path, second)] == [8, 10]
    start_ms = round(START.timestamp() * 1000)
    assert (first.stored_first_ms, first.stored_last_ms) == (
        start_ms + 1000,
        start_ms + DAY_S * 1000 - 500,
    )
    assert [(each.first, each.end, each.count) for each in first.ranges] == [(5, 10, 4), (3, 4, 1)]
    assert second.ranges == (FileRange("broker-a", 0, 8, 11, 2, sum_of(8, 10)),)
    assert first.byte_count == (tmp_path / first.path).stat().st_size


def sum_of(*offsets: int) -> int:
    found = 0
    for offset in offsets:
        body = b"%d" % offset
        bounds = (0).to_bytes(4, "little") + len(body).to_bytes(4, "little")
        found ^= checksum(offset.to_bytes(8, "little"), bounds, body, 0, 1)
    return found


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows(0, range(100), stored_s=[0] * 100)
    monkeypatch.setattr(drafts, "HELD_BYTES_MAX", batch.nbytes * 5 // 2)
    task = Drafts(tmp_path, "_staging/job")
    for number in range(7):
        first = 100 * number
        task.add(queue(0), rows(0, range(first, first + 100), stored_s=[0] * 100))
    files = task.finish()
    assert [(file.ranges[0].first, file.ranges[0].end) for file in files] == [
        *((0, 300), (300, 600), (600, 700))
    ]
    assert len({file.path for file in files}) == 3
    assert [place[1] for file in files for place in read(tmp_path, file)] == list(range(700))


def test_a_task_without_messages_writes_nothing(tmp_path: Path) -> None:
    assert Drafts(tmp_path, "_staging/job").finish() == []
    assert list(tmp_path.iterdir()) == []


def test_a_torn_page_is_noticed(tmp_path: Path) -> None:
    task = Drafts(tmp_path, "_staging/job")
    task.add(queue(0), rows(0, range(100), stored_s=[0] * 100))
    [file] = task.finish()
    data = bytearray((tmp_path / file.path).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / file.path).write_bytes(data)
    with pytest.raises(OSError, match=r"checksum|CRC"):
        pq.ParquetFile(tmp_path / file.path, page_checksum_verification=True).read()
