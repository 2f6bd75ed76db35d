"""Configuration files survive a crash at any step, and damage of one copy."""

from __future__ import annotations

import json
from random import Random

import pytest

from ariane.disk import CrashMode, SimulatedDisk
from ariane.errors import CorruptFile
from ariane.store.config_files import load, persist

PATH = "config/topics.json"


def disk_with(**files: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("config")
    for name, data in files.items():
        disk.write({"file": PATH, "backup": f"{PATH}.bak"}[name], data)
    return disk


CASES: dict[str, tuple[dict[str, bytes], object]] = {
    "nothing there": ({}, None),
    "the file": ({"file": b"[1]"}, [1]),
    "the file before its backup": ({"file": b"[1]", "backup": b"[0]"}, [1]),
    "missing": ({"backup": b"[0]"}, [0]),
    "empty": ({"file": b"", "backup": b"[0]"}, [0]),
    "blank": ({"file": b" \n", "backup": b"[0]"}, [0]),
    "unreadable": ({"file": b"[1", "backup": b"[0]"}, [0]),
    "empty both": ({"file": b"", "backup": b""}, None),
}


@pytest.mark.parametrize(("files", "value"), CASES.values(), ids=CASES)
def test_the_best_copy_is_used(files: dict[str, bytes], value: object) -> None:
    assert load(disk_with(**files), PATH, json.loads) == value


@pytest.mark.parametrize(
    "files", [{"file": b"{"}, {"backup": b"{"}, {"file": b"{", "backup": b"}"}], ids=str
)
def test_nothing_readable_stops_the_start(files: dict[str, bytes]) -> None:
    with pytest.raises(CorruptFile, match=r"topics\.json"):
        load(disk_with(**files), PATH, json.loads)


def test_a_damaged_file_is_set_aside_and_cannot_spoil_the_backup() -> None:
    disk = disk_with(file=b"[1", backup=b"[0]")
    load(disk, PATH, json.loads)
    assert disk.read(f"{PATH}.damaged") == b"[1"
    persist(disk, PATH, b"[2]")
    assert (disk.read(PATH), disk.read(f"{PATH}.bak")) == (b"[2]", b"[0]")


def test_every_step_of_a_write_leaves_the_old_or_the_new() -> None:
    disk = SimulatedDisk()
    persist(disk, PATH, b"[1]")
    disk.sync_directory("")
    persist(disk, PATH, json.dumps(list(range(3000))).encode())
    old = list(range(3000))
    seen = set()

    def look(kind: str, path: str) -> None:
        for seed in range(30):
            for mode in CrashMode:
                found = load(disk.crash_image(Random(seed), mode), PATH, json.loads)
                assert found in (old, [9])
                seen.add(len(found))

    disk.on_operation = look
    persist(disk, PATH, b"[9]")
    assert seen == {1, 3000}


def test_the_directory_of_the_first_file_is_there_after_a_power_cut() -> None:
    disk = SimulatedDisk()
    persist(disk, PATH, b"[1]")
    assert load(disk.crash_image(Random(1), CrashMode.DROP), PATH, json.loads) == [1]
