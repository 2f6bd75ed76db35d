"""Records written by system calls: the same bytes as through the map, no success told in vain."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import RealDisk, SimulatedDisk
from ariane.disk.real import RealMappedFile
from ariane.errors import StoreError, StoreReadOnly
from ariane.kernel.log import RECORD_NOT_STORED, Log
from ariane.kernel.queue import Queue
from ariane.store.check import check
from ariane.store.store import Store
from ariane.topics import TIMER_TOPIC

from .shelf import append, batch, bodies, config_with, message, open_store, place

CONFIG = config_with(disk_stop_ratio=1.0, force_clean_enabled=False)
LARGE = config_with(
    disk_stop_ratio=1.0,
    force_clean_enabled=False,
    segment_bytes=8 << 20,
    message_bytes_max=4 << 20,
)


def fill(store: Store, seed: int) -> None:
    """Messages and batches of all sizes, over several segments."""
    random = Random(seed)
    for number in range(60):
        if random.random() < 0.3:
            store.append_batch(batch([b"%d-%d" % (number, i) for i in range(random.randint(1, 9))]))
        else:
            body = random.randbytes(random.choice([1, 40, 900, 3000]))
            store.append(message(body, queue_id=random.randrange(3), KEYS=f"k{number}"))


@pytest.mark.parametrize("seed", range(5))
def test_files_are_the_same_as_through_the_map(seed: int, tmp_path: Path) -> None:
    mapped, called = SimulatedDisk(), RealDisk(tmp_path)
    for disk in (mapped, called):
        store = open_store(disk, ManualClock(), CONFIG)
        fill(store, seed)
        store.stop()
    names = [name for name, _ in mapped.names("commitlog")]
    assert len(names) > 3
    assert [name for name, _ in called.names("commitlog")] == names
    for name in names:
        assert called.read(f"commitlog/{name}") == mapped.read(f"commitlog/{name}")
    for queue in mapped.directories("consumequeue/T"):
        for name, _ in mapped.names(f"consumequeue/T/{queue}"):
            path = f"consumequeue/T/{queue}/{name}"
            assert called.read(path) == mapped.read(path)
    names = [name for name, _ in mapped.names("index")]
    assert len(names) > 1
    assert [name for name, _ in called.names("index")] == names
    for name in names:
        assert called.read(f"index/{name}") == mapped.read(f"index/{name}")


def test_keys_are_found_at_once_and_after_a_kill(tmp_path: Path) -> None:
    config = config_with(
        disk_stop_ratio=1.0, segment_bytes=4 << 20, index_slot_count=1000, index_entry_count=9000
    )

    def misses(store: Store, count: int) -> list[int]:
        return [
            number
            for number in range(count)
            if store.query("T", f"k{number}", begin_ms=0, end_ms=1 << 60, count_max=9).message_count
            != 1
        ]

    store = open_store(RealDisk(tmp_path), ManualClock(), config)
    for number in range(3000):  # more than a desk holds, in two keys each
        append(store, b"x", KEYS=f"k{number}")
        if number % 500 == 0:
            assert misses(store, number + 1)[:1] == []
    store.checkpoint()
    for number in range(3000, 3500):
        append(store, b"x", KEYS=f"k{number}")
    # What a kill leaves: the files as they are, without what only the process knew.
    copy = tmp_path.parent / "killed"
    shutil.copytree(tmp_path, copy)
    report = check(RealDisk(copy), config)
    assert report.is_sound, report.problems
    again = open_store(RealDisk(copy), ManualClock(), config)
    assert misses(again, 3500) == []
    again.stop()
    assert check(RealDisk(copy), config).is_sound
    store.stop()


def test_a_record_is_in_its_file_when_its_sender_is_told(tmp_path: Path) -> None:
    store = open_store(RealDisk(tmp_path), ManualClock(), CONFIG)
    for number in range(40):
        placed = append(store, b"body %d" % number)
        base = placed.log_offset - placed.log_offset % CONFIG.segment_bytes
        data = (tmp_path / f"commitlog/{base:020d}").read_bytes()
        assert b"body %d" % number in data[placed.log_offset - base :]
    assert len(bodies(store)) == 40
    store.stop()


def test_a_message_larger_than_the_desk(tmp_path: Path) -> None:
    store = open_store(RealDisk(tmp_path), ManualClock(), LARGE)
    sent = [bytes([n]) * size for n, size in enumerate([10, 3 << 20, 10, 2 << 20, 3 << 20, 10])]
    for body in sent:
        append(store, body)
    assert bodies(store) == sent
    store.stop()
    assert check(RealDisk(tmp_path), LARGE).is_sound


def test_a_write_that_fails_ends_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told of it, nothing of it is seen, and a start finds what was told before."""

    def unwritable(file: RealMappedFile) -> int:
        return os.open(tmp_path / file.path, os.O_RDONLY)

    store = open_store(RealDisk(tmp_path), ManualClock(), CONFIG)
    append(store, b"told")
    monkeypatch.setattr(RealMappedFile, "open_descriptor", unwritable)
    store.log.write_by(unwritable(store._segments.files[-1]))
    with pytest.raises(StoreReadOnly, match="commit log cannot be written"):
        append(store, b"not told")
    with pytest.raises(StoreReadOnly):
        append(store, b"refused")
    assert bodies(store) == [b"told"]
    store.stop()
    monkeypatch.undo()
    store = open_store(RealDisk(tmp_path), ManualClock(), CONFIG)
    assert bodies(store) == [b"told"]
    append(store, b"after")
    assert bodies(store) == [b"told", b"after"]
    store.stop()


