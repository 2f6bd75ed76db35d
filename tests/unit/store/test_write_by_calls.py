"""Records written by system calls: the same bytes as through the map, no success told in vain."""

from __future__ import annotations

import os
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
