"""What may lie in a directory of numbered files, and what stops the start."""

from __future__ import annotations

import pytest

from ariane.disk import SimulatedDisk
from ariane.errors import DiskFull, StoreError
from ariane.store.segments import file_name, positions_in

from .shelf import append, bodies, open_store

NAMES = [file_name(at) for at in (0, 100, 200, 300)]

GOOD = {
    "none": ({}, []),
    "in a row": ({NAMES[0]: 100, NAMES[1]: 100}, [0, 100]),
    "from the middle on": ({NAMES[2]: 100, NAMES[3]: 100}, [200, 300]),
    "an unfinished last one": ({NAMES[0]: 100, NAMES[1]: 0}, [0]),
}
BAD = {
    "too short": ({NAMES[0]: 99}, "has 99 bytes and must have 100"),
    "too long": ({NAMES[0]: 100, NAMES[1]: 101}, "has 101 bytes"),
    "an unfinished one in the middle": ({NAMES[0]: 0, NAMES[1]: 100}, "has 0 bytes"),
    "a hole": ({NAMES[0]: 100, NAMES[2]: 100}, f"{NAMES[1]} is missing"),
    "a stray file": ({NAMES[0]: 100, ".DS_Store": 100}, "DS_Store does not belong there"),
    "a short name": ({"0": 100}, "named by 20 digits"),
}


def disk_with(files: dict[str, int]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("d/directories-are-skipped")
    for name, size in files.items():
        disk.write(f"d/{name}", bytes(size))
    return disk


@pytest.mark.parametrize(("files", "positions"), GOOD.values(), ids=GOOD)
def test_usable(files: dict[str, int], positions: list[int]) -> None:
    disk = disk_with(files)
    assert positions_in(disk, "d", 100) == positions
    assert [name for name, _ in disk.names("d")] == [file_name(at) for at in positions]


@pytest.mark.parametrize(("files", "says"), BAD.values(), ids=BAD)
def test_refused_and_left_alone(files: dict[str, int], says: str) -> None:
    disk = disk_with(files)
    with pytest.raises(StoreError, match=says):
        positions_in(disk, "d", 100)
    assert dict(disk.names("d")) == files


def test_files_that_can_be_rebuilt_are_forgiven() -> None:
    disk = disk_with({NAMES[0]: 100, NAMES[1]: 0, NAMES[2]: 100})
    assert positions_in(disk, "d", 100, forgive_empty=True) == [0]
    assert [name for name, _ in disk.names("d")] == NAMES[:1]


def test_another_segment_size_is_told() -> None:
    disk = SimulatedDisk()
    open_store(disk).stop()
    disk.rename("commitlog/" + file_name(0), "commitlog/" + file_name(4096))
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        open_store(disk)


def test_the_next_segment_is_made_ahead_and_used() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(6):
        append(store, b"%d" % i + b"x" * 1000)
    store.prepare()
    assert len(disk.names("commitlog")) == 2
    for i in range(6):
        append(store, b"%d" % i + b"y" * 1000)
    assert len(disk.names("commitlog")) == 2
    assert len(bodies(store)) == 12


def test_a_segment_that_cannot_be_made_ahead_is_tried_again_when_needed() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(6):
        append(store, b"%d" % i + b"x" * 1000)
    disk.plant("reserve", DiskFull("planted"))
    store.prepare()
    assert len(disk.names("commitlog")) == 1
    for i in range(6):
        append(store, b"%d" % i + b"y" * 1000)
    assert len(bodies(store)) == 12
