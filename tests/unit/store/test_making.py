"""Queues whose first entries wait in memory while their files are made on a lane."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from ariane.clock import ManualClock
from ariane.disk import RealDisk, SimulatedDisk
from ariane.errors import DiskFull, StoreError
from ariane.kernel.log import Log
from ariane.kernel.queue import KEPT_MAX, Queue
from ariane.store.making import BATCH, RETRY_S, Making
from ariane.store.queues import ENTRY_BYTES, Queues

HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
FILE_BYTES = 1000 * ENTRY_BYTES


class PatientLane:
    """Does a job when told, or when somebody waits for it."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = []

    def run(self, job: Callable[[], Any], done: Callable[[Future[Any]], None]) -> None:
        self._jobs.append((job, done))

    def wait(self) -> None:
        while self._jobs:
            job, done = self._jobs.pop(0)
            future: Future[Any] = Future()
            future.set_result(job())
            done(future)

    def close(self) -> None:
        self.wait()


class Shelf:
    """Queues of a topic, and messages for them."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.log = Log(1 << 20, HOST)
        file = self.disk.mapped("segment", 1 << 20, create=True)
        self.log.add(0, file.buffer)
        self.log.write_by(file.open_descriptor())
        self.queues = Queues(self.disk, self.log, FILE_BYTES)
        self.queues.load()
        self.lane = PatientLane()
        self.posted: list[Callable[[], None]] = []
        self.making = Making(self.disk, self.queues, self.clock, self.lane, self.posted.append)
        self.queues.on_fresh = self.making.ask
        self.queues.make_now = self.making.make_now

    def queue(self, queue_id: int = 0) -> Queue:
        return self.queues.obtain("T", queue_id)

    def place(self, queue: Queue, count: int = 1) -> None:
        for _ in range(count):
            while self._append(queue) < 0:
                self.queues.make_room(queue)

    def turn(self) -> None:
        """Let the loop come round."""
        while self.posted:
            self.posted.pop(0)()

    def finish(self) -> None:
        self.turn()
        self.lane.wait()

    def is_fresh(self, queue_id: int) -> bool:
        return self.queue(queue_id).is_fresh

    def in_file(self, queue_id: int) -> int:
        """How many entries the file of a queue has."""
        data = self.disk.read(f"consumequeue/T/{queue_id}/{0:020d}")
        sizes = [size for _, size, _ in struct.iter_unpack(">qiq", data)]
        return sizes.index(0)

    def sync(self) -> tuple[list[Any], list[Any]]:
        ranges: list[Any] = []
        ends: list[Any] = []
        for _ in self.queues.unsynced(ranges, ends):
            pass
        return ranges, ends

    def _append(self, queue: Queue) -> int:
        return self.log.append(
            queue,
            None,
            b"",
            b"",
            flag=0,
            system_flag=0,
            born_ms=1,
            born_host=HOST,
            reconsume_times=0,
            prepared_offset=0,
            now_ms=1,
        )


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_entries_are_read_before_there_is_a_file_and_are_in_it_afterwards(shelf: Shelf) -> None:
    queue = shelf.queue()
    shelf.place(queue, 5)
    assert shelf.is_fresh(0) and not shelf.disk.exists("consumequeue/T")
    before = [queue.entry(offset) for offset in range(6)]
    assert before[5] is None and [entry[0] for entry in before[:5] if entry] == sorted(
        {entry[0] for entry in before[:5] if entry}
    )
    shelf.turn()
    shelf.place(queue, 3)  # while the file is under way
    shelf.lane.wait()
    assert not shelf.is_fresh(0) and shelf.in_file(0) == 5
    assert [queue.entry(offset) for offset in range(5)] == before[:5]
    queue.settle()
    assert shelf.in_file(0) == queue.end == 8


def test_a_queue_that_grows_past_its_memory_gets_its_file_at_once(shelf: Shelf) -> None:
    first, second = shelf.queue(0), shelf.queue(1)
    shelf.place(first, KEPT_MAX + 1)
    assert first.file_count == 1
    shelf.place(second, 1)
    shelf.turn()  # its file is under way
    shelf.place(second, KEPT_MAX)
    assert second.file_count == 1 and second.end == KEPT_MAX + 1
    shelf.finish()
    assert first.end == second.end == KEPT_MAX + 1  # and whoever asks has them in the file
    assert shelf.in_file(0) == shelf.in_file(1) == KEPT_MAX + 1


def test_queues_are_made_in_the_order_they_asked_and_whoever_waits_is_told(shelf: Shelf) -> None:
    told: list[str | None] = []
    for queue_id in range(BATCH + 1):
        shelf.place(shelf.queue(queue_id))
    shelf.making.after(told.append)
    shelf.place(shelf.queue(BATCH + 1))
    shelf.turn()
    assert told == []
    shelf.lane.wait()
    assert told == [None]
    assert all(shelf.in_file(queue_id) == 1 for queue_id in range(BATCH + 2))


@pytest.mark.parametrize("kind", ["make_directory", "create", "resize", "reserve", "write"])
@pytest.mark.parametrize("error", [DiskFull("full"), OSError(errno.EMFILE, "too many files")])
def test_a_file_that_cannot_be_made_is_tried_again(
    shelf: Shelf, kind: str, error: Exception
) -> None:
    told: list[str | None] = []
    queue, other = shelf.queue(0), shelf.queue(1)
    shelf.place(queue, 3)
    shelf.making.after(told.append)
    shelf.disk.plant(kind, error)
    shelf.finish()
    assert shelf.is_fresh(0) and queue.entry(2) is not None
    assert told[0] is not None and str(error) in told[0]
    shelf.making.after(told.append)
    assert told[1] == told[0]
    shelf.disk.plant("reserve", error)
    with pytest.raises((DiskFull, OSError)):  # who comes now is refused
        shelf.place(other)
    shelf.making.tick()
    assert shelf.is_fresh(0)
    shelf.clock.advance(RETRY_S)
    shelf.making.tick()
    shelf.lane.wait()
    assert shelf.in_file(0) == 3
    shelf.making.after(told.append)
    assert told[2:] == [None]


def test_what_failed_before_is_forgotten_once_every_queue_has_its_file(shelf: Shelf) -> None:
    told: list[str | None] = []
    shelf.place(shelf.queue(), 3)
    shelf.disk.plant("create", OSError(errno.EIO, "input/output error"))
    shelf.finish()
    shelf.making.make_all_now()  # as a stop does, whose checkpoint asks then
    shelf.making.after(told.append)
    assert shelf.in_file(0) == 3 and told == [None]


def test_a_topic_is_deleted_while_files_are_made(shelf: Shelf) -> None:
    for queue_id in range(BATCH + 3):
        shelf.place(shelf.queue(queue_id))
    gone = shelf.queue()
    shelf.turn()
    shelf.making.hold(lambda: shelf.queues.delete_topic("T"))
    shelf.finish()
    assert not shelf.disk.exists("consumequeue/T")
    assert shelf.queues.counts() == (0, 0)
    with pytest.raises(StoreError, match="was deleted"):
        shelf.place(gone)
    queue = shelf.queue()
    shelf.place(queue, 2)
    shelf.finish()
    assert shelf.in_file(0) == queue.end == 2


def test_what_came_after_a_checkpoint_began_is_synced_by_the_next(shelf: Shelf) -> None:
    shelf.place(shelf.queue(0))
    shelf.finish()
    shelf.place(shelf.queue(1))  # fresh: nothing of it can be synced yet
    ranges, ends = shelf.sync()
    shelf.queues.synced(ends)
    assert [file.path for file, _, _ in ranges] == [f"consumequeue/T/0/{0:020d}"]
    shelf.finish()
    ranges, ends = shelf.sync()
    assert [file.path for file, _, _ in ranges] == [f"consumequeue/T/1/{0:020d}"]
    shelf.queues.synced(ends)
    assert shelf.sync() == ([], [])
    assert shelf.queues.counts() == (2, 2)


def test_counts_follow_every_change(shelf: Shelf) -> None:
    shelf.place(shelf.queue(0), 40)
    shelf.place(shelf.queue(1), 3)
    assert shelf.queues.counts() == (2, 43)
    shelf.queues.reset(shelf.queue(0))
    assert shelf.queues.counts() == (1, 3)
    shelf.queues.recovered()
    assert shelf.queues.counts() == (1, 3) == shelf.queues.counts_without(lambda _: False)


def test_past_the_limit_of_maps_a_queue_is_refused_in_words(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    log = Log(1 << 20, HOST)
    queues = Queues(RealDisk(tmp_path, maps_max=-1), log, FILE_BYTES)
    queues.load()
    with pytest.raises(StoreError, match=r"raise vm\.max_map_count"):
        queues.make_room(queues.obtain("T", 0))
    roomy = Queues(disk, log, FILE_BYTES)
    roomy.make_room(roomy.obtain("T", 0))
    with pytest.raises(StoreError, match=r"raise vm\.max_map_count"):  # so does a start say
        Queues(RealDisk(tmp_path, maps_max=-1), log, FILE_BYTES).load()
