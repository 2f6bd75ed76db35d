"""When segments go: the decision as a table, and what the store does about it."""

from __future__ import annotations

from datetime import datetime

import pytest

from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import SimulatedDisk
from ariane.errors import DiskFull
from ariane.store.check import check
from ariane.store.messages import FoundStatus
from ariane.store.retention import Situation, removable_count
from ariane.store.store import Store

from .shelf import FOREVER_MS, SMALL, append, bodies, config_with, message, open_store

FOUR = datetime(2026, 3, 1, 4, 30).timestamp()
NOON = datetime(2026, 3, 1, 12, 0).timestamp()
OLD, YOUNG = 73 * 3600.0, 71 * 3600.0

CASES = {
    # now, used, ages oldest first, settings -> how many go
    "old, at the hour": (FOUR, 0.5, [OLD, OLD, YOUNG], {}, 2),
    "old, at another hour": (NOON, 0.5, [OLD, OLD], {}, 0),
    "old, another hour set": (NOON, 0.5, [OLD, OLD], {"delete_hours": "04;12"}, 2),
    "young, at the hour": (FOUR, 0.5, [YOUNG], {}, 0),
    "nothing that may go": (FOUR, 0.95, [], {}, 0),
    "stops at the first young one": (FOUR, 0.5, [OLD, YOUNG, OLD], {}, 1),
    "disk filling: old at any hour": (NOON, 0.76, [OLD, YOUNG], {}, 1),
    "disk filling: young stay": (NOON, 0.84, [YOUNG], {}, 0),
    "disk nearly full: any age": (NOON, 0.86, [YOUNG, YOUNG], {}, 2),
    "forcing forbidden": (NOON, 0.95, [YOUNG, YOUNG], {"force_clean_enabled": False}, 0),
    "forcing forbidden, old ones": (NOON, 0.95, [OLD, YOUNG], {"force_clean_enabled": False}, 1),
    "so many a round": (FOUR, 0.95, [OLD] * 15, {}, 10),
    "so many a round, as set": (FOUR, 0.95, [OLD] * 15, {"delete_batch_max": 3}, 3),
    "kept longer": (FOUR, 0.5, [OLD], {"retention_hours": 100}, 0),
}


@pytest.mark.parametrize(("now_s", "used", "ages", "settings", "count"), CASES.values(), ids=CASES)
def test_how_many_go(
    now_s: float, used: float, ages: list[float], settings: dict[str, object], count: int
) -> None:
    config = StoreConfig(**settings)  # type: ignore[arg-type]
    situation = Situation(now_s, used, [now_s - age for age in ages])
    assert removable_count(config, situation) == count


def filled(disk: SimulatedDisk, clock: ManualClock, config: StoreConfig = SMALL) -> Store:
    """A store of several segments, checkpointed, with a busy and an idle queue."""
    store = open_store(disk, clock, config)
    append(store, b"idle", "T", 1, KEYS="early")
    for i in range(60):
        append(store, f"{i:03d}".encode() + b"x" * 500, KEYS=f"k{i}")
    store.checkpoint()
    return store


def test_everything_follows_the_start_of_the_log() -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    store = filled(disk, clock)
    count = len(disk.names("commitlog"))
    disk.used_ratio = 0.88
    removed = store.clean()
    assert removed == count - 1 == 4
    assert len(disk.names("commitlog")) == 1
    assert len(disk.names("index")) == 1  # the two older of three only pointed below
    first, end = store.min_offset("T", 0), store.max_offset("T", 0)
    assert 0 < first < end == 60
    assert [body[:3] for body in bodies(store)] == [f"{i:03d}".encode() for i in range(first, 60)]
    assert store.read("T", 0, first - 1, count_max=1).status is FoundStatus.OFFSET_TOO_SMALL
    assert store.read("T", 0, first - 1, count_max=1).next_offset == first
    assert disk.names("consumequeue/T/0")[0][0] == f"{first * 20 // 600 * 600:020d}"
    # The idle queue is empty now but goes on counting.
    assert (store.min_offset("T", 1), store.max_offset("T", 1)) == (1, 1)
    assert append(store, b"next", "T", 1).queue_offset == 1
    assert store.query("T", "k0", count_max=9, begin_ms=0, end_ms=FOREVER_MS).message_count == 0
    assert store.query("T", "k59", count_max=9, begin_ms=0, end_ms=FOREVER_MS).message_count == 1
    store.stop()
    assert check(disk, SMALL).is_sound
    again = open_store(disk, clock)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (first, 60)
    assert again.max_offset("T", 1) == 2


