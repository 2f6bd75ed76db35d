"""Let each thing that is done to the disk fail in turn, once or from then on, in a busy life.

Whatever fails, an operation goes through or says in words why it did not, and everything that was
acknowledged is there after the next start: after a kill, and, where it was flushed, after a power
cut.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.errors import DiskFull, StoreError
from ariane.store.check import check
from ariane.store.store import Store
from ariane.topics import TIMER_TOPIC
from tests.unit.store.shelf import HOST, append, batch, bodies, config_with, message

ROOM = ("reserve", "write", "create", "resize")  # where a real disk says that it is full
SLOTS = 64
STRIDE = 7


class Life:
    """One store from its opening to its stop, and what it promised."""

    def __init__(self, flush_mode: str, *, unwritable_from: int = -1) -> None:
        self.unwritable_from = unwritable_from
        self.config = config_with(
            flush_mode=flush_mode,
            timer_log_file_bytes=1024,
            delete_hours="04",
            retention_hours=1,
            disk_stop_ratio=0.99,
        )
        self.clock = ManualClock()
        self.disk = SimulatedDisk(now_s=lambda: self.clock.wall_ms() / 1000)
        self.store: Store | None = None
        self.told: dict[tuple[str, int], list[tuple[bytes, int]]] = {}
        self.timed: list[bytes] = []
        self.is_deleted = False
        self.flushed = 0

    def run(self) -> None:
        """The same things in the same order, whatever becomes of each."""
        try:
            self.store = store = Store.open(
                self.config, self.disk, self.clock, store_host=HOST, timer_slots=SLOTS
            )
        except StoreError:
            return
        try:
            store.start()
        except (StoreError, OSError):  # the broker does not serve, then
            store.stop()
            self.store = None
            return
        for number in range(24):
            if number == self.unwritable_from:
                store.log.write_by(os.open(os.devnull, os.O_RDONLY))
            self.write(number)
            self.clock.advance(1)
            store.timer.turn()
            store.tick()
            if number % 9 == 8:
                store.checkpoint()
            if number == 19:
                self.delete("Deleted")
            if number == 21:
                self.clean()
            self.flushed = store.flushed
        store.stop()
        self.store = None

    def write(self, number: int) -> None:
        self.send(b"%d" % number + b"." * 700, "T", number % 2)
        if number % 6 == 1:
            self.send_batch([b"b%d-%d" % (number, i) for i in range(5)])
        if number % 8 == 2:
            self.send(b"gone %d" % number, "Deleted", 0)
        if number in {3, 9}:
            self.send_timed(b"timed %d" % number)

    def send(self, body: bytes, topic: str, queue_id: int) -> None:
        assert self.store is not None
        try:
            placed = append(self.store, body, topic, queue_id)
        except StoreError:
            return
        self.told.setdefault((topic, queue_id), []).append((body, placed.end_offset))

    def send_batch(self, each: list[bytes]) -> None:
        assert self.store is not None
        try:
            placed = self.store.append_batch(batch(each, "T", 2))
        except StoreError:
            return
        self.told.setdefault(("T", 2), []).extend((body, placed.end_offset) for body in each)

    def send_timed(self, body: bytes) -> None:
        assert self.store is not None
        due_ms = self.clock.wall_ms() + 5000
        try:
            self.store.append(
                message(
                    body,
                    TIMER_TOPIC,
                    0,
                    TIMER_DELIVER_MS=str(due_ms),
                    TIMER_OUT_MS=str(due_ms // 1000 * 1000),
                    REAL_TOPIC="Timed",
                    REAL_QID="0",
                )
            )
        except StoreError:
            return
        self.timed.append(body)

    def delete(self, topic: str) -> None:
        assert self.store is not None
        self.is_deleted = True  # or half of it; either may be found
        with suppress(StoreError):
            self.store.delete_topic(topic, lambda _fault: None)

    def clean(self) -> None:
        assert self.store is not None
        with suppress(StoreError):
            self.store.clean(is_asked=True)

    def judge(self, disk: SimulatedDisk, limit: int) -> None:
        """Everything that was told, and ends below `limit`, is there; the store is sound."""
        disk.before_operation = None
        store = Store.open(self.config, disk, self.clock, store_host=HOST, timer_slots=SLOTS)
        store.start()
        for (topic, queue_id), told in self.told.items():
            if topic == "Deleted" and self.is_deleted:
                continue
            found = bodies(store, topic, queue_id)
            wanted = [body for body, end in told if end <= limit]
            kept = iter(found)
            assert all(body in kept for body in wanted), (topic, queue_id, len(wanted), found)
        if limit == 1 << 62:
            for _ in range(20):
                self.clock.advance(1)
                store.timer.turn()
                store.tick()
            timed = bodies(store, "Timed", 0)
            assert set(timed) >= set(self.timed)
        append(store, b"goes on", "T", 0)
        store.stop()
        assert store.read_only_reason is None
        report = check(disk, self.config)
        assert report.is_sound, report.problems


def operations_of(flush_mode: str) -> int:
    """How many things a life without faults does to the disk."""
    life, count = Life(flush_mode), 0

    def look(kind: str, path: str) -> None:
        nonlocal count
        count += 1

    life.disk.before_operation = look
    life.run()
    life.judge(life.disk, 1 << 62)
    assert life.timed and len(life.told) == 4
    return count


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_any_operation_may_fail(flush_mode: str, number: int, lasting: bool) -> None:
    first = (number + lasting) % STRIDE
    for when in range(first, operations_of(flush_mode), STRIDE):
        seen = 0
        struck = ""

        def strike(kind: str, path: str, when: int = when) -> None:
            nonlocal seen, struck
            seen += 1
            if seen <= when or (seen > when + 1 and not lasting):
                return
            struck = struck or f"{kind} {path}, operation {when}"
            if number == errno.EMFILE and kind not in {"open", "list", "create"}:
                return  # nothing else needs a descriptor
            what = os.strerror(number)
            if kind in ROOM and number in {errno.ENOSPC, errno.EIO}:
                raise DiskFull(f"{what}: {path}")
            raise OSError(number, what, path)

        life = Life(flush_mode)
        life.disk.before_operation = strike
        try:
            life.run()
            life.disk.before_operation = None
            kill = life.disk.crash_image(Random(when), CrashMode.KILL)
            cut = life.disk.crash_image(Random(when), CrashMode.DROP)
            life.judge(cut, life.flushed)
            life.judge(kill, 1 << 62)
        except BaseException as error:
            raise AssertionError(f"after {struck}") from error


@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_log_may_be_unwritable_from_any_time_on(flush_mode: str) -> None:
    for number in range(24):
        life = Life(flush_mode, unwritable_from=number)
        life.run()
        life.judge(life.disk.crash_image(Random(number), CrashMode.DROP), life.flushed)
        life.judge(life.disk, 1 << 62)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_short_for_a_while_ends_nothing(flush_mode: str, number: int) -> None:
    """Neither a full disk nor a lack of descriptors makes a store read-only until it is started."""

    def strike(kind: str, path: str) -> None:
        if number == errno.EMFILE and kind in {"open", "list", "create"}:
            raise OSError(number, os.strerror(number), path)
        if number == errno.ENOSPC and kind in ROOM:
            raise DiskFull(f"{os.strerror(number)}: {path}")

    life = Life(flush_mode)
    store = life.store = Store.open(life.config, life.disk, life.clock, store_host=HOST)
    store.start()
    for turn in range(24):
        life.disk.before_operation = strike if turn % 4 > 1 else None
        life.write(turn)
        life.send_timed(b"timed also %d" % turn)
        store.checkpoint()
        life.clock.advance(1)
        store.timer.turn()
        store.tick()
        assert store.read_only_reason is None
    life.disk.before_operation = None
    told = sum(map(len, life.told.values()))
    life.write(24)
    assert sum(map(len, life.told.values())) > told
    store.stop()
    assert store.read_only_reason is None
    life.judge(life.disk, 1 << 62)


def test_a_timer_wheel_that_cannot_be_opened_to_be_synced_is_synced_later() -> None:
    life, struck = Life("ASYNC_FLUSH"), 0

    def strike(kind: str, path: str) -> None:
        nonlocal struck
        if kind == "open" and path.startswith(("timer", "config/timercheck")):
            struck += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    store = life.store = Store.open(life.config, life.disk, life.clock, store_host=HOST)
    store.start()
    for turn in range(24):
        life.disk.before_operation = strike if turn % 4 > 1 else None
        life.send_timed(b"timed %d" % turn)
        store.timer.turn()
        store.flush()
        store.timer.checkpoint()
        life.clock.advance(1)
    assert struck
    life.disk.before_operation = None
    store.timer.checkpoint()
    cut = life.disk.crash_image(Random(1), CrashMode.DROP)
    assert store.read_only_reason is None
    store.stop()
    for disk in (life.disk, cut):
        life.judge(disk, 1 << 62)
