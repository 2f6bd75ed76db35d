"""Records written by system calls: the same bytes as through the map, no success told in vain."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import RealDisk, SimulatedDisk
from ariane.disk.real import RealMappedFile
from ariane.errors import StoreReadOnly
from ariane.store.check import check
from ariane.store.store import Store

from .shelf import append, batch, bodies, config_with, message, open_store

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
    monkeypatch.setattr(RealMappedFile, "descriptor", unwritable)
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