def test_what_no_checkpoint_covers_stays() -> None:
    disk = SimulatedDisk()
    store = filled(disk, ManualClock())
    segments = len(disk.names("commitlog"))
    for i in range(60):
        append(store, b"%d" % i + b"y" * 500)
    disk.used_ratio = 0.88
    assert store.clean() == segments - 1


def test_an_index_file_stays_while_a_checkpoint_may_read_its_slots() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, ManualClock())
    for i in range(SMALL.index_entry_count - 1):
        append(store, b"%d" % i)
    while len(disk.names("commitlog")) < 4:
        store.append(message(b"without a key" * 40))
    store.checkpoint()
    append(store, b"one more")
    full = disk.names("index")[0]
    disk.used_ratio = 0.88
    assert store.clean() > 0
    assert full in disk.names("index")
    store.checkpoint()
    while len(disk.names("commitlog")) < 3:
        store.append(message(b"without a key" * 40))
    store.checkpoint()
    assert store.clean() > 0
    assert full not in disk.names("index")


def test_what_somebody_reads_under_a_lease_stays_until_the_disk_is_nearly_full() -> None:
    clock = ManualClock(wall_ms=int(FOUR * 1000))
    disk = SimulatedDisk(now_s=lambda: clock.wall_ms() / 1000)
    store = filled(disk, clock)
    for name, _ in disk.names("commitlog"):
        disk.set_modified_s(f"commitlog/{name}", clock.wall_ms() / 1000 - OLD)
    store.leases.hold("reader", 2 * SMALL.segment_bytes + 5, 60, clock.monotonic_s())
    assert store.clean() == 2
    assert store.clean() == 0
    store.leases.hold("reader", 3 * SMALL.segment_bytes, 60, clock.monotonic_s())
    assert store.clean() == 1
    disk.used_ratio = 0.88
    assert store.clean() == 1  # whoever reads it
    clock.advance(61)
    assert store.leases.floor(clock.monotonic_s()) is None


def test_ticks_remove_old_segments_at_the_hour() -> None:
    moment = datetime(2026, 3, 5, 3, 50)
    clock = ManualClock(wall_ms=int(moment.timestamp() * 1000))
    disk = SimulatedDisk(now_s=lambda: clock.wall_ms() / 1000)
    store = filled(disk, clock)
    for name, _ in disk.names("commitlog")[:2]:
        disk.set_modified_s(f"commitlog/{name}", clock.wall_ms() / 1000 - OLD)
    for _ in range(5):
        clock.advance(60)
        store.tick()
    assert int(disk.names("commitlog")[0][0]) == 0
    for _ in range(6):
        clock.advance(60)
        store.tick()
    assert int(disk.names("commitlog")[0][0]) == 2 * SMALL.segment_bytes


def test_a_full_disk_refuses_and_recovers_by_itself() -> None:
    clock = ManualClock()
    disk = SimulatedDisk()
    store = open_store(disk, clock, config_with(force_clean_enabled=False))
    append(store, b"before")
    disk.used_ratio = 0.91
    clock.advance(1.1)
    store.tick()
    clock.advance(1.1)
    store.tick()
    with pytest.raises(DiskFull, match=r"91% full.*90%"):
        store.append(message())
    assert isinstance(store.refusal, DiskFull)
    assert bodies(store) == [b"before"]  # reading goes on
    disk.used_ratio = 0.89
    clock.advance(1.1)
    store.tick()
    append(store, b"after")
    assert bodies(store) == [b"before", b"after"]


def test_no_room_for_a_segment_refuses_before_anything_is_written() -> None:
    disk = SimulatedDisk(capacity_bytes=40 * 4096)
    store = open_store(disk, config=config_with(disk_stop_ratio=1.0))
    sent = []
    with pytest.raises(DiskFull):
        for i in range(1000):
            sent.append(b"%d" % i + b"x" * 300)
            append(store, sent[-1])
    sent.pop()
    assert bodies(store) == sent
    assert disk.unreserved_writes() == []
    before = store.written
    with pytest.raises(DiskFull):
        append(store, b"y" * 2000)
    assert store.written == before
    disk.capacity_bytes *= 2
    append(store, b"room again")
    assert bodies(store)[-1] == b"room again"
    store.stop()
    assert check(disk, SMALL).is_sound
