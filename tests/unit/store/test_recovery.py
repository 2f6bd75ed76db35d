"""Coming back: each kind of stop, each kind of damage, and the same messages afterwards."""

from __future__ import annotations

import struct
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.store.check import check
from ariane.store.checkpoint import Checkpoint, CheckpointFile
from ariane.store.store import Store

from .shelf import (
    HOST,
    SMALL,
    append,
    bodies,
    config_with,
    crash_during,
    keys_found,
    open_store,
    read_all,
)

LOG = f"commitlog/{0:020d}"


def killed(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.crash_image(Random(1), CrashMode.KILL)


def poke(disk: SimulatedDisk, path: str, position: int, data: bytes) -> None:
    """Change bytes of a file behind everybody's back."""
    size = dict(disk.names(path.rpartition("/")[0]))[path.rpartition("/")[2]]
    file = disk.mapped(path, size)
    file.buffer[position : position + len(data)] = data
    file.sync(0, size)


def life(count: int = 10, **settings: object) -> tuple[SimulatedDisk, Store, ManualClock]:
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock, config_with(**settings))
    for i in range(count):
        append(store, b"%d" % i, KEYS=f"k{i}")
    return disk, store, clock


def assert_whole(store: Store, disk: SimulatedDisk, count: int) -> None:
    assert bodies(store) == [b"%d" % i for i in range(count)]
    assert all(len(keys_found(store, "T", f"k{i}")) == 1 for i in range(count))
    report = check(disk, SMALL)
    assert report.problems == []


def test_a_kill_loses_nothing() -> None:
    disk, _, clock = life(100)
    image = killed(disk)
    assert_whole(open_store(image, clock), image, 100)


def test_repeated_kills_lose_no_key() -> None:
    disk, _, clock = life(20)
    for round_ in range(6):
        disk = killed(disk)
        store = open_store(disk, clock)
        if round_ % 2:
            store.checkpoint()
        for i in range(20 + round_ * 20, 40 + round_ * 20):
            append(store, b"%d" % i, KEYS=f"k{i}")
    disk = killed(disk)
    assert_whole(open_store(disk, clock), disk, 140)


def test_only_what_follows_the_claim_is_walked(caplog: pytest.LogCaptureFixture) -> None:
    disk, store, clock = life(50)
    store.checkpoint()
    claimed = store.written
    append(store, b"50", KEYS="k50")
    image = killed(disk)
    with caplog.at_level("INFO"):
        again = open_store(image, clock)
    assert f"log walked first={claimed} end={store.written} records=1" in caplog.text
    assert_whole(again, image, 51)


def test_a_torn_record_ends_the_log() -> None:
    disk, store, clock = life(10)
    last = append(store, b"torn" * 100)
    image = killed(disk)
    poke(image, LOG, last.log_offset + 200, b"\0" * 50)
    again = open_store(image, clock)
    assert again.written == last.log_offset
    assert_whole(again, image, 10)
    assert append(again, b"10", KEYS="k10").log_offset == last.log_offset


def test_a_stale_tail_never_comes_back() -> None:
    """A lost record in front of surviving ones: those are gone for good, through later crashes."""
    disk, store, clock = life(5)
    hole = append(store, b"hole" * 20)
    stale = append(store, b"stale" * 20)
    image = killed(disk)
    poke(image, LOG, hole.log_offset, bytes(hole.size))
    again = open_store(image, clock)
    assert again.written == hole.log_offset
    # Fill the hole exactly, so that a stale record would follow it without a seam.
    assert append(again, b"fill" * 20).end_offset == stale.log_offset
    again.flush()
    for mode in CrashMode:
        later = open_store(image.crash_image(Random(3), mode), clock)
        assert bodies(later) == [*(b"%d" % i for i in range(5)), b"fill" * 20]


