"""Checking a stopped store without changing it: is everything where the log says it is?

The log is the truth. It is walked from its first record to its last, each checked, and from it all
queues and the index are built once more in memory; what lies on disk must say the same. Files are
mapped privately, so nothing written here can reach them. Works on Apache's stores as well.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from ariane.config import StoreConfig
from ariane.disk import Disk, MappedFile
from ariane.kernel.log import Index, Log, Queue, index_file_bytes, scan
from ariane.store import indexes, queues, segments
from ariane.store.checkpoint import ABORT_PATH, CheckpointFile
from ariane.store.damage import next_sound
from ariane.store.delays import delays_ms_of
from ariane.store.deletions import Deletions
from ariane.store.queues import ENTRY_BYTES, is_queue_number, may_number
from ariane.topics import SCHEDULE_TOPIC

Entry = tuple[int, int, int]  # log offset, record size, tags code or due time
Progress = Callable[[int, int], None]  # told how many bytes of the log are walked, and of how many

PROBLEMS_PER_KIND_MAX: Final = 10
CHUNK_BYTES: Final = 1 << 20
INDEX_ENTRY: Final = struct.Struct(">iqii")
INDEX_HEADER_BYTES: Final = 40
INDEX_SLOT_BYTES: Final = 4
EVERYTHING: Final = 1 << 62


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found wrong."""

    segment_count: int = 0
    record_count: int = 0
    log_first: int = 0
    log_end: int = 0
    queue_count: int = 0
    queue_entry_count: int = 0
    index_file_count: int = 0
    key_count: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check(disk: Disk, config: StoreConfig, *, progress: Progress | None = None) -> Report:
    """Walk a stopped store; the sizes of segments and queue files are taken from the files."""
    report = Report()
    checked = _Check(disk, config, report)
    if checked.find_log():
        checked.walk(progress or (lambda walked_bytes, log_bytes: None))
        checked.compare_queues()
        if config.index_enabled:
            checked.compare_index()
        checked.tell_of_a_kill()
    return report


