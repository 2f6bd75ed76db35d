"""The checker: silent about a sound store, and never silent about damage."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, RealDisk, SimulatedDisk
from ariane.disk.simulated import SimulatedFile
from ariane.store import check as checking
from ariane.store import check_index
from ariane.store.check import check
from ariane.store.store import Store

from .shelf import HOST, SMALL, append, batch, config_with, open_store

QUEUE = f"consumequeue/T/0/{0:020d}"


def stopped() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(40):
        append(store, b"%d" % i + b"x" * 300, KEYS=f"k{i}")
    append(store, b"u", "U", 1)
    store.append_batch(batch([b"a", b"b"]))
    store.stop()
    return disk


def test_a_sound_store_has_no_problems() -> None:
    report = check(stopped(), SMALL)
    assert report.is_sound and report.warnings == []
    assert (report.record_count, report.queue_count, report.queue_entry_count) == (43, 2, 43)
    assert (report.segment_count, report.index_file_count, report.key_count) == (3, 2, 83)


def checkpointed(count: int) -> tuple[SimulatedDisk, Store]:
    """A running store with so many messages, two keys each, all covered by a checkpoint."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(count):
        append(store, b"%d" % i, KEYS=f"k{i}")
    store.checkpoint()
    return disk, store


def killed_after_a_checkpoint() -> SimulatedDisk:
    disk, store = checkpointed(5)
    for i in range(5, 8):
        append(store, b"%d" % i, KEYS=f"k{i}")
    return disk.crash_image(Random(1), CrashMode.KILL)


def test_what_a_killed_broker_kept_back_is_no_damage() -> None:
    disk = killed_after_a_checkpoint()
    entries = disk.mapped(QUEUE, SMALL.queue_file_bytes).buffer
    entries[6 * 20 : 8 * 20] = bytes(2 * 20)
    report = check(disk, SMALL)
    assert report.is_sound
    assert len(report.warnings) == 1
    assert "2 queue entries and 6 keys" in report.warnings[0]
    open_store(disk).stop()
    report = check(disk, SMALL)
    assert report.is_sound and report.warnings == []
    assert (report.queue_entry_count, report.key_count) == (8, 16)


def killed_in_its_last_write() -> tuple[SimulatedDisk, int]:
    """A store whose last record is there but for its end, and where that record begins."""
    disk, store = checkpointed(5)
    append(store, b"whole")
    last = append(store, b"torn" * 50)
    image = disk.crash_image(Random(1), CrashMode.KILL)
    log = image.mapped(f"commitlog/{0:020d}", SMALL.segment_bytes).buffer
    log[last.log_offset + 150 : last.end_offset] = bytes(last.size - 150)
    return image, last.log_offset


def test_a_record_that_a_kill_cut_short_is_no_damage() -> None:
    disk, torn = killed_in_its_last_write()
    report = check(disk, SMALL)
    assert report.is_sound
    assert f"killed while it wrote the record at log offset {torn}" in report.warnings[0]
    assert "1 queue entries are of records that it had not written yet" in report.warnings[-1]
    open_store(disk).stop()
    report = check(disk, SMALL)
    assert report.is_sound and report.warnings == []


def test_one_with_sound_records_behind_it_is() -> None:
    disk, torn = killed_in_its_last_write()
    log = disk.mapped(f"commitlog/{0:020d}", SMALL.segment_bytes).buffer
    record = bytearray(log[: struct.unpack_from(">i", log)[0]])
    behind = torn + 1000
    struct.pack_into(">q", record, 28, behind)
    log[behind : behind + len(record)] = record
    assert f"record at log offset {torn} is damaged" in check(disk, SMALL).problems[0]


@pytest.mark.parametrize(
    "path",
    [f"commitlog/{8192:020d}", f"consumequeue/T/0/{600:020d}", "index/99999999999999999"],
)
def test_a_file_that_a_kill_left_without_length_is_no_damage(path: str) -> None:
    disk = killed_after_a_checkpoint()
    disk.write(path, b"")
    report = check(disk, SMALL)
    assert report.is_sound
    assert f"killed while it made {path}" in report.warnings[0]
    disk.remove("abort")
    assert any("has 0 bytes" in problem for problem in check(disk, SMALL).problems)