def test_segments_behind_the_end_go() -> None:
    disk, store, clock = life(0)
    placed = [append(store, b"%d" % i + b"x" * 1000) for i in range(30)]
    image = killed(disk)
    poke(image, LOG, placed[3].log_offset, bytes(50))
    again = open_store(image, clock)
    assert again.written == placed[3].log_offset
    assert [name for name, _ in image.names("commitlog")] == [f"{0:020d}"]
    assert len(bodies(again)) == 3
    assert check(image, SMALL).is_sound


def test_an_empty_segment_made_ahead_is_no_harm() -> None:
    disk, store, clock = life(0)
    for i in range(7):
        append(store, b"%d" % i + b"x" * 1000)
    store.prepare()
    assert len(disk.names("commitlog")) == 2
    again = open_store(killed(disk), clock)
    assert len(bodies(again)) == 7


@pytest.mark.parametrize("was_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/T", "index"])
def test_what_was_removed_is_rebuilt(gone: str, was_killed: bool) -> None:
    disk, store, clock = life(100)
    append(store, b"other", "U", 3)
    store.checkpoint()
    if not was_killed:
        store.stop()
    image = killed(disk)
    image.remove_tree(gone)
    again = open_store(image, clock)
    assert_whole(again, image, 100)
    assert bodies(again, "U", 3) == [b"other"]


@pytest.mark.parametrize("gone", ["consumequeue/T", "index"])
def test_without_a_checkpoint_only_the_log_is_believed(gone: str) -> None:
    disk, store, clock = life(100)
    append(store, b"other", "U", 3)
    store.stop()
    disk.remove_tree(gone)
    disk.remove("checkpoint")
    again = open_store(disk, clock)
    assert_whole(again, disk, 100)
    assert bodies(again, "U", 3) == [b"other"]


def test_a_rebuilding_cut_short_is_done_again() -> None:
    disk, store, clock = life(100)
    for i in range(40):
        append(store, b"u%d" % i, "U")
    store.stop()
    base = killed(disk)
    base.remove_tree("consumequeue/U")
    for seed in range(60):
        random = Random(seed)
        image = base.crash_image(random, CrashMode.KILL)
        cut_short = crash_during(
            image,
            random,
            random.randrange(1, 80),
            lambda disk=image: Store.open(SMALL, disk, clock, store_host=HOST),
        )
        if cut_short is not None:
            again = open_store(cut_short, clock)
            assert bodies(again) == [b"%d" % i for i in range(100)]
            assert bodies(again, "U") == [b"u%d" % i for i in range(40)]
            assert check(cut_short, SMALL).is_sound


def test_entries_that_point_elsewhere_are_put_right() -> None:
    disk, _, clock = life(10)
    image = killed(disk)
    poke(image, f"consumequeue/T/0/{0:020d}", 20 * 4, struct.pack(">qiq", 999_999, 5, 7))
    poke(image, f"consumequeue/T/0/{0:020d}", 20 * 12, struct.pack(">qiq", 40, 5, 7))
    assert_whole(open_store(image, clock), image, 10)


def test_a_topic_made_anew_is_not_mixed_with_its_former_life() -> None:
    disk, store, clock = life(40)
    image_before = killed(disk)
    assert image_before.exists("consumequeue/T")
    store.delete_topic("T")
    for i in range(5):
        append(store, b"new%d" % i)
    image = killed(disk)
    poke(image, "checkpoint", 0, bytes(4096))  # so that the whole log is walked
    again = open_store(image, clock)
    assert bodies(again) == [b"new%d" % i for i in range(5)]
    assert check(image, SMALL).is_sound


def test_the_log_may_start_late_and_queues_with_it() -> None:
    disk, store, clock = life(0)
    for i in range(60):
        append(store, b"%d" % i + b"x" * 500, KEYS=f"k{i}")
    store.checkpoint()
    disk.used_ratio = 0.88
    assert store.clean() == 4
    first = store.min_offset("T", 0)
    store.stop()
    image = killed(disk)
    image.remove_tree("consumequeue")
    image.remove_tree("index")
    again = open_store(image, clock)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (first, 60)
    assert [m.queue_offset for m in read_all(again)] == list(range(first, 60))
    again.stop()
    assert check(image, SMALL).is_sound


