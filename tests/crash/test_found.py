"""What the campaign has found, each as the smallest life that shows it."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import CrashMode, RealDisk, SimulatedDisk
from ariane.errors import StoreError, StoreReadOnly
from ariane.store import background
from ariane.store.check import check
from ariane.store.store import Store
from tests.unit.store.shelf import (
    HOST,
    SMALL,
    append,
    bodies,
    config_with,
    keys_found,
    open_store,
)

from .lanes import Lanes, SteppedLane

IO_ERROR = OSError(errno.EIO, "Input/output error")


def stepped(
    monkeypatch: pytest.MonkeyPatch, disk: SimulatedDisk, config: StoreConfig = SMALL
) -> tuple[Store, Lanes]:
    """A store whose background work waits to be told."""
    monkeypatch.setattr(background, "ThreadLane", SteppedLane)
    lanes = Lanes(Random(1))
    store = Store.open(config, disk, ManualClock(), store_host=HOST, post=lanes)
    store.start()
    return store, lanes


def test_a_checkpoint_under_way_does_not_claim_a_topic_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    store, lanes = stepped(monkeypatch, disk)
    append(store, b"gone")
    append(store, b"stays", "U")
    store.checkpoint()  # waits for the log to be flushed
    store.delete_topic("T")
    lanes.settle()
    again = open_store(disk.crash_image(Random(1), CrashMode.KILL))
    assert again.topics() == {"U": [0]}


def test_a_deletion_cut_short_brings_no_other_topic_back() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"gone", "Gone")
    store.delete_topic("Gone")
    for i in range(40):
        append(store, b"%d" % i)
    store.checkpoint()
    append(store, b"40")
    images: list[SimulatedDisk] = []
    disk.on_operation = lambda kind, path: images.extend(
        disk.crash_image(Random(len(images)), mode) for mode in CrashMode
    )
    store.delete_topic("T")
    assert len(images) > 20
    for image in images:
        again = open_store(image)
        assert "Gone" not in again.topics()
        again.delete_topic("T")
        assert again.topics() == {}
        assert check(image, SMALL).is_sound


@pytest.mark.parametrize("lost", ["checkpoint", "consumequeue"])
def test_deleted_messages_stay_deleted_when_queues_are_read_from_the_log_again(lost: str) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(60):
        append(store, b"old %d" % i)
        append(store, b"old %d" % i, queue_id=1)
        append(store, b"old %d" % i, "Gone")
    store.delete_topic("T")
    store.delete_topic("Gone")
    for i in range(3):
        append(store, b"new %d" % i)
    store.stop()
    disk.remove_tree(lost)
    disk.remove(lost)
    again = open_store(disk)
    assert again.topics() == {"T": [0]}
    assert bodies(again) == [b"new 0", b"new 1", b"new 2"]
    assert again.max_offset("T", 1) == again.max_offset("Gone", 0) == 0
    append(again, b"made anew", "Gone")
    assert bodies(again, "Gone") == [b"made anew"]
    again.stop()
    assert check(disk, SMALL).is_sound


def test_a_deletion_says_nothing_about_a_log_that_is_begun_again() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(60):
        append(store, b"old %d" % i)
    store.delete_topic("T")
    store.stop()
    for directory in ("commitlog", "consumequeue", "index"):
        disk.remove_tree(directory)
    for turn in range(2):
        again = open_store(disk)
        append(again, b"%d" % turn)
        again.stop()
    assert bodies(open_store(disk)) == [b"0", b"1"]


def test_a_segment_that_cannot_be_made_refuses_the_message() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"x" * 4000)
    append(store, b"y" * 3500)
    disk.plant("sync", IO_ERROR)
    with pytest.raises(StoreError, match="Input/output error"):
        append(store, b"z" * 4000)
    append(store, b"z" * 4000)
    assert [body[:1] for body in bodies(store)] == [b"x", b"y", b"z"]


def test_a_topic_is_not_deleted_when_the_checkpoint_cannot_be_written() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"stays")
    store.checkpoint()
    disk.plant("sync", IO_ERROR)
    with pytest.raises(StoreReadOnly, match="Input/output error"):
        store.delete_topic("T")
    with pytest.raises(StoreReadOnly):
        store.delete_topic("T")
    assert bodies(store) == [b"stays"]
    assert bodies(open_store(disk.crash_image(Random(1), CrashMode.DROP))) == [b"stays"]


def test_names_a_killed_process_left_unsynced_are_synced_before_they_are_claimed() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"gone", "Gone")
    store.delete_topic("Gone")
    append(store, b"stays")  # in a directory that no power cut spares yet
    killed = disk.crash_image(Random(1), CrashMode.KILL)
    open_store(killed).checkpoint()
    image = killed.crash_image(Random(1), CrashMode.DROP)
    again = open_store(image)
    assert bodies(again) == [b"stays"]
    assert "Gone" not in again.topics()  # as it would be, had the whole log been read


def test_a_segment_whose_name_a_killed_process_left_unsynced_is_safe_to_write_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"x" * 4000)
    images: list[SimulatedDisk] = []

    def look(kind: str, path: str) -> None:
        if path == f"commitlog/{8192:020d}":
            store.log.seal()  # as if it had been full when it was killed
            images.append(disk.crash_image(Random(1), CrashMode.KILL))

    disk.on_operation = look
    store._segments.create(8192)
    assert len(images) == 4
    for killed in images:
        again, lanes = stepped(monkeypatch, killed)
        append(again, b"y" * 4000)
        again.flush()
        lanes.finish("flush")
        assert again.flushed == again.written
        assert len(bodies(open_store(killed.crash_image(Random(1), CrashMode.DROP)))) == 2


def test_a_segment_that_comes_back_finds_its_queues_and_keys() -> None:
    """Names in different directories reach the platter in any order unless they are synced."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(60):
        append(store, b"%d" % i + b"x" * 500)
    store.checkpoint()
    images: list[SimulatedDisk] = []
    disk.on_operation = lambda kind, path: images.extend(
        disk.crash_image(Random(seed), CrashMode.MIXED) for seed in range(20)
    )
    disk.used_ratio = 0.88
    store.clean()
    assert len(images) > 100
    for image in images:
        again = open_store(image)
        assert check(image, SMALL).problems == []
        assert bodies(again)[-1].startswith(b"59")


