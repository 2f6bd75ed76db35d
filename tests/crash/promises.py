"""What senders were told, and whether a store that came back keeps it.

A crash may take what no promise covers: records past `kill_end` (the process died) or `power_end`
(the machine did), and messages whose append had not returned. Whatever is there must be whole, in
its place and findable; whatever was never sent must not be.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from ariane.config import StoreConfig
from ariane.disk import SimulatedDisk
from ariane.store.check import check
from ariane.store.messages import Boundary, FoundStatus
from ariane.store.store import Store

from .records import BLANK, Message, Record, encode, read_place
from .tables import TableContents

QueueName = tuple[str, int]
FOREVER_MS = 1 << 60
QUERY_COUNT = 64
KEYS_LOOKED_UP = 40


@dataclass(slots=True)
class Promises:
    """Everything a crash is measured by."""

    config: StoreConfig
    store_host: str
    records: list[Record] = field(default_factory=list)  # in log order, whatever may be there
    pending: list[Message] = field(default_factory=list)  # being appended at this moment
    lives: Counter[str] = field(default_factory=Counter)  # how often each topic was deleted
    deleting: str | None = None  # a topic whose deletion has not returned
    first: int = 0  # the log begins here or, when a removal is undone, before
    kill_end: int = 0  # a process kill keeps every record that ends here or before
    power_end: int = 0  # a power cut as well
    tables: TableContents = field(default_factory=TableContents)

    def copy(self, *, is_power_cut: bool) -> Promises:
        """What still holds after a crash."""
        return replace(
            self,
            records=list(self.records),
            pending=list(self.pending),
            lives=Counter(self.lives),
            kill_end=self.power_end if is_power_cut else self.kill_end,
            tables=self.tables.copy(),
        )

    def next_offset(self, queue: QueueName) -> int:
        """The queue offset that the queue's next message gets."""
        life = self.lives[queue[0]]
        for record in reversed(self.records):
            if record.message.queue == queue and record.life == life:
                return record.queue_offset + 1
        return 0

    def record_of(
        self, message: Message, *, log_offset: int, queue_offset: int, store_ms: int
    ) -> Record:
        """A message as it must lie in the log."""
        data = encode(
            message,
            log_offset=log_offset,
            queue_offset=queue_offset,
            store_ms=store_ms,
            store_host=self.store_host,
        )
        life = self.lives[message.topic]
        return Record(message, log_offset, queue_offset, store_ms, life, data)

    def queues(self) -> dict[QueueName, list[Record]]:
        """Every queue and the records it must have, those gone by retention included."""
        found: dict[QueueName, list[Record]] = {}
        for record in self.records:
            if record.life == self.lives[record.message.topic]:
                found.setdefault(record.message.queue, []).append(record)
        return found


def settle(store: Store, disk: SimulatedDisk, promises: Promises) -> None:
    """Check a store that has just come back, and let the promises follow what it now holds."""
    first, end = store.log.first_position, store.written
    assert end >= promises.kill_end, f"the log ends at {end}, {promises.kill_end} was promised"
    assert first <= promises.first, f"the log begins at {first}, {promises.first} was kept"
    assert store.flushed == end and store.visible == end
    promises.records = list(_walk(disk, promises, first, end))
    promises.pending.clear()
    promises.first = first
    promises.kill_end = promises.power_end = end
    promises.tables.settle(disk)


def _walk(disk: SimulatedDisk, promises: Promises, first: int, end: int) -> Iterator[Record]:
    """The records known to be there, each compared byte for byte; the log has nothing else."""
    files = {int(name): disk.read(f"commitlog/{name}") for name, _ in disk.names("commitlog")}
    size = promises.config.segment_bytes
    assert sorted(files) == list(range(first, first + len(files) * size, size))
    at, known, pending, store_ms = first, iter(promises.records), list(promises.pending), 0
    ends: dict[QueueName, int] = {}
    next_record = next(known, None)
    while next_record is not None and next_record.log_offset < first:
        if next_record.life == promises.lives[next_record.message.topic]:
            ends[next_record.message.queue] = next_record.queue_offset + 1
        yield next_record  # its segment is gone, its number is not
        next_record = next(known, None)
    while at < end:
        base = at - at % size
        data = files[base][at - base :]
        if struct.unpack_from(">II", data.ljust(8)) == (len(data), BLANK):
            at += len(data)
            continue
        if next_record is not None:
            record = next_record
            assert record.log_offset == at, f"a record at {at}, expected {record.log_offset}"
            next_record = next(known, None)
        else:
            record = _unacknowledged(promises, pending, data, at, ends)
        assert data.startswith(record.data), f"the record at {at} is not what was sent"
        if record.life == promises.lives[record.message.topic]:
            ends[record.message.queue] = record.queue_offset + 1
        assert record.store_ms >= store_ms, f"the record at {at} is older than the one before"
        at, store_ms = record.end, record.store_ms
        yield record
    for base, data in files.items():
        assert not any(data[max(end - base, 0) :]), f"something lies behind the end {end}"