def test_without_a_log_queues_keep_their_numbers() -> None:
    disk, store, clock = life(40)
    store.stop()
    image = killed(disk)
    image.remove_tree("commitlog")
    again = open_store(image, clock)
    assert again.written >= store.written
    assert again.written % SMALL.segment_bytes == 0
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (40, 40)
    assert append(again, b"on").queue_offset == 40
    assert bodies(again) == [b"on"]


@pytest.mark.parametrize(
    "path",
    [f"commitlog/{8192:020d}", f"consumequeue/T/0/{600:020d}", "index/99999999999999999"],
)
def test_a_file_without_length_at_the_end_is_forgiven(path: str) -> None:
    disk, _, clock = life(30)
    image = killed(disk)
    image.write(path, b"")
    assert_whole(open_store(image, clock), image, 30)


def test_a_claim_beyond_the_log_is_set_aside() -> None:
    disk, store, clock = life(0)
    for i in range(20):
        append(store, b"%d" % i + b"x" * 1000)
    store.stop()
    image = killed(disk)
    image.remove(f"commitlog/{8192:020d}")
    image.remove(f"commitlog/{16384:020d}")
    again = open_store(image, clock)
    assert again.written <= 8192
    assert len(bodies(again)) == 7
    again.stop()
    assert check(image, SMALL).is_sound


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_entries_behind_the_end_of_a_log_go_however_it_was_stopped(has_checkpoint: bool) -> None:
    disk, store, clock = life(4)
    store.delete_topic("T")
    for i in range(3):
        append(store, b"%d" % i)
    while store.written < 8192:
        append(store, b"filler" * 100, "U")
    for i in range(3, 6):
        append(store, b"%d" % i)
    store.stop()
    disk.remove(f"commitlog/{8192:020d}")
    if not has_checkpoint:
        disk.remove("checkpoint")
    again = open_store(disk, clock)
    append(again, b"3 again")
    assert bodies(again) == [b"0", b"1", b"2", b"3 again"]
    again.stop()
    assert check(disk, SMALL).is_sound


def test_after_apache_was_killed_its_times_decide() -> None:
    """No claim, an abort mark: walk from the segment that Apache's rule names, repair the index."""
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock)
    for i in range(60):
        append(store, b"%d" % i + b"x" * 500, KEYS=f"k{i}")
        clock.advance(1)
    now_ms = store.log.last_store_ms
    image = killed(disk)
    file = CheckpointFile(image)
    file.save(Checkpoint(now_ms - 10_000, now_ms - 10_000, 0))
    poke(image, f"consumequeue/T/0/{600:020d}", 20 * 25, bytes(20 * 5))  # not dispatched yet
    again = open_store(image, clock)
    assert [m.queue_offset for m in read_all(again)] == list(range(60))
    assert all(len(keys_found(again, "T", f"k{i}")) == 1 for i in range(60))
    assert check(image, SMALL).is_sound


def test_a_torn_index_page_costs_no_key_without_a_claim() -> None:
    for seed in range(40):
        disk, clock = SimulatedDisk(), ManualClock()
        store = open_store(disk, clock)
        for i in range(60):
            append(store, b"%d" % i, KEYS=f"k{i}")
        image = killed(disk)
        CheckpointFile(image).save(Checkpoint())
        random = Random(seed)
        name, size = random.choice(image.names("index"))
        at = random.randrange(0, size - 200)
        poke(image, f"index/{name}", at, bytes(200))
        again = open_store(image, clock)
        assert all(keys_found(again, "T", f"k{i}") for i in range(60)), seed
        assert check(image, SMALL).is_sound


def test_staged_records_point_only_at_what_was_copied() -> None:
    disk, store, clock = life(20, transient_pool_enabled=True)
    store.checkpoint()
    for i in range(20, 40):
        append(store, b"%d" % i, KEYS=f"k{i}")
    image = killed(disk)
    assert_whole(open_store(image, clock), image, 20)
