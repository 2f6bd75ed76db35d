"""Watermarks: what is flushed, what may be seen, and what a failed sync means."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.errors import StoreError, StoreReadOnly
from ariane.store.checkpoint import CheckpointFile
from ariane.store.messages import FoundStatus
from ariane.store.store import Store

from .shelf import HOST, SMALL, append, bodies, config_with, keys_found, open_store

SYNC = config_with(flush_mode="SYNC_FLUSH")
IO_ERROR = OSError(errno.EIO, "Input/output error")


def test_asynchronous_appends_are_seen_at_once_and_flushed_in_time() -> None:
    clock = ManualClock()
    store = open_store(clock=clock)
    moved = []
    store.on_advance.append(lambda: moved.append(store.flushed))
    append(store, b"1")
    assert (store.visible, store.flushed) == (store.written, 0)
    store.tick()
    clock.advance(0.4)
    store.tick()
    assert store.flushed == 0
    clock.advance(0.2)
    store.tick()
    assert store.flushed == store.written
    assert moved == [store.written]


def test_synchronous_appends_are_flushed_before_they_are_seen() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, config=SYNC)
    seen = []

    def look(kind: str, path: str) -> None:
        if kind == "sync" and path.startswith("commitlog"):
            seen.append((store.written > store.visible, bodies(store)))

    disk.on_operation = look
    append(store, b"1")
    append(store, b"2")
    assert seen == [(True, []), (True, [b"1"])]
    assert store.flushed == store.visible == store.written
    image = disk.crash_image(Random(1), CrashMode.DROP)
    assert bodies(open_store(image, config=SYNC)) == [b"1", b"2"]


def test_one_sync_covers_everybody_who_came_during_the_one_before() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, config=SYNC)
    syncs = []
    disk.on_operation = lambda kind, path: syncs.append(path) if kind == "sync" else None
    flusher = store._flusher  # the only way to be in the middle of a sync without a thread
    flusher._is_busy = True
    for i in range(10):
        append(store, b"%d" % i)
    assert (store.flushed, store.max_offset("T", 0)) == (0, 0)
    assert store.read("T", 0, 0, count_max=1).status is FoundStatus.NO_MESSAGE_IN_QUEUE
    flusher._is_busy = False
    append(store, b"last")
    assert store.flushed == store.written
    assert [path for path in syncs if path.startswith("commitlog")] == [f"commitlog/{0:020d}"]


@pytest.mark.parametrize("config", [SMALL, SYNC], ids=["async", "sync"])
def test_a_failed_sync_is_never_a_success(config: object) -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    store = Store.open(config, disk, clock, store_host=HOST)  # type: ignore[arg-type]
    store.start()
    append(store, b"safe")
    store.flush()
    safe = store.flushed
    told = []
    store.on_advance.append(lambda: told.append(store.read_only_reason))
    disk.plant("sync", IO_ERROR)
    append(store, b"lost")
    store.flush()
    assert store.flushed == safe < store.written
    assert store.read_only_reason is not None and "Input/output error" in store.read_only_reason
    assert told and told[-1] == store.read_only_reason
    with pytest.raises(StoreReadOnly, match="read-only until the disk is repaired"):
        append(store, b"refused")
    syncs: list[str] = []
    disk.on_operation = lambda kind, path: syncs.append(kind) if kind == "sync" else None
    for _ in range(30):
        clock.advance(1)
        store.tick()
    store.flush()
    store.checkpoint()
    assert store.flushed == safe
    assert syncs == []  # never tried again over the same pages
    assert b"safe" in bodies(store)
    store.stop()
    assert disk.exists("abort")  # so that the next start looks closely
    image = disk.crash_image(Random(1), CrashMode.DROP)
    again = open_store(image)
    assert bodies(again) == [b"safe"]
    assert append(again, b"goes on").queue_offset == 1


def test_a_restart_does_not_believe_pages_a_failed_sync_marked_clean() -> None:
    """Read from the page cache they look right, and syncing them says yes and does nothing."""
    disk = SimulatedDisk()
    store = open_store(disk, config=SYNC)
    append(store, b"safe")
    disk.plant("sync", IO_ERROR)
    append(store, b"unanswered" + b"x" * 4000)
    killed = disk.crash_image(Random(1), CrashMode.KILL)
    again = open_store(killed, config=SYNC)
    append(again, b"y" * 3000)
    append(again, b"z" * 3000)
    assert again.flushed == again.written
    image = killed.crash_image(Random(1), CrashMode.DROP)
    assert [body[:1] for body in bodies(open_store(image, config=SYNC))] == [b"s", b"u", b"y", b"z"]


def test_a_failed_checkpoint_is_a_failed_sync() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, b"1")
    store.flush()
    disk.plant("sync", IO_ERROR)
    store.checkpoint()
    assert store.read_only_reason is not None and "checkpoint" in store.read_only_reason


def test_every_sync_may_fail_and_nothing_is_claimed_that_is_not_there() -> None:
    """Fail the k-th sync of a busy life, then lose power: what was flushed is there."""
    for k in range(60):
        disk, clock = SimulatedDisk(), ManualClock()
        try:
            store = open_store(disk, clock, SYNC)
            disk.plant("sync", IO_ERROR, after=k)
            for i in range(12):
                append(store, b"%d" % i + b"x" * 900, KEYS=f"k{i}")
                if i % 5 == 4:
                    store.checkpoint()
                clock.advance(1)
                store.tick()
        except StoreError:
            assert store.read_only_reason is not None
        flushed = store.flushed
        image = disk.crash_image(Random(k), CrashMode.DROP)
        again = open_store(image, clock, SYNC)
        assert again.written >= flushed
        found = bodies(again)
        assert [int(body.partition(b"x")[0]) for body in found] == list(range(len(found)))
        assert all(keys_found(again, "T", f"k{i}") for i in range(len(found)))


def test_checkpoints_never_run_ahead_of_the_platter() -> None:
    """Lose power after every operation: times and claim speak only of what survives."""
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock)
    images: list[SimulatedDisk] = []
    disk.on_operation = lambda kind, path: images.append(
        disk.crash_image(Random(len(images)), CrashMode.DROP)
    )
    for i in range(40):
        append(store, b"%d" % i + b"x" * 300, KEYS=f"k{i}")
        if i % 7 == 6:
            clock.advance(1)
            store.checkpoint()
    disk.on_operation = None
    assert len(images) > 50
    for image in images:
        again = open_store(image, clock)
        found = bodies(again)
        assert [int(body.partition(b"x")[0]) for body in found] == list(range(len(found)))
        assert all(keys_found(again, "T", f"k{i}") for i in range(len(found)))


def test_apaches_index_rule_is_met() -> None:
    """Apache drops the unfinished index file after a kill: its keys must be read again."""
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock)
    begin_ms = append(store, b"first").store_ms
    clock.advance(100)
    append(store, b"second")
    store.checkpoint()
    saved = CheckpointFile(disk).load()
    assert saved.log_ms == begin_ms + 100_000
    assert saved.queues_ms == begin_ms
    assert saved.index_ms == 0
    for i in range(50):  # the first file fills up
        clock.advance(1)
        last_ms = append(store, b"%d" % i).store_ms
    store.checkpoint()
    saved = CheckpointFile(disk).load()
    assert begin_ms + 100_000 < saved.index_ms <= saved.queues_ms <= saved.log_ms == last_ms
