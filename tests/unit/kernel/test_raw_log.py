"""Logs whose records come from elsewhere, may be taken back, or have heads in front of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.kernel.dispatch import number_tail
from ariane.kernel.log import SEGMENT_NEEDED, Log
from ariane.kernel.queue import Queue
from ariane.kernel.reading import commits_between, read
from ariane.store.checkpoint import Checkpoint
from ariane.store.damage import has_key_between, next_sound
from ariane.store.deletions import Deletions
from ariane.store.dispatching import Dispatcher
from ariane.store.indexes import Indexes
from ariane.store.queues import Queues
from ariane.store.recovery import Recovery
from ariane.store.segments import Segments

HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
SEGMENT_BYTES = 4096
HEAD_BYTES = 48
HEAD = struct.Struct(">iiqqqiIIi")  # magic, size, number, term, position, channel, chain, CRC, size
LIMITS = {
    "count_max": 32,
    "bytes_max": 1 << 20,
    "memory_count_max": 32,
    "memory_bytes_max": 1 << 20,
    "disk_count_max": 32,
    "disk_bytes_max": 1 << 20,
    "memory_window": 1 << 40,
    "scan_count_max": 800,
}


class Shelf:
    """A log with its files, queues and index, but for the store around them."""

    def __init__(self, head_bytes: int, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = ManualClock()
        self.log = Log(SEGMENT_BYTES, HOST, head_bytes=head_bytes)
        self.segments = Segments(self.disk, self.log)
        self.queues = Queues(self.disk, self.log, 20 * 100)
        self.indexes = Indexes(self.disk, self.clock, slot_count=7, entry_count=50)
        self.dispatcher = Dispatcher(self.log, self.queues, self.indexes)
        for part in (self.segments, self.queues, self.indexes):
            part.load()
        if not self.segments.files:
            self.segments.append()
            self.write()

    def write(self) -> None:
        self.log.write_by(self.segments.files[-1].open_descriptor())

    def roll(self) -> None:
        self.log.seal()
        self.segments.append()
        self.write()

    def queue(self, topic: str = "T") -> Queue:
        return self.queues.obtain(topic, 0)

    def append(self, body: bytes, topic: str = "T") -> int:
        queue = self.queue(topic)
        self.queues.make_room(queue)
        index = self.indexes.make_room(1)
        for _ in range(2):
            placed = self.log.append(
                queue,
                index,
                body,
                b"UNIQ_KEY\x01%s\x02" % body[:20],
                flag=0,
                system_flag=0,
                born_ms=1,
                born_host=HOST,
                reconsume_times=0,
                prepared_offset=len(body),
                now_ms=1000,
            )
            if placed != SEGMENT_NEEDED:
                break
            self.roll()
        assert placed >= 0
        return placed

    def take(self, log_offset: int, data: bytes) -> None:
        if self.log.append_raw(log_offset, data) == SEGMENT_NEEDED:
            self.segments.append()
            self.write()
            assert self.log.append_raw(log_offset, data) == 0

    def dispatch(self, end: int | None = None) -> tuple[int, int, int]:
        return self.dispatcher.run(self.log.dispatched, self.log.end if end is None else end)

    def records(self) -> list[tuple[int, int]]:
        self.log.store()
        at, found = self.log.first_position, []
        while (record := self.log.next_record(at, self.log.end)) is not None:
            found.append(record)
            at = sum(record)
        return found

    def bytes(self, first: int, end: int) -> bytes:
        self.log.store()
        return b"".join(
            bytes(file.buffer[begin:stop]) for file, begin, stop in self.segments.ranges(first, end)
        )

    def bodies(self, topic: str = "T") -> list[bytes]:
        data, count, _ = read(self.log, self.queue(topic), 0, None, **LIMITS)
        found = []
        while data:
            size = struct.unpack_from(">i", data)[0]
            body_size = struct.unpack_from(">i", data, 84)[0]
            found.append(data[88 : 88 + body_size])
            data = data[size:]
        assert len(found) == count
        return found

    def recover(self, *, was_killed: bool) -> None:
        Recovery(
            log=self.log,
            segments=self.segments,
            queues=self.queues,
            indexes=self.indexes,
            deletions=Deletions(self.disk),
            checkpoint=Checkpoint(),
            was_killed=was_killed,
            sync_failed=False,
            check_crc=True,
            index_enabled=True,
            distrust=lambda claim: None,
        ).run()
        self.write()


both = pytest.mark.parametrize("head_bytes", [0, HEAD_BYTES], ids=["plain", "heads"])


def filled(head_bytes: int, count: int = 40, *, apart: bool = False) -> Shelf:
    shelf = Shelf(head_bytes)
    shelf.log.dispatches_apart = apart
    shelf.log.term = 3
    for number in range(count):
        shelf.append(b"%d " % number + b"x" * (number * 37 % 400))
    shelf.log.store()
    return shelf


@both
def test_raw_records_make_the_same_log(head_bytes: int) -> None:
    source, copy = filled(head_bytes), Shelf(head_bytes)
    for base in range(0, source.log.end, SEGMENT_BYTES):
        copy.take(base, source.bytes(base, min(base + SEGMENT_BYTES, source.log.end)))
        assert copy.log.dispatched == base
        copy.dispatch()
    assert copy.log.end == copy.log.stored == source.log.end
    assert copy.bytes(0, copy.log.end) == source.bytes(0, source.log.end)
    assert copy.records() == source.records()
    assert (copy.log.last_store_ms, copy.log.next_number) == (
        source.log.last_store_ms,
        source.log.next_number,
    )
    source.log.visible = copy.log.visible = copy.log.end
    assert copy.bodies() == source.bodies()
    # It can go on by itself, as its source would.
    assert copy.log.chain == source.log.chain
    copy.log.term = source.log.term
    assert copy.append(b"next") == source.append(b"next")
    assert copy.bytes(0, copy.log.end) == source.bytes(0, source.log.end)


Change = Callable[[bytes], bytes]
WRONG: dict[str, Change] = {
    "cut short": lambda data: data[:-1],
    "more than records": lambda data: data + bytes(3),
    "a damaged body": lambda data: data[:-40] + b"?" + data[-39:],
    "another place": lambda data: data[200:],
    "zeros": lambda data: bytes(len(data)),
    "past the segment": lambda data: data + bytes(SEGMENT_BYTES),
}


@both
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_whole_record_changes_nothing(head_bytes: int, wrong: str) -> None:
    source, copy = filled(head_bytes, 9), Shelf(head_bytes)
    data = source.bytes(0, source.log.end)
    with pytest.raises(ValueError, match="no whole record at log offset"):
        copy.log.append_raw(0, WRONG[wrong](data))
    with pytest.raises(ValueError, match="where the log ends at 0"):
        copy.log.append_raw(1, data)
    assert (copy.log.end, copy.log.stored, copy.log.next_number) == (0, 0, 0)
    assert not any(copy.segments.files[0].buffer)
    copy.take(0, data)
    assert copy.records() == source.records()


@both
def test_a_blank_tail_ends_a_segment_and_comes_whole(head_bytes: int) -> None:
    source, copy = filled(head_bytes, 3), Shelf(head_bytes)
    end = source.log.end
    source.roll()
    copy.take(0, source.bytes(0, end))
    blank = source.bytes(end, SEGMENT_BYTES)
    with pytest.raises(ValueError, match="no whole record"):
        copy.log.append_raw(end, blank[:8])
    copy.take(end, blank)
    assert copy.log.append_raw(copy.log.end, source.bytes(0, 10)) == SEGMENT_NEEDED
    assert copy.dispatch()[0] == copy.log.end == SEGMENT_BYTES


def test_a_write_that_fails_leaves_the_log_where_it_was() -> None:
    source, copy = filled(0, 3), Shelf(0)
    copy.log.write_by(-1)
    assert copy.log.append_raw(0, source.bytes(0, source.log.end)) < 0
    assert copy.log.fault
    assert (copy.log.end, copy.log.stored) == (0, 0)


@both
@pytest.mark.parametrize("count", [0, 1, 7, 20, 39])
def test_a_log_is_cut_and_goes_on_as_if_it_had_ended_there(head_bytes: int, count: int) -> None:
    shelf, twin = filled(head_bytes, apart=True), filled(head_bytes, count, apart=True)
    end, queues = twin.log.end, [shelf.queue()]
    if count:
        shelf.dispatch(shelf.records()[count // 2][0] - head_bytes)
    shelf.segments.cut(end, is_dirty=False)
    number_tail(shelf.log, queues, shelf.dispatcher.queue_of)
    shelf.write()
    assert shelf.log.end == shelf.log.stored == end
    assert not any(shelf.segments.files[-1].buffer[end % SEGMENT_BYTES :])
    assert (shelf.log.next_number, shelf.log.chain) == (twin.log.next_number, twin.log.chain)
    assert shelf.queue().assigned == count
    for log in (shelf.log, twin.log):
        log.term = 9
    for number in range(30):
        assert shelf.append(b"new %d" % number) == twin.append(b"new %d" % number)
    assert shelf.bytes(0, shelf.log.end) == twin.bytes(0, twin.log.end)
    shelf.dispatch()
    twin.dispatch()
    assert shelf.queue().end == shelf.queue().assigned == count + 30
    shelf.log.visible = twin.log.visible = twin.log.end
    assert shelf.bodies() == twin.bodies()


@both
def test_what_lies_on_the_desk_is_cut_too(head_bytes: int) -> None:
    shelf = filled(head_bytes, 2, apart=True)
    kept = shelf.append(b"kept")
    end = shelf.log.end
    shelf.append(b"taken back")
    assert shelf.log.stored < end
    shelf.segments.cut(end, is_dirty=False)
    assert shelf.log.end == end
    assert shelf.records()[-1][0] == kept
    assert b"taken back" not in bytes(shelf.segments.files[0].buffer)


@both
def test_nothing_that_was_dispatched_or_shown_is_cut(head_bytes: int) -> None:
    shelf = filled(head_bytes, apart=True)
    offsets = [log_offset - head_bytes for log_offset, _ in shelf.records()]
    assert shelf.queue().end == 0
    assert shelf.dispatch(offsets[20])[0] == offsets[20] == shelf.log.dispatched
    assert (shelf.queue().end, shelf.queue().assigned) == (20, 40)
    with pytest.raises(AssertionError, match="what is dispatched is never cut"):
        shelf.segments.cut(offsets[19], is_dirty=False)
    shelf.log.visible = offsets[21]
    with pytest.raises(AssertionError, match="what is dispatched is never cut"):
        shelf.segments.cut(offsets[20], is_dirty=False)
    assert shelf.records()[-1][0] == offsets[39] + head_bytes
    plain = filled(head_bytes)
    with pytest.raises(AssertionError, match="what is dispatched is never cut"):
        plain.log.truncate(offsets[39])


def test_a_log_with_heads_is_cut_between_records_only() -> None:
    shelf = filled(HEAD_BYTES, apart=True)
    with pytest.raises(ValueError, match="no entry ends at log offset 500"):
        shelf.log.truncate(500)
    assert len(shelf.records()) == 40


def test_heads_say_what_a_replica_must_know() -> None:
    shelf = Shelf(HEAD_BYTES)
    shelf.log.term = 4
    shelf.append(b"first")
    shelf.log.term, shelf.log.channel = 5, 1
    shelf.append(b"second" * 40)
    chain = 0
    for number, (log_offset, size) in enumerate(shelf.records()):
        data = shelf.bytes(log_offset - HEAD_BYTES, log_offset + size)
        record, term = data[HEAD_BYTES:], 4 + number
        checksum = zlib.crc32(record)
        expected = (1, len(data), number, term, log_offset - HEAD_BYTES, number, chain, checksum)
        assert HEAD.unpack_from(data) == (*expected, size)
        assert struct.unpack_from(">q", record, 28) == (log_offset,)  # behind the head
        assert shelf.queue().entry(number)[:2] == (log_offset, size)
        chain = zlib.crc32(struct.pack(">IqqI", chain, term, number, checksum))
    assert shelf.log.chain == chain
    start = shelf.log.end
    shelf.roll()
    assert shelf.bytes(start, start + 8) == struct.pack(">ii", -1, SEGMENT_BYTES - start)


HEAD_FAULTS = {
    "magic": (0, b"\0\0\0\2"),
    "size": (7, b"\xff"),
    "number": (15, b"\x09"),
    "an older term": (23, b"\x01"),
    "position": (31, b"\x01"),
    "chain": (36, b"\x01\x02\x03\x04"),
    "checksum": (40, b"\x01\x02\x03\x04"),
    "size of the record": (47, b"\xff"),
    "properties of the record": (-2, b"?"),
}


@pytest.mark.parametrize("fault", HEAD_FAULTS)
def test_a_walk_ends_where_heads_do_not_go_on(fault: str) -> None:
    shelf = filled(HEAD_BYTES, 9)
    at, value = HEAD_FAULTS[fault]
    log_offset, size = shelf.records()[5]
    position = log_offset - HEAD_BYTES + at if at >= 0 else log_offset + size + at
    shelf.segments.files[0].buffer[position : position + len(value)] = value
    again = Shelf(HEAD_BYTES, shelf.disk)
    again.log.begin_at(again.log.end_position)
    assert again.dispatcher.run(0, 1 << 62, check_crc=True)[::2] == (log_offset - HEAD_BYTES, 5)


def test_a_term_without_entries_is_no_bar_to_entries_of_an_earlier_one() -> None:
    source, copy = filled(HEAD_BYTES, 5), Shelf(HEAD_BYTES)
    copy.log.term = 7
    copy.take(0, source.bytes(0, source.log.end))
    assert copy.log.term == 3
    assert copy.records() == source.records()


def test_entries_of_dledger_have_no_checksums() -> None:
    shelf = filled(HEAD_BYTES, 9)
    for log_offset, _ in shelf.records():
        base = log_offset - log_offset % SEGMENT_BYTES
        file = shelf.segments.files[base // SEGMENT_BYTES]
        file.buffer[log_offset - base - 12 : log_offset - base - 4] = bytes(8)
    copy = Shelf(HEAD_BYTES)
    copy.take(0, shelf.bytes(0, shelf.log.end))
    copy.log.term = 3
    copy.append(b"ours, from here on")
    assert len(copy.records()) == 10


@both
@pytest.mark.parametrize("mode", list(CrashMode))
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "apart"])
def test_a_start_finds_what_was_placed(head_bytes: int, mode: CrashMode, apart: bool) -> None:
    shelf = filled(head_bytes, apart=apart)
    known = shelf.records()[25]
    for file, begin, stop in shelf.segments.ranges(0, sum(known)):
        file.sync(begin, stop)
    again = Shelf(head_bytes, shelf.disk.crash_image(Random(7), mode))
    again.recover(was_killed=True)
    found = again.records()
    assert found == shelf.records()[: len(found)]
    assert len(found) == 40 if mode is CrashMode.KILL else len(found) >= 26
    assert again.log.next_number == (len(found) if head_bytes else 0)
    assert again.queue().end == again.queue().assigned == len(found)
    assert len(again.bodies()) == min(len(found), LIMITS["count_max"])
    again.log.term = 3
    again.append(b"after")
    again.log.store()
    assert len(again.records()) == len(found) + 1
    assert commits_between(again.log, 0, again.log.end)[-1] == (again.records()[-1][0], 5)


@both
def test_a_damaged_stretch_is_stepped_over(head_bytes: int) -> None:
    shelf = filled(head_bytes)
    records = shelf.records()
    damaged = records[3][0]
    shelf.segments.files[0].buffer[damaged : damaged + 40] = bytes(40)
    start = damaged - head_bytes
    assert next_sound(shelf.log, shelf.segments.files, start, 1 << 40) == records[4][0] - head_bytes
    assert has_key_between(shelf.log, records[4][0] - head_bytes, records[6][0])
    assert not has_key_between(shelf.log, start, records[6][0])