def slots_in_files(disk: SimulatedDisk) -> list[bool]:
    """Of each index file, whether any slot is set."""
    names = [name for name, _ in disk.names("index")]
    return [any(disk.read(f"index/{name}")[40 : 40 + 4 * 7]) for name in names]


def test_the_slots_of_a_file_that_takes_keys_are_in_it_once_it_is_full_or_the_store_stops() -> None:
    disk, store = checkpointed(30)
    assert slots_in_files(disk) == [True, False], "49 keys a file"
    killed = disk.crash_image(Random(1), CrashMode.KILL)
    assert check(killed, SMALL).is_sound
    store.stop()
    assert slots_in_files(disk) == [True, True]
    assert check(disk, SMALL).is_sound
    again = open_store(killed)
    for i in range(30):
        found = again.query("T", f"k{i}", begin_ms=0, end_ms=1 << 60, count_max=9)
        assert found.message_count == 1
    again.stop()
    assert check(killed, SMALL).is_sound


def test_the_slots_of_a_full_file_must_be_there_after_a_kill() -> None:
    disk, _ = checkpointed(30)
    killed = disk.crash_image(Random(1), CrashMode.KILL)
    path = index_of(killed)
    killed.mapped(path, dict(killed.names("index"))[path.partition("/")[2]]).buffer[40:68] = bytes(
        28
    )
    assert "slots or chains" in check(killed, SMALL).problems[0]


def test_what_the_checkpoint_covers_must_be_there_after_a_kill() -> None:
    disk = killed_after_a_checkpoint()
    disk.mapped(QUEUE, SMALL.queue_file_bytes).buffer[4 * 20 :] = bytes(
        SMALL.queue_file_bytes - 4 * 20
    )
    assert check(disk, SMALL).problems == [
        "queue 0 of T ends at 4, but the log has messages up to 8"
    ]


def test_progress_is_told_segment_by_segment() -> None:
    told: list[tuple[int, int]] = []
    check(stopped(), SMALL, progress=lambda walked, total: told.append((walked, total)))
    size = SMALL.segment_bytes
    assert told == [(size, 3 * size), (2 * size, 3 * size), (3 * size, 3 * size)]


def test_an_empty_directory_is_sound() -> None:
    assert check(SimulatedDisk(), SMALL).is_sound


def test_files_that_may_only_be_read_are_enough(tmp_path: Path) -> None:
    store = Store.open(SMALL, RealDisk(tmp_path), ManualClock(), store_host=HOST)
    store.start()
    store.append_batch(batch([b"a", b"b"]))
    store.stop()
    for path in tmp_path.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    assert check(RealDisk(tmp_path), SMALL).record_count == 2


def test_a_directory_that_is_no_queue_is_passed_over() -> None:
    disk = stopped()
    disk.make_directory("consumequeue/T/99999999999")
    assert check(disk, SMALL).is_sound


def index_of(disk: SimulatedDisk) -> str:
    return f"index/{disk.names('index')[0][0]}"


# What is damaged, where, with which bytes, and what the checker must say.
DAMAGE = {
    "a body": (f"commitlog/{0:020d}", 150, b"!", "the log is damaged from 0 to"),
    "a record's own offset": (f"commitlog/{0:020d}", 35, b"!", "is damaged"),
    "a queue entry's offset": (QUEUE, 0, struct.pack(">q", 77), "queue 0 of T, entry 0: is"),
    "a queue entry's size": (QUEUE, 28, struct.pack(">i", 77), "queue 0 of T, entry 1: is"),
    "a queue entry's tag": (QUEUE, 52, struct.pack(">q", 77), "queue 0 of T, entry 2: is"),
    "a missing queue entry": (QUEUE, 60, bytes(20), "ends at 3"),
    "an entry too many": (
        f"consumequeue/U/1/{0:020d}",
        20,
        struct.pack(">qiq", 8192, 500, 0),
        "queue 1 of U, entry 1: is",
    ),
    "an index slot": (None, 40, bytes(4 * 7), "slots or chains"),
    "an index chain": (None, 40 + 28 + 20 * 30 + 16, b"\0\0\0\1", "slots or chains"),
    "an index entry's offset": (None, 40 + 28 + 20 + 4, struct.pack(">q", 5), "lacks keys"),
    "an index entry's hash": (None, 40 + 28 + 20 * 9, b"\0\0\0\1", "lacks keys|slots or chains"),
}


