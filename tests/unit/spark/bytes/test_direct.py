"""Stores read from their files: what Apache's broker left, what grows, and what goes away."""

from __future__ import annotations

import multiprocessing
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from ariane.clock import ManualClock, SystemClock
from ariane.disk import RealDisk
from ariane.errors import AccessImpossible, DataLoss
from ariane.protocol.message import StoredMessage, decode_records
from ariane.spark.bytes import read_batches
from ariane.spark.bytes.contract import (
    AccessOptions,
    AccessWay,
    QueueBounds,
    QueueRange,
    ReadFilter,
)
from ariane.spark.bytes.direct import store_metadata
from ariane.spark.schema import COLUMNS
from ariane.store.store import Store
from tests.property.test_columns import row_of, rows_of
from tests.unit.store.shelf import append, config_with, message, open_store

ARCHIVE = Path(__file__).parents[3] / "golden" / "apache-store.tar.xz"
BROKER = "local"


def options_of(root: Path, **more: object) -> AccessOptions:
    return AccessOptions(access=AccessWay.DIRECT, store_path=str(root), **more)  # type: ignore[arg-type]


def read(
    root: Path, *ranges: QueueRange, columns: Sequence[str] = tuple(COLUMNS), **more: object
) -> list[dict[str, object]]:
    found = read_batches(options_of(root), ranges, columns, **more)  # type: ignore[arg-type]
    return [row for batch in found for row in rows_of(batch)]


def offsets(root: Path, first: int, end: int, topic: str = "T", **more: object) -> list[object]:
    rows = read(root, QueueRange(topic, BROKER, 0, first, end), columns=["queueOffset"], **more)
    return [row["queueOffset"] for row in rows]


