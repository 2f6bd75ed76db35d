"""Blocks of long queues ahead of their entries, off the loop, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest

from ariane.clock import ManualClock
from ariane.disk import MappedFile, RealDisk
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.background import InlineLane
from ariane.store.preparation import Preparation
from ariane.store.queues import AHEAD_BYTES, CHUNK_BYTES, ENTRY_BYTES, Queues
from ariane.store.segments import Segments

T = TypeVar("T")
ENTRIES = 100_000  # of a file
FILE_BYTES = ENTRIES * ENTRY_BYTES


class PatientLane(InlineLane):
    """Does its jobs when a test says so."""

    def __init__(self) -> None:
        self._jobs: list[Callable[[], None]] = []

    def run(self, job: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        at_once = super().run
        self._jobs.append(lambda: at_once(job, done))

    def wait(self) -> None:
        while self._jobs:
            self._jobs.pop(0)()


class Shelf:
    """Queues on the machine's disk, and what makes them ready."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lane = PatientLane()
        self.asked: list[tuple[int, int, int]] = []  # where the file begins, first, end
        disk = RealDisk(root)
        log = Log(1 << 20, bytes(8))
        self.queues = Queues(disk, log, FILE_BYTES)
        self.queues.load()
        segments = Segments(disk, log)
        self._preparation = Preparation(log, segments, self.queues, ManualClock(), self.lane)
        self.queues.on_long = self._ask
        self.queue = self.queues.obtain("T", 0)

    def _ask(self, queue: Queue, file: MappedFile, first: int, end: int) -> None:
        self.asked.append((int(file.path[-20:]), first, end))
        self._preparation.bring_in(queue, file, first, end)

    def fill_to(self, end: int) -> None:
        """Have so many entries, never more at a time than there is room for."""
        while self.queue.end < end:
            self.queues.make_room(self.queue)
            stop = min(self.queue.reserved_end, end)
            self.queue.pad(self.queue.end, stop)
            self.queue.end = stop

    def allocated(self, name: int) -> int:
        path = self.root / f"consumequeue/T/0/{name:020d}"
        return path.stat().st_blocks * 512


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_short_queue_asks_for_nothing(shelf: Shelf) -> None:
    shelf.fill_to(CHUNK_BYTES // ENTRY_BYTES // 2)
    assert shelf.asked == []
    assert shelf.allocated(0) <= CHUNK_BYTES


def test_a_long_one_has_the_next_stretch_ready_before_it_is_needed(shelf: Shelf) -> None:
    shelf.fill_to(2 * CHUNK_BYTES // ENTRY_BYTES)
    ((_, first, end),) = shelf.asked
    assert first == shelf.queue.reserved_end * ENTRY_BYTES
    assert end == first + AHEAD_BYTES
    assert shelf.allocated(0) < end
    shelf.lane.wait()
    assert shelf.allocated(0) >= end
    shelf.fill_to(first // ENTRY_BYTES + 1)
    assert shelf.queue.reserved_end == end // ENTRY_BYTES  # and nothing was reserved here
    assert shelf.asked[1:] == [(0, end // ENTRY_BYTES * ENTRY_BYTES, FILE_BYTES)]


def test_a_later_file_begins_as_a_long_one(shelf: Shelf) -> None:
    shelf.fill_to(ENTRIES)
    shelf.lane.wait()
    shelf.fill_to(ENTRIES + 1)
    base, first, end = shelf.asked[-1]
    assert base == FILE_BYTES
    assert 0 <= CHUNK_BYTES - first < ENTRY_BYTES
    assert shelf.allocated(FILE_BYTES) < end
    shelf.lane.wait()
    assert shelf.allocated(FILE_BYTES) >= end


def test_a_queue_that_is_quicker_than_the_lane_goes_on_by_itself(shelf: Shelf) -> None:
    shelf.fill_to(2 * ENTRIES + ENTRIES // 2)
    assert [base for base, _, _ in shelf.asked] == [0, FILE_BYTES, 2 * FILE_BYTES]
    reserved = shelf.queue.reserved_end
    shelf.lane.wait()  # what it made ready has long been passed
    assert shelf.queue.reserved_end == reserved
    shelf.fill_to(reserved + 1)
    assert len(shelf.asked) == 4


def test_a_topic_that_was_deleted_meanwhile_stays_so(shelf: Shelf) -> None:
    shelf.fill_to(ENTRIES + 1)
    shelf.queues.delete_topic("T")
    shelf.lane.wait()
    assert shelf.queue.reserved_end == 0
    assert not (shelf.root / "consumequeue/T").exists()
    shelf.queue = shelf.queues.obtain("T", 0)
    shelf.fill_to(10)
    assert shelf.allocated(0) < CHUNK_BYTES