def test_without_descriptors_a_roll_leaves_the_old_segment_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(file: RealMappedFile) -> int:
        raise OSError(errno.EMFILE, "Too many open files", file.path)

    store = open_store(RealDisk(tmp_path), ManualClock(), CONFIG)
    sent = [b"%d " % n * 100 for n in range(200)]
    refused = 0
    for body in sent:
        store.prepare()  # the next segment is made ahead, while descriptors are to be had
        with monkeypatch.context() as patch:
            patch.setattr(RealMappedFile, "open_descriptor", none_left)
            try:
                append(store, body)
                continue
            except StoreError as error:
                assert "Too many open files" in str(error)
                refused += 1
        append(store, body)
    assert refused > 3
    assert store.read_only_reason is None
    assert bodies(store) == sent
    store.stop()
    assert check(RealDisk(tmp_path), CONFIG).is_sound


def test_a_log_never_writes_a_segment_by_the_descriptor_of_the_one_before(tmp_path: Path) -> None:
    log, queue = Log(4096, bytes(8)), Queue(b"T", 0, 200)
    log.add(0, bytearray(4096))
    queue.add(0, bytearray(200))
    queue.reserved_end = 10
    old = tmp_path / "old"
    old.write_bytes(bytes(4096))
    log.write_by(os.open(old, os.O_RDWR))
    log.seal()
    sealed = old.read_bytes()
    log.add(4096, bytearray(4096))
    assert place(log, queue, b"new") == 4096
    assert not log.store() and log.end == 4096
    assert old.read_bytes() == sealed


def test_nothing_is_placed_behind_a_write_that_failed(tmp_path: Path) -> None:
    """There may be the beginning of it in the file, and queue entries of what it held."""
    log, queue = Log(4096, bytes(8)), Queue(b"T", 0, 200)
    log.add(0, bytearray(4096))
    queue.add(0, bytearray(200))
    queue.reserved_end = 10
    path = tmp_path / "segment"
    path.write_bytes(bytes(4096))
    log.write_by(os.open(path, os.O_RDWR))
    place(log, queue, b"told")
    assert log.store()
    end = log.end
    log.write_by(os.open(path, os.O_RDONLY))
    place(log, queue, b"not told")
    assert not log.store()
    log.write_by(os.open(path, os.O_RDWR))
    assert place(log, queue, b"after") == RECORD_NOT_STORED
    assert log.end == log.stored == end
    assert not any(path.read_bytes()[end:])


def test_timed_messages_that_could_not_be_written_come_after_the_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(RealDisk(tmp_path), clock, CONFIG)
    due_ms = clock.wall_ms() + 5000
    store.append(
        message(
            b"wake up",
            TIMER_TOPIC,
            0,
            TIMER_DELIVER_MS=str(due_ms),
            TIMER_OUT_MS=str(due_ms // 1000 * 1000),
            REAL_TOPIC="T",
            REAL_QID="0",
        )
    )
    append(store, b"first")  # so that the queue has its file
    store.timer.turn()
    store.flush_now()
    store.timer.checkpoint()
    clock.advance(6)
    store.log.write_by(os.open(tmp_path / f"commitlog/{0:020d}", os.O_RDONLY))
    for _ in range(5):
        store.timer.turn()
        store.tick()
    assert store.read_only_reason is not None
    store.stop()
    store = open_store(RealDisk(tmp_path), clock, CONFIG)
    for _ in range(20):
        clock.advance(1)
        store.timer.turn()
    assert bodies(store) == [b"first", b"wake up"]
    store.stop()