def test_a_queue_without_entries_is_not_claimed() -> None:
    """Made for a message that then found the disk full, its file has not even a length yet."""
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"gone", "Gone")
    store.delete_topic("Gone")
    append(store, b"stays")
    store.queue("Empty", 0)
    store._queues.make_room(store.queue("Empty", 0))
    store.checkpoint()
    again = open_store(disk.crash_image(Random(1), CrashMode.DROP))
    assert again.topics() == {"T": [0]}


def test_a_queue_made_anew_and_not_used_yet_is_sound() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"gone")
    store.delete_topic("T")
    append(store, b"stays", "U")
    store._queues.make_room(store.queue("T", 0))
    store.checkpoint()
    assert check(disk, SMALL).is_sound
    for topic in ("T", "U"):
        append(store, b"more", topic)
    store.checkpoint()
    disk.mapped(f"consumequeue/U/0/{0:020d}", SMALL.queue_file_bytes).zero(0, 100)
    assert not check(disk, SMALL).is_sound


def test_a_deletion_that_fails_half_way_ends_writing() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(40):
        append(store, b"%d" % i)
    disk.plant("remove", IO_ERROR, after=1)
    with pytest.raises(StoreReadOnly, match="deleting the queues of T failed"):
        store.delete_topic("T")
    store.stop()
    again = open_store(disk)
    again.delete_topic("T")
    assert again.topics() == {}