@pytest.fixture
def apache_store(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def walked(root: Path) -> list[StoredMessage]:
    """Every record of the log, in its order."""
    messages = []
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while int.from_bytes(data[at + 4 : at + 8], "big") == 0xDAA320A7:
            size = int.from_bytes(data[at : at + 4], "big")
            messages += decode_records(data[at : at + size])
            at += size
    return messages


def test_every_message_that_apache_stored_is_read(apache_store: Path) -> None:
    (store,) = store_metadata(options_of(apache_store))
    expected: dict[tuple[str, int], list[StoredMessage]] = {}
    for found in walked(apache_store):
        expected.setdefault((found.topic, found.queue_id), []).append(found)
    count = 0
    for topic in store.topics():
        for queue_id in store.queues(topic):
            first, end = store.bounds(topic, queue_id)
            rows = read(apache_store, QueueRange(topic, BROKER, queue_id, first, end))
            theirs = expected[topic, queue_id]
            assert rows == [row_of(found, BROKER) for found in theirs if found.queue_offset < end]
            assert rows
            count += len(rows)
            for found in theirs[:: max(1, len(theirs) // 5)]:
                at = store.offset_at(topic, queue_id, found.stored_at_ms)
                same = [m.queue_offset for m in theirs if m.stored_at_ms >= found.stored_at_ms]
                assert at == min(same)
    assert count > 400


def make(root: Path, **config: object) -> Store:
    return open_store(RealDisk(root), ManualClock(), config_with(**config))


def fill(store: Store, first: int, end: int, size: int = 100) -> None:
    for i in range(first, end):
        append(store, f"{i:0{size}d}".encode(), TAGS=f"t{i % 3}")


def test_a_store_is_read_while_it_grows(tmp_path: Path) -> None:
    store = make(tmp_path)
    (files,) = store_metadata(options_of(tmp_path))
    assert files.bounds("T", 0) == QueueBounds(0, 0)
    for end in (1, 2, 40, 500):  # over many segments and queue files
        fill(store, store.max_offset("T", 0), end)
        assert files.bounds("T", 0) == QueueBounds(0, end)
        assert offsets(tmp_path, 0, end) == list(range(end))
    assert offsets(tmp_path, 33, 77) == list(range(33, 77))
    assert files.topics() == ["T"] and files.queues("T") == [0]
    tagged = offsets(tmp_path, 0, 500, message_filter=ReadFilter("t1"))
    assert tagged == list(range(1, 500, 3))
    mean = files.mean_record_bytes("T", 0, 0, 500)
    assert mean == pytest.approx(store.written / 500, rel=0.3)  # blanks take their share
    store.stop()
    assert offsets(tmp_path, 0, 500) == list(range(500))


def test_batches_have_the_size_asked_for_and_go_on_over_ranges(tmp_path: Path) -> None:
    store = make(tmp_path)
    fill(store, 0, 100)
    store.append(message(b"x", queue_id=1))
    ranges = [QueueRange("T", BROKER, 0, 0, 100), QueueRange("T", BROKER, 1, 0, 1)]
    found = list(read_batches(options_of(tmp_path), ranges, ["queueId"], rows_per_batch=40))
    assert [batch.num_rows for batch in found] == [40, 40, 21]
    assert found[2].column(0).to_pylist() == [0] * 20 + [1]
    assert list(read_batches(options_of(tmp_path), [], ["queueId"])) == []
    store.stop()


def test_an_unfinished_entry_does_not_exist_yet(tmp_path: Path) -> None:
    store = make(tmp_path)
    fill(store, 0, 10)
    (files,) = store_metadata(options_of(tmp_path))
    queue_file = next((tmp_path / "consumequeue" / "T" / "0").iterdir())
    with queue_file.open("r+b") as torn:
        torn.seek(10 * 20)  # a size that came before its log offset did
        torn.write((0).to_bytes(8, "big") + (200).to_bytes(4, "big"))
    assert files.bounds("T", 0) == QueueBounds(0, 10)
    with pytest.raises(DataLoss, match="wanted offset 11, available 10"):
        offsets(tmp_path, 0, 11)
    store.stop()


@pytest.mark.parametrize("cut", [0, 1, 50, 150, 227])
def test_entries_whose_records_are_on_their_way_do_not_count_yet(tmp_path: Path, cut: int) -> None:
    store = make(tmp_path, segment_bytes=1 << 20, queue_file_bytes=20 * 5000)
    fill(store, 0, 3000)
    log = next((tmp_path / "commitlog").iterdir())
    (files,) = store_metadata(options_of(tmp_path))
    whole = log.read_bytes()
    sizes = [message.size for message in walked(tmp_path)]
    for end in (0, 1, 700, 2990, 2999):
        there = sum(sizes[:end]) + min(cut, sizes[end] - 1)  # the log, as far as it was written
        log.write_bytes(whole[:there] + bytes(len(whole) - there))
        assert files.bounds("T", 0) == QueueBounds(0, end)
        assert offsets(tmp_path, 0, end) == list(range(end))
    log.write_bytes(whole)
    assert files.bounds("T", 0) == QueueBounds(0, 3000)
    store.stop()


def test_what_retention_took_is_a_loss_or_stepped_over(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(RealDisk(tmp_path), clock, config_with())
    fill(store, 0, 200)
    store.flush()
    store.checkpoint()
    kept = read_batches(
        options_of(tmp_path), [QueueRange("T", BROKER, 0, 0, 200)], ["queueOffset"],
        rows_per_batch=10,
    )  # fmt: skip
    assert next(kept).column(0).to_pylist() == list(range(10))
    segments = sorted((tmp_path / "commitlog").iterdir())
    for path in segments[:3]:
        path.unlink()
    (files,) = store_metadata(options_of(tmp_path))
    first = files.bounds("T", 0).first
    assert 20 < first < 200
    with pytest.raises(DataLoss, match=f"wanted offset 5, available {first}"):
        offsets(tmp_path, 5, 200)
    assert offsets(tmp_path, 5, 200, fail_on_data_loss=False) == list(range(first, 200))
    assert offsets(tmp_path, 5, 9, fail_on_data_loss=False) == []
    with pytest.raises(DataLoss) as lost:  # what was mapped is still read; what was not is told
        for batch in kept:
            assert batch.num_rows
    assert lost.value.available == first
    assert 10 < lost.value.wanted < first
    store.stop()


def test_a_topic_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    store = make(tmp_path)
    fill(store, 0, 50)
    assert offsets(tmp_path, 0, 50) == list(range(50))
    store.delete_topic("T")
    with pytest.raises(DataLoss, match="wanted offset 50, available 0"):
        offsets(tmp_path, 10, 50)
    fill(store, 0, 20)
    assert offsets(tmp_path, 0, 20) == list(range(20))
    with pytest.raises(DataLoss, match="wanted offset 50, available 20"):
        offsets(tmp_path, 10, 50)
    store.stop()


def test_another_store_in_the_same_place_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = make(root)
    append(store, b"old")
    span = QueueRange("T", BROKER, 0, 0, 1)
    assert read(root, span, columns=["body"]) == [{"body": b"old"}]
    store.stop()
    shutil.rmtree(root)
    store = make(root)
    append(store, b"new")
    assert read(root, span, columns=["body"]) == [{"body": b"new"}]
    store.stop()


def test_a_damaged_record_is_told_or_stepped_over(tmp_path: Path) -> None:
    store = make(tmp_path)
    fill(store, 0, 20)
    store.stop()
    segment = sorted((tmp_path / "commitlog").iterdir())[0]
    entry = (tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)).read_bytes()[7 * 20 : 8 * 20]
    with segment.open("r+b") as damaged:
        damaged.seek(int.from_bytes(entry[:8], "big") + 20)
        damaged.write(b"\xff" * 8)  # another queue offset
    with pytest.raises(DataLoss, match=r"wanted offset 7, available 8.*damaged"):
        offsets(tmp_path, 0, 20)
    assert offsets(tmp_path, 0, 20, fail_on_data_loss=False) == [
        i for i in range(20) if i != 7
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["nothing", "a queue in RocksDB"])
def test_a_directory_that_is_no_store_says_so(tmp_path: Path, what: str) -> None:
    if what != "nothing":
        for name in ("commitlog", "consumequeue"):
            (tmp_path / name).mkdir()
        (tmp_path / "consumequeue" / "CURRENT").touch()
    with pytest.raises(AccessImpossible, match=r"no directory commitlog|RocksDB"):
        offsets(tmp_path, 0, 1)


def test_paths_are_found_by_the_brokers_name(tmp_path: Path) -> None:
    store = make(tmp_path)
    append(store, b"one")
    options = AccessOptions(access=AccessWay.DIRECT, store_path=f"a={tmp_path}, b=/nowhere")
    batch: pa.RecordBatch
    (batch,) = read_batches(options, [QueueRange("T", "a", 0, 0, 1)], ["brokerName", "body"])
    assert batch.to_pylist() == [{"brokerName": "a", "body": b"one"}]
    with pytest.raises(AccessImpossible, match="no store directory is given for broker 'c'"):
        list(read_batches(options, [QueueRange("T", "c", 0, 0, 1)], ["body"]))
    store.stop()


SEGMENT_BYTES = 1 << 16


def write_and_remove(root: Path, count: int) -> None:
    """What a broker does, in a process of its own: append, flush, and let old segments go."""
    config = config_with(segment_bytes=SEGMENT_BYTES, queue_file_bytes=20 * 200, retention_hours=0)
    store = open_store(RealDisk(root), SystemClock(), config)  # type: ignore[arg-type]
    for i in range(count):
        append(store, b"%d " % i * 20)
        if i % 500 == 499:
            store.flush()
            store.checkpoint()
        if i % 2000 == 1999 and len(store._segments.files) > 6:
            store.clean(is_asked=True)
    store.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_reader_beside_a_writer_sees_whole_messages_or_a_loss(tmp_path: Path) -> None:
    make(tmp_path, segment_bytes=SEGMENT_BYTES, queue_file_bytes=20 * 200).stop()
    count = 20_000
    writer = multiprocessing.get_context("fork").Process(
        target=write_and_remove, args=(tmp_path, count)
    )
    writer.start()
    (files,) = store_metadata(options_of(tmp_path))
    position = reads = 0
    is_over = False
    while not is_over:
        is_over = not writer.is_alive()  # then one more look sees it all
        bounds = files.bounds("T", 0)
        assert position <= bounds.end
        span = QueueRange("T", BROKER, 0, position, bounds.end)
        rows = read(tmp_path, span, columns=["queueOffset", "body"], fail_on_data_loss=False)
        found = [row["queueOffset"] for row in rows]
        missing = set(range(span.start, span.end)) - set(found)
        assert found == sorted(set(range(span.start, span.end)) - missing)
        assert max(missing, default=-1) < files.bounds("T", 0).first  # only retention takes any
        assert [row["body"] for row in rows] == [b"%d " % offset * 20 for offset in found]
        position, reads = span.end, reads + bool(rows)
    assert writer.exitcode == 0
    assert position == count
    assert reads > 3