class _Check:
    def __init__(self, disk: Disk, config: StoreConfig, report: Report) -> None:
        self._disk = disk
        self._config = config
        self._report = report
        self._segment_bytes = self._size_in(segments.DIRECTORY) or config.segment_bytes
        self._queue_bytes = self._queue_file_bytes() or config.queue_file_bytes
        self._queues: dict[tuple[str, int], _Rebuilt] = {}
        self._used_queue_count = 0
        self._queue_ends = 0
        self._indexes: list[_ScratchIndex] = []
        self._segments: list[int] = []  # where each begins
        checkpoint = CheckpointFile(disk).load()
        self._claim = checkpoint.claim
        # Of a killed broker's store, entries and keys of records from here on may be missing still.
        self._covered = EVERYTHING
        self._was_killed = disk.exists(ABORT_PATH)
        if self._was_killed and (self._claim is not None or checkpoint.log_ms == 0):
            self._covered = self._claim.log_offset if self._claim is not None else 0
        self._late_entries = 0
        self._late_keys = 0
        self._early_entries = 0
        self._deletions = Deletions(disk)
        self._deletions.load()
        self._delays_ms = delays_ms_of(config.delay_levels)
        self._log = Log(self._segment_bytes, bytes(8), delays_ms=self._delays_ms)

    def find_log(self) -> bool:
        """Look for the segments; False when there is nothing to walk."""
        self._segments = self._positions(segments.DIRECTORY, self._segment_bytes)
        self._report.segment_count = len(self._segments)
        return bool(self._segments)

    def walk(self, progress: Progress) -> None:
        """Check every record and build queues and index in memory, one segment after the other."""
        log, report = self._log, self._report
        report.log_first = report.log_end = self._segments[0]
        files: list[MappedFile] = []
        claimed = self._claim.log_offset if self._claim else 0
        for number, position in enumerate(self._segments, 1):
            path = f"{segments.DIRECTORY}/{segments.file_name(position)}"
            files.append(
                self._disk.mapped(path, self._segment_bytes, private=True, read_ahead=True)
            )
            log.add(position, files[-1].buffer)
            log.end = log.end_position
            if report.log_end == position:  # else the records ended in a segment before
                self._walk_from(position)
            while (sound := next_sound(log, files, report.log_end, claimed)) is not None:
                report.problems.append(
                    f"the log is damaged from {report.log_end} to {sound}; what was there is lost"
                )
                self._walk_from(sound)
            progress(number * self._segment_bytes, len(self._segments) * self._segment_bytes)
        self._look_behind(report.log_end, files)
        claim = self._claim
        if claim is not None and claim.log_offset > report.log_end:
            report.problems.append(
                f"the checkpoint covers the log up to {claim.log_offset}, but its records end at"
                f" {report.log_end}"
            )

    def _walk_from(self, log_offset: int) -> None:
        self._report.log_end, _, count = scan(
            self._log,
            log_offset,
            check_crc=True,
            queue_of=self._queue_of,
            make_room=self._make_room,
            index_of=self._index_of,
            index_from=0,
        )
        self._report.record_count += count

    def compare_queues(self) -> None:
        """Every record must be in its slot, and every slot must point at its record."""
        found = set()
        topics = self._disk.directories(queues.DIRECTORY)
        for topic in topics:
            for number in self._disk.directories(f"{queues.DIRECTORY}/{topic}"):
                if is_queue_number(number) and self._compare_queue(topic, int(number)):
                    found.add((topic, int(number)))
        deleted: dict[str, int] = {}
        for (topic, queue_id), rebuilt in sorted(self._queues.items()):
            count = rebuilt.queue.end - rebuilt.first
            if (topic, queue_id) in found or count == 0:
                continue
            if self._was_deleted(rebuilt.queue, is_topic_there=topic in topics):
                deleted[topic] = deleted.get(topic, 0) + count
            elif not self._is_late(rebuilt.queue, rebuilt.first):
                self._report.problems.append(
                    f"queue {queue_id} of {topic} is missing or empty, the log has {count} messages"
                    " for it"
                )
        for topic, count in deleted.items():
            self._report.warnings.append(
                f"{count} messages of topic {topic} in the log have no queue: it was deleted"
            )

    def _was_deleted(self, rebuilt: Queue, *, is_topic_there: bool) -> bool:
        """Whether a queue that is missing went with its topic.

        Apache's broker notes no deletion: then the queue must have been missing already when the
        checkpoint counted them all, or, where nobody counted, no queue of the topic be left.
        """
        if self._deletions.has_taken(rebuilt):
            return True
        claim, last = self._claim, rebuilt.entry(rebuilt.end - 1)
        if claim is None:
            return not is_topic_there
        return (
            last is not None
            and last[0] < claim.log_offset
            and self._used_queue_count >= claim.queue_count
            and self._queue_ends >= claim.queue_entries
        )

    def compare_index(self) -> None:
        """Every key must be in the index, and every entry in its slot's chain."""
        size = index_file_bytes(self._config.index_slot_count, self._config.index_entry_count)
        entries: list[Iterator[tuple[int, int]]] = []
        files = self._disk.names(indexes.DIRECTORY)
        for name, found in files:
            path = f"{indexes.DIRECTORY}/{name}"
            if self._is_unfinished(path, found, is_last=name == files[-1][0]):
                continue
            if found != size:
                self._report.problems.append(
                    f"{path} has {found} bytes and should have {size}, by maxHashSlotNum and"
                    " maxIndexNum; its keys were not looked at"
                )
                continue
            self._report.index_file_count += 1
            # A kill takes the slots of files along that the last checkpoint did not find full.
            has_slots = self._covered == EVERYTHING or (
                self._claim is not None and name < indexes.file_name(self._claim.index_name)
            )
            entries.append(self._check_index_file(path, size, has_slots=has_slots))
        if entries or not files:
            self._check_keys(_chained(entries))

    def tell_of_a_kill(self) -> None:
        """Of what a kill parted: records without their entries, entries without their records."""
        if self._late_entries or self._late_keys:
            self._report.warnings.append(
                f"the broker was killed: {self._late_entries} queue entries and {self._late_keys}"
                " keys of records in the log are not in their files; the next start adds them"
            )
        if self._early_entries:
            self._report.warnings.append(
                f"the broker was killed: {self._early_entries} queue entries are of records that it"
                " had not written yet; the next start removes them"
            )

    def _compare_queue(self, topic: str, queue_id: int) -> bool:
        """Compare one queue with what the log says; False when there is nothing to compare."""
        name = f"queue {queue_id} of {topic}"
        queue = Queue(topic.encode(), queue_id, self._queue_bytes)
        directory = f"{queues.DIRECTORY}/{topic}/{queue_id}"
        for position in self._positions(directory, self._queue_bytes):
            path = f"{directory}/{segments.file_name(position)}"
            queue.add(position, self._disk.mapped(path, self._queue_bytes, private=True).buffer)
        if not queue.file_count or self._is_being_deleted(queue):
            return False
        self._report.queue_count += 1
        expected = self._queues.get((topic, queue_id))
        end = queue.first_position // ENTRY_BYTES
        first = end if expected is None else max(end, expected.first)
        wrong = 0
        while (entry := queue.entry(end)) is not None:
            is_removed = entry[0] < self._log.first_position or entry[1] == queues.PADDING_BYTES
            should_be = None if expected is None else expected.queue.entry(end)
            if end >= first and not is_removed and not self._is_early(entry, should_be):
                self._report.queue_entry_count += 1
                is_right = entry == should_be or self._is_due_by_other_levels(
                    topic, queue_id, entry, should_be
                )
                if not is_right and (wrong := wrong + 1) <= PROBLEMS_PER_KIND_MAX:
                    self._report.problems.append(
                        f"{name}, entry {end}: is {entry}, should be {should_be}"
                    )
            end += 1
        if end == 0:  # made, and nothing put in
            return False
        self._used_queue_count += 1
        self._queue_ends += end
        if expected is not None and queue.first_position // ENTRY_BYTES > expected.first:
            self._report.problems.append(
                f"{name} starts at {queue.first_position // ENTRY_BYTES}, but the log has messages"
                f" from {expected.first} on"
            )
        is_short = expected is not None and end < expected.queue.end
        if expected is not None and is_short and not self._is_late(expected.queue, end):
            self._report.problems.append(
                f"{name} ends at {end}, but the log has messages up to {expected.queue.end}"
            )
        return True

    def _is_late(self, expected: Queue, end: int) -> bool:
        """Whether what a queue lacks from `end` on is what the next start will add."""
        entry = expected.entry(end)
        if entry is None or entry[0] < self._covered:
            return False
        self._late_entries += expected.end - end
        return True

    def _is_early(self, entry: Entry, should_be: Entry | None) -> bool:
        """Whether a kill came between an entry and its record; the next start removes it."""
        if should_be is not None or not self._was_killed or entry[0] < self._report.log_end:
            return False
        self._early_entries += 1
        return True

    def _is_being_deleted(self, queue: Queue) -> bool:
        """Whether a kill came while the queue was removed; the next start goes on with that."""
        queue.end = queue.first_position // ENTRY_BYTES
        while queue.entry(queue.end) is not None:
            queue.end += 1
        return self._deletions.has_taken(queue)

    def _check_index_file(
        self, path: str, size: int, *, has_slots: bool
    ) -> Iterator[tuple[int, int]]:
        """The file's (log offset, key hash) pairs; its chains are compared with fresh ones."""
        slots, count = self._config.index_slot_count, self._config.index_entry_count
        original = self._disk.mapped(path, size, private=True).buffer
        rebuilt = self._disk.mapped(path, size, private=True).buffer
        index = Index(rebuilt, slots, count)
        index.cut(index.next)
        slots_end = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
        end = slots_end + index.next * ENTRY_BYTES
        for start in range(INDEX_HEADER_BYTES if has_slots else slots_end, end, CHUNK_BYTES):
            stop = min(start + CHUNK_BYTES, end)
            if bytes(original[start:stop]) != bytes(rebuilt[start:stop]):
                self._report.problems.append(
                    f"{path}: slots or chains near byte {start} do not lead to every entry"
                )
                break
        first = slots_end + ENTRY_BYTES
        for key_hash, log_offset, _, _ in INDEX_ENTRY.iter_unpack(original[first:end]):
            yield log_offset, key_hash

    def _check_keys(self, found: Iterator[tuple[int, int]]) -> None:
        """Merge what the log says with what the files have; both are in log order."""
        actual = groupby(found, key=lambda pair: pair[0])
        at, hashes = -1, frozenset[int]()
        missing = 0
        scratch = _chained([index.entries() for index in self._indexes])
        for log_offset, pairs in groupby(scratch, key=lambda pair: pair[0]):
            expected = {key_hash for _, key_hash in pairs}
            self._report.key_count += len(expected)
            while at < log_offset:
                at, group = next(actual, (1 << 62, iter(())))
                hashes = frozenset(key_hash for _, key_hash in group)
            if at == log_offset and expected <= hashes:
                continue
            if log_offset >= self._covered:
                self._late_keys += len(expected)
            else:
                missing += 1
                if missing <= PROBLEMS_PER_KIND_MAX:
                    self._report.problems.append(
                        f"the index lacks keys of the record at log offset {log_offset}"
                    )
        if missing > PROBLEMS_PER_KIND_MAX:
            self._report.problems.append(f"the index lacks keys of {missing} records in all")

    def _look_behind(self, end: int, files: Sequence[MappedFile]) -> None:
        """The log must end in zeros, not in something that cannot be read."""
        log = self._log
        for file, base in zip(files, self._segments, strict=True):
            start = max(end, base)
            if start >= base + log.file_bytes or not any(file.buffer[start - base :][:8]):
                continue
            if self._is_cut_short(end, files):
                self._report.warnings.append(
                    f"the broker was killed while it wrote the record at log offset {start};"
                    " the next start removes it"
                )
                return
            self._report.problems.append(
                f"the record at log offset {start} is damaged; nothing from there on can be"
                f" read ({log.end_position - start} bytes)"
            )
            return

    def _is_cut_short(self, end: int, files: Sequence[MappedFile]) -> bool:
        """Whether the log ends in what a kill left of the last write, not in damage."""
        claimed = self._claim.log_offset if self._claim else 0
        log = self._log
        return (
            self._was_killed
            and end >= claimed
            and next_sound(log, files, end, log.end_position) is None
        )

    def _is_unfinished(self, path: str, size: int, *, is_last: bool) -> bool:
        """Whether a kill came while the file was made; it is told of as such."""
        if size or not (is_last and self._was_killed):
            return False
        self._report.warnings.append(
            f"the broker was killed while it made {path}; the next start removes it"
        )
        return True

    def _positions(self, directory: str, size: int) -> list[int]:
        """Where the usable files of a directory begin; the others are told."""
        positions: list[int] = []
        files = self._disk.names(directory)
        for name, found in files:
            path = f"{directory}/{name}"
            if self._is_unfinished(path, found, is_last=name == files[-1][0]):
                continue
            is_named = name.isascii() and name.isdigit() and len(name) == segments.NAME_DIGITS
            if not is_named:
                self._report.problems.append(f"{path} does not belong there")
            elif found != size:
                self._report.problems.append(f"{path} has {found} bytes and should have {size}")
            elif positions and int(name) != positions[-1] + size:
                self._report.problems.append(f"{path} does not follow the file before it")
                break
            else:
                positions.append(int(name))
        return positions

    def _size_in(self, directory: str) -> int:
        """The length most files of a directory have; 0 when there are none."""
        sizes = [size for name, size in self._disk.names(directory) if name.isdigit()]
        return max(sizes, key=sizes.count, default=0)

    def _queue_file_bytes(self) -> int:
        for topic in self._disk.directories(queues.DIRECTORY):
            for number in self._disk.directories(f"{queues.DIRECTORY}/{topic}"):
                size = self._size_in(f"{queues.DIRECTORY}/{topic}/{number}")
                if size and size % ENTRY_BYTES == 0:
                    return size
        return 0

    def _is_due_by_other_levels(
        self, topic: str, queue_id: int, entry: Entry, should_be: Entry | None
    ) -> bool:
        """Whether a delayed message is only due at another time than the levels now would have it.

        They may have been others when it was stored, and it keeps the time it was given then.
        """
        if topic != SCHEDULE_TOPIC or should_be is None or entry[:2] != should_be[:2]:
            return False
        stored_ms = should_be[2] - self._delays_ms[min(queue_id, len(self._delays_ms) - 1)]
        return entry[2] >= stored_ms

    def _queue_of(self, topic: bytes, queue_id: int) -> Queue:
        name = topic.decode(errors="replace")
        known = self._queues.get((name, queue_id))
        if known is not None:  # from an earlier segment
            return known.queue
        queue = Queue(topic, queue_id, self._queue_bytes, is_schedule=name == SCHEDULE_TOPIC)
        self._queues[name, queue_id] = _Rebuilt(queue)
        return queue

    def _make_room(self, queue: Queue, queue_offset: int) -> bool:
        rebuilt = self._queues[queue.topic.decode(errors="replace"), queue.queue_id]
        is_taken = queue_offset < queue.end and queue.entry(queue_offset) is not None
        if is_taken or not may_number(self._log, queue_offset):
            self._report.problems.append(
                f"queue {queue.queue_id} of {queue.topic.decode(errors='replace')}: a message says"
                f" that it is number {queue_offset}, where {queue.end} is due; it is damaged"
            )
            return False
        if queue.file_count and queue_offset > queue.end:
            self._report.problems.append(
                f"queue {queue.queue_id} of {queue.topic.decode(errors='replace')}: the log has no"
                f" message {queue.end}, but one {queue_offset}"
            )
        rebuilt.make_room(queue_offset)
        return True

    def _index_of(self, key_count: int) -> Index:
        newest = self._indexes[-1].index if self._indexes else None
        if newest is not None and newest.next + key_count <= newest.entry_count:
            return newest  # it has room left from an earlier segment
        index = _ScratchIndex(self._config.index_slot_count, self._config.index_entry_count)
        self._indexes.append(index)
        return index.index