@pytest.mark.parametrize(("path", "at", "data", "says"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told(path: str | None, at: int, data: bytes, says: str) -> None:
    disk = stopped()
    path = path or index_of(disk)
    directory, _, name = path.rpartition("/")
    disk.mapped(path, dict(disk.names(directory))[name]).buffer[at : at + len(data)] = data
    before = disk.read(path)
    report = check(disk, SMALL)
    assert not report.is_sound
    assert any(re.search(says, problem) for problem in report.problems)
    assert disk.read(path) == before


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"commitlog/{8192:020d}", "does not follow"),
        (QUEUE, "queue 0 of T starts at 30"),
        ("consumequeue/T/0", "queue 0 of T is missing"),
    ],
)
def test_missing_files_are_told(path: str, says: str) -> None:
    disk = stopped()
    disk.make_directory("consumequeue/T/1")
    disk.remove(path)
    disk.remove_tree(path)
    report = check(disk, SMALL)
    assert any(re.search(says, problem) for problem in report.problems)


def test_strays_and_wrong_sizes_are_told() -> None:
    disk = stopped()
    disk.write("commitlog/.DS_Store", b"x")
    disk.write(f"consumequeue/T/0/{1200:020d}", b"short")
    disk.write("index/20990101000000000", b"short")
    problems = "\n".join(check(disk, SMALL).problems)
    assert ".DS_Store does not belong there" in problems
    assert "has 5 bytes and should have 600" in problems
    assert "index/20990101000000000 has 5 bytes" in problems


def test_an_index_of_another_size_is_told_once() -> None:
    disk = stopped()
    problems = check(disk, config_with(index_slot_count=9)).problems
    assert len(problems) == len(disk.names("index"))
    assert all("by maxHashSlotNum and maxIndexNum" in problem for problem in problems)


def test_a_checkpoint_ahead_of_the_log_is_told() -> None:
    disk = stopped()
    last = disk.names("commitlog")[-1][0]
    disk.mapped(f"commitlog/{last}", 8192).buffer[:] = bytes(8192)
    assert any("the checkpoint covers" in problem for problem in check(disk, SMALL).problems)


def test_a_walk_in_windows_finds_the_same_and_lets_go_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = stopped()
    disk.mapped(f"commitlog/{8192:020d}", 8192).buffer[150:151] = b"!"
    at_once = check(disk, SMALL)
    forgotten: dict[str, list[tuple[int, int]]] = {}
    told: list[int] = []
    monkeypatch.setattr(
        SimulatedFile,
        "forget",
        lambda file, first, end: forgotten.setdefault(file.path, []).append((first, end)),
    )
    monkeypatch.setattr(checking, "WINDOW_BYTES", 1000)
    monkeypatch.setattr(check_index, "STRETCH_BYTES", 3 * 20)
    assert check(disk, SMALL, progress=lambda walked, _: told.append(walked)) == at_once
    assert told == sorted(told) and len(told) > 10
    log = forgotten[f"commitlog/{0:020d}"]
    assert [end for _, end in log if end < 8000] == [1000 * i for i in range(1, 8)]
    assert forgotten[QUEUE] == [(0, SMALL.queue_file_bytes)]
    entries = forgotten[index_of(disk)]
    assert [first for first, _ in entries[1:]] == [end for _, end in entries[:-1]]


def test_keys_are_compared_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_index, "GATHERED_MAX", 8)
    disk = stopped()
    assert check(disk, SMALL).key_count == 83
    path = index_of(disk)
    size = dict(disk.names("index"))[path.partition("/")[2]]
    disk.mapped(path, size).buffer[68 + 20 : 68 + 20 * 27] = bytes(20 * 26)  # 13 records' keys
    problems = check(disk, SMALL).problems
    assert sum("lacks keys of the record at" in problem for problem in problems) == 10
    assert "the index lacks keys of 13 records in all" in problems
