"""Pages of the log ahead of the writer: only where memory is dear, and never too many."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from ariane.kernel.log import Log, Queue
from ariane.store.background import InlineLane
from ariane.store.paging import Pager
from ariane.store.segments import Segments

MIB = 1 << 20
SEGMENT_BYTES = 256 * MIB
PAGES_PER_MIB = 256
SLOW, QUICK = 1.0, 0.1  # the part of what is written that is slow to be


@dataclass
class FakeFile:
    """A segment that can be asked for a descriptor, if there are any left."""

    is_out_of_descriptors: bool = False

    def descriptor(self) -> int:
        if self.is_out_of_descriptors:
            raise OSError("too many open files")
        return 2


@dataclass
class FakeSegments:
    files: list[FakeFile] = field(default_factory=lambda: [FakeFile()])
    next: FakeFile | None = None


class FakeLog:
    """A log whose writes are as slow as a test says."""

    file_bytes = SEGMENT_BYTES

    def __init__(self) -> None:
        self.end = 0
        self.end_position = SEGMENT_BYTES
        self.ranges: list[tuple[int, int, int]] = []
        self._written = (0, 0)

    def write(self, byte_count: int, slow_part: float) -> None:
        self.end += byte_count
        self._written = (byte_count, int(byte_count * slow_part))

    def take_long_writes(self) -> tuple[int, int]:
        written, self._written = self._written, (0, 0)
        return written

    def bring_in(self, descriptor: int, position: int, first: int, end: int) -> None:
        os.fstat(descriptor)
        self.ranges.append((position // MIB, first // MIB, end // MIB))


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def segments() -> FakeSegments:
    return FakeSegments()


@pytest.fixture
def pager(log: FakeLog, segments: FakeSegments) -> Pager:
    return Pager(
        cast(Log, log), cast(Segments, segments), InlineLane(), bytes_max=SEGMENT_BYTES // 2
    )


def test_where_pages_are_cheap_nothing_is_brought_in(pager: Pager, log: FakeLog) -> None:
    for _ in range(20):
        log.write(8 * MIB, QUICK)
        pager.look()
    assert log.ranges == []


def test_a_few_slow_writes_say_nothing(pager: Pager, log: FakeLog) -> None:
    for _ in range(7):
        log.write(8 * MIB, SLOW)
        pager.look()
        assert log.ranges == []
    log.write(8 * MIB, SLOW)
    pager.look()
    assert log.ranges == [(0, 64, 128)]


def test_nor_does_a_pause_among_quick_ones(pager: Pager, log: FakeLog) -> None:
    for slow_part in (QUICK, SLOW, SLOW, QUICK, QUICK, SLOW, QUICK, QUICK):
        log.write(8 * MIB, slow_part)
        pager.look()
    assert log.ranges == []


def test_as_many_are_kept_ready_as_were_written_up_to_the_most(pager: Pager, log: FakeLog) -> None:
    log.write(64 * MIB, SLOW)
    pager.look()
    assert log.ranges == [(0, 64, 128)]
    log.write(8 * MIB, QUICK)
    pager.look()
    assert log.ranges[1:] == [(0, 128, 144)]
    log.write(24 * MIB, QUICK)
    pager.look()
    assert log.ranges[2:] == [(0, 144, 192)]
    log.write(64 * MIB, QUICK)
    pager.look()
    assert log.ranges[3:] == [(0, 192, 256)]


def test_they_go_on_in_the_next_segment_once_it_is_made(
    pager: Pager, log: FakeLog, segments: FakeSegments
) -> None:
    log.write(200 * MIB, SLOW)
    pager.look()
    assert log.ranges == [(0, 200, 256)]
    segments.next = FakeFile()
    pager.look()
    assert log.ranges[1:] == [(256, 256, 320), (256, 320, 328)]


def test_after_some_segments_without_a_sign_it_stops(pager: Pager, log: FakeLog) -> None:
    log.write(64 * MIB, SLOW)
    pager.look()
    while log.end < 3 * SEGMENT_BYTES:
        log.write(8 * MIB, QUICK)
        if log.end >= log.end_position:
            log.end_position += SEGMENT_BYTES
        pager.look()
    last = max(stop for _, _, stop in log.ranges)
    assert 2 * 256 + 64 < last <= 2 * 256 + 64 + 128


def test_without_descriptors_the_writer_does_it_itself(
    pager: Pager, log: FakeLog, segments: FakeSegments
) -> None:
    segments.files[0].is_out_of_descriptors = True
    log.write(64 * MIB, SLOW)
    pager.look()
    assert log.ranges == []
    segments.files[0].is_out_of_descriptors = False
    pager.look()
    assert log.ranges == [(0, 64, 128)]


def test_what_is_brought_in_is_in_memory_and_empty(tmp_path: Path) -> None:
    size = 8 * MIB
    with (tmp_path / "segment").open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        memory = mmap.mmap(file.fileno(), size)
        log = Log(size, bytes(8))
        log.add(0, memory)
        assert _pages_at_hand(memory) == 0
        log.bring_in(file.fileno(), 0, 2 * MIB, 4 * MIB)
        assert _pages_at_hand(memory) == 2 * PAGES_PER_MIB
        log.end = 3 * MIB  # what the writer reaches in no time is its own affair
        log.bring_in(file.fileno(), 0, 0, 3 * MIB + 100)
        assert _pages_at_hand(memory) == 2 * PAGES_PER_MIB
        assert memory[:] == bytes(size)


def test_a_log_that_is_written_by_calls_counts_what_long_writes_had(tmp_path: Path) -> None:
    size = MIB
    queue = Queue(b"T", 0, 2000)
    queue.add(0, bytearray(2000))
    queue.reserved_end = 100
    with (tmp_path / "segment").open("w+b") as file:
        file.truncate(size)
        log = Log(size, bytes(8))
        log.add(0, mmap.mmap(file.fileno(), size))
        log.write_by(os.dup(file.fileno()))
        for body_bytes in (100, 20_000):
            before = log.end
            log.append(
                queue,
                None,
                bytes(body_bytes),
                b"",
                flag=0,
                system_flag=0,
                born_ms=0,
                born_host=bytes(8),
                reconsume_times=0,
                prepared_offset=0,
                now_ms=0,
            )
            log.store()
            byte_count, slow_bytes = log.take_long_writes()
            assert byte_count == (body_bytes == 20_000) * (log.end - before)
            assert 0 <= slow_bytes <= byte_count
            assert log.take_long_writes() == (0, 0)


def _pages_at_hand(memory: mmap.mmap) -> int:
    count = len(memory) // mmap.PAGESIZE
    residence = (ctypes.c_ubyte * count)()
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), residence) == 0
    return sum(page & 1 for page in residence)
