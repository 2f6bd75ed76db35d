"""A store that Apache's broker left behind: every record and key of it is served."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from ariane.clock import SystemClock
from ariane.config import StoreConfig
from ariane.disk import RealDisk
from ariane.protocol.message import decode_records
from ariane.store.check import check
from ariane.store.checkpoint import CheckpointFile
from ariane.store.store import Store

from .shelf import FOREVER_MS, HOST, append, bodies, read_all

ARCHIVE = Path(__file__).parents[2] / "golden" / "apache-store.tar.xz"
CONFIG = StoreConfig(segment_bytes=1 << 20, disk_stop_ratio=1.0, force_clean_enabled=False)
QUEUES = {
    "%RETRY%g_go_push-retry_fa23ff_34": [1],
    "%RETRY%g_retry_1kff4f_41": [2],
    "RMQ_SYS_TRANS_HALF_TOPIC": [5],
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": [1],
    "SCHEDULE_TOPIC_XXXX": [7, 1],
    "it_go_push-retry_fa23ff_33": [1],
    "rmq_sys_REVIVE_LOG_DefaultCluster": [33, 33, 33, 34, 33, 34, 10],
    "rmq_sys_wheel_timer": [210],
}


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return RealDisk(tmp_path / "store")


def opened(disk: RealDisk) -> Store:
    return Store.open(CONFIG, disk, SystemClock(), store_host=HOST)


def assert_served(store: Store) -> None:
    """Every message in its slot, and found by each of its keys."""
    assert {topic: len(queues) for topic, queues in store.topics().items()} == {
        topic: len(counts) for topic, counts in QUEUES.items()
    }
    for topic, queue_ids in store.topics().items():
        for queue_id, count in zip(queue_ids, QUEUES[topic], strict=True):
            found = read_all(store, topic, queue_id)
            assert [m.queue_offset for m in found] == list(range(count))
            for message in found:
                assert (message.topic, message.queue_id) == (topic, queue_id)
                assert store.record_at(message.log_offset) is not None
                keys = message.properties.get("KEYS", "").split()
                for key in [*keys, message.properties.get("UNIQ_KEY")]:
                    if key:
                        by_key = store.query(
                            topic, key, count_max=64, begin_ms=0, end_ms=FOREVER_MS
                        )
                        offsets = [m.log_offset for m in decode_records(by_key.body)]
                        assert message.log_offset in offsets or len(offsets) == 64


def test_every_record_and_key_is_served(disk: RealDisk) -> None:
    store = opened(disk)
    assert (store.written, store.min_offset("rmq_sys_wheel_timer", 0)) == (1_072_325, 0)
    assert_served(store)


def test_it_checks_out_and_is_left_as_it_was(disk: RealDisk) -> None:
    before = {path: path.stat().st_mtime_ns for path in disk.root.rglob("*")}
    report = check(disk, StoreConfig())
    assert report.problems == []
    assert (report.segment_count, report.record_count, report.log_end) == (2, 3703, 1_072_325)
    assert (report.queue_count, report.queue_entry_count) == (15, 438)
    assert report.key_count > 3703
    assert all("it was deleted" in warning for warning in report.warnings)
    assert {path: path.stat().st_mtime_ns for path in disk.root.rglob("*")} == before


def test_it_is_continued_and_survives_a_kill(disk: RealDisk) -> None:
    store = opened(disk)
    store.start()
    append(store, b"ours", "rmq_sys_wheel_timer", 0)
    append(store, b"new topic", "T", 0)
    for lock in (store._lock,):  # what a kill would do
        lock.release()
    again = opened(disk)
    assert bodies(again, "T") == [b"new topic"]
    assert bodies(again, "rmq_sys_wheel_timer")[-1] == b"ours"
    assert len(bodies(again, "rmq_sys_wheel_timer")) == 211
    again.start()
    again.stop()
    assert check(disk, CONFIG).problems == []


def test_after_apaches_own_kill_all_of_it_is_found_again(disk: RealDisk) -> None:
    """An abort mark and no claim: Apache's times say where to start, the index is repaired."""
    disk.write("abort", b"1")
    assert CheckpointFile(disk).load().claim is None
    store = opened(disk)
    assert store.written == 1_072_325
    for topic, counts in QUEUES.items():
        found = [store.max_offset(topic, queue_id) for queue_id in store.topics()[topic]]
        assert found == counts
    store.start()
    store.stop()
    assert check(disk, CONFIG).problems == []