def test_a_segment_that_could_not_be_removed_leaves_no_hole() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for turn in range(2):
        for i in range(60):
            append(store, b"%d %d" % (turn, i) + b"x" * 500)
        store.checkpoint()
        if turn == 0:
            disk.plant("remove", IO_ERROR, after=1)
        disk.used_ratio = 0.88
        store.clean()
        disk.used_ratio = None
        image = disk.crash_image(Random(1), CrashMode.KILL)
        assert bodies(open_store(image))[-1].startswith(b"%d 59" % turn)
        assert check(image, SMALL).is_sound


def test_a_stop_that_fails_lets_go_of_the_store() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"1")
    disk.plant("remove", IO_ERROR)  # of the mark of a store in use
    store.stop()
    assert store.read_only_reason is not None
    assert bodies(open_store(disk)) == [b"1"]


def test_the_numbers_of_a_queue_outlive_its_messages_and_the_power() -> None:
    """Its first file may go only when an entry of the next one is on the platter."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(30):  # a queue file full
        append(store, b"%d" % i + b"x" * 500)
    append(store, b"x" * 4000, "U")
    append(store, b"x" * 4000, "U")
    store.checkpoint()
    append(store, b"not flushed")
    disk.used_ratio = 0.88
    store.clean()
    for seed in range(30):
        again = open_store(disk.crash_image(Random(seed), CrashMode.MIXED))
        assert again.max_offset("T", 0) in (30, 31)
        assert again.min_offset("T", 0) == 30


def test_a_first_start_cut_short_leaves_a_segment_safe_to_write_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no mark of a store in use yet that would tell of it."""
    disk = SimulatedDisk()
    images: list[SimulatedDisk] = []

    def look(kind: str, path: str) -> None:
        if path == f"commitlog/{0:020d}" or (kind, path) == ("sync_directory", "commitlog"):
            images.append(disk.crash_image(Random(1), CrashMode.KILL))

    disk.on_operation = look
    open_store(disk)
    assert len(images) == 6
    for killed in images:
        store, lanes = stepped(monkeypatch, killed)
        append(store, b"1")
        store.flush()
        lanes.finish("flush")
        assert killed.unreserved_writes() == []
        assert bodies(open_store(killed.crash_image(Random(1), CrashMode.DROP))) == [b"1"]
        append(store, b"x" * 4000)
        append(store, b"x" * 4000)  # in another segment
        assert len(bodies(open_store(killed.crash_image(Random(1), CrashMode.DROP)))) >= 1


