"""Long queues on a real disk: their entries go into the files by calls, and nobody can tell."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import pytest

from ariane.disk import RealDisk, SimulatedDisk
from ariane.disk.real import RealMappedFile
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store import queues
from ariane.store.queues import ENTRY_BYTES, Queues

HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
ENTRIES = 20_000
FILE_BYTES = ENTRIES * ENTRY_BYTES
LONG = queues.CHUNK_BYTES // ENTRY_BYTES + 1000  # so many entries make a queue a long one


class Shelf:
    """Queues in a directory, and messages for them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = Log(8 << 20, HOST)
        file = SimulatedDisk().mapped("segment", 8 << 20, create=True)
        self.log.add(0, file.buffer)
        self.log.write_by(file.open_descriptor())
        self.queues = Queues(RealDisk(root), self.log, FILE_BYTES)
        self.queues.load()

    def queue(self, queue_id: int = 0) -> Queue:
        return self.queues.obtain("T", queue_id)

    def place(self, queue: Queue, count: int) -> None:
        for _ in range(count):
            while self._append(queue) < 0:
                self.queues.make_room(queue)

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

    def in_file(self, queue_id: int, queue_offset: int) -> int:
        """The record size that an entry has on the disk; 0 where there is none."""
        name = queue_offset // ENTRIES * FILE_BYTES
        data = (self.root / f"consumequeue/T/{queue_id}/{name:020d}").read_bytes()
        return int(struct.unpack_from(">i", data, queue_offset % ENTRIES * ENTRY_BYTES + 8)[0])

    def check(self, queue: Queue) -> None:
        """Every entry, asked for and on the disk, points at its own record."""
        end = queue.end
        seen = bytearray()
        for path in sorted((self.root / f"consumequeue/T/{queue.queue_id}").iterdir()):
            seen += path.read_bytes()
        for offset in range(end):
            entry = queue.entry(offset)
            assert entry is not None
            record = self.log.record(entry[0], self.log.end)
            assert record is not None
            assert struct.unpack_from(">q", record, 20)[0] == offset
            assert struct.unpack_from(">qi", seen, offset * ENTRY_BYTES) == entry[:2]
        assert not any(seen[end * ENTRY_BYTES :])


def open_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_long_queue_writes_by_calls_over_several_files(shelf: Shelf) -> None:
    queue, random = shelf.queue(), Random(5)
    shelf.place(queue, 5000)
    assert not queue.writes_by_calls
    while queue.end < 2 * ENTRIES + LONG:
        shelf.place(queue, random.choice([1, 15, 70, 799, 800, 801, 3000]))
        if random.random() < 0.3:
            assert queue.entry(queue.end - 1) is not None  # a reader that keeps up
    assert queue.writes_by_calls
    assert queue.file_count == 3
    shelf.check(queue)


def test_many_entries_wait_for_one_call_and_few_take_the_map(shelf: Shelf) -> None:
    queue = shelf.queue()
    shelf.place(queue, LONG)
    queue.settle()
    queue.take_mapped()
    end = queue.end
    shelf.place(queue, 500)
    assert shelf.in_file(0, end) == 0
    queue.settle()
    assert shelf.in_file(0, end) > 0
    assert not queue.take_mapped()
    shelf.place(queue, 5)
    queue.settle()
    assert queue.take_mapped()
    shelf.check(queue)


def test_a_file_that_no_call_can_write_is_written_by_its_map(shelf: Shelf) -> None:
    queue = shelf.queue()
    shelf.place(queue, LONG)
    queue.write_by(os.open(os.devnull, os.O_RDONLY))
    shelf.place(queue, 2000)
    shelf.check(queue)
    assert queue.take_mapped()


def test_only_so_many_queues_have_descriptors(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "BY_CALLS_MAX", 2)
    before = open_count()
    for queue_id in range(4):
        shelf.place(shelf.queue(queue_id), LONG)
    assert [shelf.queue(number).writes_by_calls for number in range(4)] == [0, 0, 1, 1]
    assert open_count() == before + 2
    shelf.place(shelf.queue(0), LONG)  # what grows again takes the idlest one's place
    assert [shelf.queue(number).writes_by_calls for number in range(4)] == [1, 0, 0, 1]
    for queue_id in range(4):
        shelf.check(shelf.queue(queue_id))
    shelf.queues.delete_topic("T")
    assert open_count() == before


def test_a_queue_goes_on_by_its_map_where_no_file_can_be_opened(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: RealMappedFile) -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(RealMappedFile, "open_descriptor", refuse)
    queue = shelf.queue()
    shelf.place(queue, 2 * LONG)
    assert not queue.writes_by_calls
    shelf.check(queue)
