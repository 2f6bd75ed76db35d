"""transientStorePoolEnable: appends through memory, told truthfully."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.errors import DiskFull
from ariane.store.check import check
from ariane.store.messages import FoundStatus

from .shelf import append, batch, bodies, config_with, open_store, read_all

STAGED = config_with(transient_pool_enabled=True)


def test_what_is_only_in_memory_is_written_but_not_seen() -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock, STAGED)
    moved = []
    store.on_advance.append(lambda: moved.append(store.visible))
    placed = append(store, b"1")
    assert (store.written, store.visible, store.max_offset("T", 0)) == (placed.end_offset, 0, 0)
    assert store.read("T", 0, 0, count_max=1).status is FoundStatus.NO_MESSAGE_IN_QUEUE
    assert not any(disk.read(f"commitlog/{0:020d}"))
    store.tick()
    clock.advance(0.21)
    store.tick()
    assert store.visible == placed.end_offset
    assert moved == [placed.end_offset]
    assert bodies(store) == [b"1"]


def test_a_kill_takes_what_was_not_copied_and_nothing_else() -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock, STAGED)
    for i in range(30):
        append(store, b"%d" % i + b"x" * 400)
        if i == 20:
            store.flush()
    again = open_store(disk.crash_image(Random(1), CrashMode.KILL), clock, STAGED)
    found = read_all(again)
    assert [int(m.body.partition(b"x")[0]) for m in found] == list(range(21))
    assert append(again, b"next").queue_offset == 21


def test_a_lack_of_descriptors_puts_copying_off_and_ends_nothing() -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock, STAGED)
    sent = [b"%d" % i + b"x" * 700 for i in range(30)]  # in several segments
    for i, body in enumerate(sent):
        append(store, body)
        if i % 7 == 0:
            disk.plant("open", OSError(errno.EMFILE, "too many open files"), after=i % 2)
            store.checkpoint()
    assert store.read_only_reason is None
    disk.heal()
    store.flush()
    store.checkpoint()
    again = open_store(disk.crash_image(Random(1), CrashMode.DROP), clock, STAGED)
    assert bodies(again) == bodies(store) == sent
    store.stop()
    assert check(disk, STAGED).is_sound


def test_a_batch_that_is_refused_behind_a_roll_leaves_what_can_be_copied() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, config=STAGED)
    append(store, b"x" * 4000)
    disk.plant("make_directory", DiskFull("full"))
    with pytest.raises(DiskFull):
        store.append_batch(batch([b"1" * 1500, b"2" * 1500], "U"))
    store.flush()
    assert store.visible == store.flushed == store.written == STAGED.segment_bytes
    assert append(store, b"next", "U").queue_offset == 0
    store.stop()
    assert check(disk, STAGED).is_sound


def test_segments_are_rolled_in_memory_too() -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    store = open_store(disk, clock, STAGED)
    sent = [b"%d" % i + b"x" * 700 for i in range(60)]
    for i, body in enumerate(sent):
        append(store, body)
        if i % 13 == 0:
            clock.advance(1)
            store.tick()
    store.checkpoint()
    assert bodies(store) == sent
    store.stop()
    assert check(disk, STAGED).is_sound
    assert bodies(open_store(disk, clock)) == sent


def test_synchronous_flushing_has_no_use_for_it() -> None:
    store = open_store(config=config_with(transient_pool_enabled=True, flush_mode="SYNC_FLUSH"))
    append(store, b"1")
    assert store.flushed == store.visible == store.written