def test_the_newest_index_file_is_not_taken_for_complete() -> None:
    """Whoever wrote last left no claim, and everything happened within one millisecond."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(70):
        append(store, b"%d" % i)
    store.checkpoint()
    append(store, b"70")
    killed = disk.crash_image(Random(1), CrashMode.KILL)
    killed.write("checkpoint", killed.read("checkpoint")[:1024].ljust(4096, b"\0"))
    open_store(killed)
    again = open_store(killed.crash_image(Random(1), CrashMode.DROP))
    assert keys_found(again, "T", "70")


def test_a_log_on_a_real_disk_is_written_anew_after_a_failed_sync(tmp_path: Path) -> None:
    config = config_with(disk_stop_ratio=1.0, force_clean_enabled=False)
    store = open_store(RealDisk(tmp_path), config=config)
    for i in range(40):
        append(store, b"%d" % i + b"x" * 500)
    store._files.mark_failed()
    store._lock.release()  # as if it had been killed
    again = open_store(RealDisk(tmp_path), config=config)
    assert [int(body.partition(b"x")[0]) for body in bodies(again)] == list(range(40))
    again.stop()
    assert check(RealDisk(tmp_path), config).is_sound


def test_a_start_that_met_a_failed_sync_is_remembered_by_the_next() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"x" * 4000)
    append(store, b"y" * 3000)
    killed = disk.crash_image(Random(1), CrashMode.KILL)
    for fault in range(20):
        image = killed.crash_image(Random(1), CrashMode.KILL)
        image.plant("sync", IO_ERROR, after=fault)
        with suppress(StoreError):
            open_store(image)
        image = image.crash_image(Random(1), CrashMode.KILL)  # nor did it stop cleanly
        again = open_store(image)
        assert again.flushed == again.written
        append(again, b"z" * 1000)
        again.flush()
        found = bodies(open_store(image.crash_image(Random(1), CrashMode.DROP)))
        assert [body[:1] for body in found] == [b"x", b"y", b"z"], fault


def test_an_index_file_made_by_a_start_cut_short_is_synced_before_it_is_claimed() -> None:
    disk = SimulatedDisk()
    images: list[SimulatedDisk] = []
    disk.on_operation = lambda kind, path: images.append(
        disk.crash_image(Random(1), CrashMode.KILL)
    )
    open_store(disk)
    for killed in images:
        store = open_store(killed)
        append(store, b"gone", "Gone")
        store.delete_topic("Gone")
        append(store, b"stays")
        store.checkpoint()
        again = open_store(killed.crash_image(Random(1), CrashMode.DROP))
        assert again.topics() == {"T": [0]}  # and not what reading the whole log brings back
        assert keys_found(again, "T", "stays")


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/U", "consumequeue/U/1"])
def test_queues_removed_by_hand_after_a_deletion_cut_short_are_rebuilt(lost: str) -> None:
    """The checkpoint goes on counting the queues of the other topics while one is deleted."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(40):
        append(store, b"%d" % i, "Gone", i % 2)
        append(store, b"%d" % i, "U", i % 2)
    images: list[SimulatedDisk] = []

    def take_image(kind: str, path: str) -> None:
        if kind.startswith("remove") and "consumequeue/Gone" in path:
            images.append(disk.crash_image(Random(1), CrashMode.KILL))

    disk.on_operation = take_image
    store.delete_topic("Gone")
    assert len(images) > 1
    for image in images:
        image.remove_tree(lost)
        assert any("queue 1 of U is missing" in problem for problem in check(image, SMALL).problems)
        again = open_store(image)
        assert again.topics() == {"U": [0, 1]}
        assert bodies(again, "U", 1) == [b"%d" % i for i in range(1, 40, 2)]
        assert check(image, SMALL).is_sound


@pytest.mark.parametrize("was_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("place", [0, 1, 2, 3], ids=["first", "second", "third", "last"])
def test_a_queue_file_removed_by_hand_is_rebuilt(place: int, was_killed: bool) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(100):
        append(store, b"%d" % i)
        append(store, b"%d" % i, "U")
    store.checkpoint()
    if not was_killed:
        store.stop()
    image = disk.crash_image(Random(1), CrashMode.KILL)
    image.remove(f"consumequeue/T/0/{place * SMALL.queue_file_bytes:020d}")
    assert not check(image, SMALL).is_sound
    again = open_store(image)
    assert bodies(again) == bodies(again, "U") == [b"%d" % i for i in range(100)]
    assert check(image, SMALL).is_sound


def test_a_rebuilding_around_a_missing_file_may_be_cut_short() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(100):
        append(store, b"%d" % i)
    store.stop()
    disk.remove("checkpoint")  # nobody has counted
    disk.remove(f"consumequeue/T/0/{SMALL.queue_file_bytes:020d}")
    images: list[SimulatedDisk] = []
    disk.on_operation = lambda kind, path: images.extend(
        disk.crash_image(Random(len(images)), mode) for mode in CrashMode
    )
    Store.open(SMALL, disk, ManualClock(), store_host=HOST)
    assert len(images) > 10
    for image in images:
        again = open_store(image)
        assert bodies(again) == [b"%d" % i for i in range(100)]
        assert check(image, SMALL).is_sound