class _Rebuilt:
    """A queue as the log says it should be, in memory."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.first = 0

    def make_room(self, queue_offset: int) -> None:
        """Let entry `queue_offset` be the next one and give it memory."""
        queue = self.queue
        per_file = queue.file_bytes // ENTRY_BYTES
        if queue.file_count and queue_offset < queue.first_position // ENTRY_BYTES:
            while queue.file_count:
                queue.drop_last()
        if not queue.file_count:
            self._add(queue_offset // per_file * queue.file_bytes)
            self.first = queue_offset
        while queue.end_position <= queue_offset * ENTRY_BYTES:
            self._add(queue.end_position)
        queue.end = queue_offset
        queue.reserved_end = queue.end_position // ENTRY_BYTES

    def _add(self, position: int) -> None:
        self.queue.add(position, mmap.mmap(-1, self.queue.file_bytes))


class _ScratchIndex:
    """An index file in memory."""

    def __init__(self, slot_count: int, entry_count: int) -> None:
        self.memory = mmap.mmap(-1, index_file_bytes(slot_count, entry_count))
        self.index = Index(self.memory, slot_count, entry_count)

    def entries(self) -> Iterator[tuple[int, int]]:
        """(log offset, key hash) pairs."""
        first = INDEX_HEADER_BYTES + self.index.slot_count * INDEX_SLOT_BYTES + ENTRY_BYTES
        end = first + (self.index.next - 1) * ENTRY_BYTES
        view = memoryview(self.memory)
        for key_hash, log_offset, _, _ in INDEX_ENTRY.iter_unpack(view[first:end]):
            yield log_offset, key_hash


def _chained(parts: Iterable[Iterator[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    for part in parts:
        yield from part