def _unacknowledged(
    promises: Promises, pending: list[Message], data: bytes, at: int, ends: dict[QueueName, int]
) -> Record:
    """The record of a message that was being appended when the crash came."""
    size, queue_offset, store_ms = read_place(data)
    while pending:
        message = pending.pop(0)
        record = promises.record_of(
            message, log_offset=at, queue_offset=queue_offset, store_ms=store_ms
        )
        if record.data == data[:size]:
            expected = ends.get(message.queue, 0)
            assert queue_offset == expected, f"queue offset {queue_offset}, expected {expected}"
            return record
    raise AssertionError(f"the record at {at} was never sent, or not there")


def check_contents(
    store: Store, disk: SimulatedDisk, promises: Promises, random: Random, *, is_quiet: bool = True
) -> None:
    """Queues, index and (when nothing is under way) files say exactly what the log says."""
    first, end = store.log.first_position, store.visible
    in_log = [r for r in promises.records if first <= r.log_offset < end]
    queues = promises.queues()
    for queue, records in queues.items():
        if queue[0] != promises.deleting:
            _check_queue(store, queue, records, first, end)
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            if topic != promises.deleting and (topic, queue_id) not in queues:
                assert store.max_offset(topic, queue_id) == 0, f"{topic}/{queue_id} came back"
    if end == store.written and promises.config.index_enabled:
        _check_keys(store, in_log, random)
    if end == store.written and is_quiet:
        report = check(disk, promises.config)
        problems = [p for p in report.problems if f" of {promises.deleting}" not in p]
        assert not problems, problems
        assert report.log_end == end
        if report.log_first == first:  # or else the disk has refused to remove a segment
            assert report.record_count == len(in_log)
    assert disk.unreserved_writes() == []


def _check_queue(
    store: Store, queue: QueueName, records: list[Record], first: int, end: int
) -> None:
    """Offsets are dense, each entry points at its record, and reading gives the records."""
    topic, queue_id = queue
    shown = [r for r in records if first <= r.log_offset < end]
    last = next((r for r in reversed(records) if r.log_offset < end), None)
    high = 0 if last is None else last.queue_offset + 1
    low = shown[0].queue_offset if shown else high
    found = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    assert found == (low, high), f"{queue} has offsets {found}, expected {(low, high)}"
    kernel_queue = store.queue(topic, queue_id)
    for record in shown:
        entry = kernel_queue.entry(record.queue_offset)
        assert entry == record.entry, f"{queue} {record.queue_offset}: {entry}, not {record.entry}"
    parts, at = [], low
    while at < high:
        part = store.read(topic, queue_id, at, count_max=32)
        assert part.next_offset > at, f"{queue} cannot be read past {at}: {part.status}"
        parts.append(part.body)
        at = part.next_offset
    assert b"".join(parts) == b"".join(r.data for r in shown), f"{queue} reads as something else"
    if high:
        ahead = store.read(topic, queue_id, high + 5, count_max=1)
        assert (ahead.status, ahead.next_offset) == (FoundStatus.OFFSET_OVERFLOW_BADLY, high)
    if low:
        behind = store.read(topic, queue_id, low - 1, count_max=1)
        assert (behind.status, behind.next_offset) == (FoundStatus.OFFSET_TOO_SMALL, low)
    if shown:
        middle = shown[len(shown) // 2]
        assert store.record_at(middle.log_offset) == middle.data
        early = next(r.queue_offset for r in shown if r.store_ms >= middle.store_ms)
        late = [r.queue_offset for r in shown if r.store_ms <= middle.store_ms][-1]
        assert store.offset_at(topic, queue_id, middle.store_ms, Boundary.LOWER) == early
        assert store.offset_at(topic, queue_id, middle.store_ms, Boundary.UPPER) == late


def _check_keys(store: Store, in_log: list[Record], random: Random) -> None:
    """Every key finds its record, and finds nothing that is not in the log."""
    data_at = {record.log_offset: record.data for record in in_log}
    wanted: dict[tuple[str, str], set[int]] = {}
    for record in in_log:
        for key in record.message.all_keys:
            wanted.setdefault((record.message.topic, key), set()).add(record.log_offset)
    for topic, key in random.sample(sorted(wanted), min(KEYS_LOOKED_UP, len(wanted))):
        found = store.query(topic, key, count_max=QUERY_COUNT, begin_ms=0, end_ms=FOREVER_MS)
        offsets, body = set(), found.body
        while body:
            size, _, _ = read_place(body)
            log_offset = struct.unpack_from(">q", body, 28)[0]
            assert data_at.get(log_offset) == body[:size], f"key {key} finds what is not there"
            offsets.add(log_offset)
            body = body[size:]
        missing = wanted[topic, key] - offsets
        assert not missing or len(offsets) == QUERY_COUNT, f"key {key} misses {sorted(missing)}"
