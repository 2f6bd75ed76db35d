"""Checking the queues: every record must be in its slot, and every slot point at its record.

While the log is walked each queue is built once more in memory, 20 bytes a message. What lies on
disk is compared with that afterwards, a file at a time.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from ariane.disk import MappedFile
from ariane.kernel.queue import Queue
from ariane.store import queues, segments
from ariane.store.check_findings import PROBLEMS_PER_KIND_MAX, Subject
from ariane.store.comparing import agreeing_entries, used_entries
from ariane.store.queues import ENTRY_BYTES, is_queue_number, may_number
from ariane.topics import SCHEDULE_TOPIC

Entry = tuple[int, int, int]  # log offset, record size, tags code or due time

ENTRY: Final = struct.Struct(">qiq")


class QueuesCheck:
    """All queues, as the log says they should be and as they are."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._report = subject.report
        self._expected: dict[tuple[str, int], _Rebuilt] = {}
        self._used_count = 0
        self._ends = 0
        self.late_count = 0
        self.early_count = 0

    def queue_of(self, topic: bytes, queue_id: int) -> Queue:
        """The queue that takes the entries of the log's records."""
        name = topic.decode(errors="replace")
        known = self._expected.get((name, queue_id))
        if known is not None:  # from an earlier window
            return known.queue
        queue = Queue(
            topic, queue_id, self._subject.queue_bytes, is_schedule=name == SCHEDULE_TOPIC
        )
        self._expected[name, queue_id] = _Rebuilt(queue)
        return queue

    def make_room(self, queue: Queue, queue_offset: int) -> bool:
        """Let a queue have that entry; False when no log can have so many messages."""
        name = f"queue {queue.queue_id} of {queue.topic.decode(errors='replace')}"
        is_taken = queue_offset < queue.end and queue.entry(queue_offset) is not None
        if is_taken or not may_number(self._subject.log, queue_offset):
            self._report.problems.append(
                f"{name}: a message says that it is number {queue_offset}, where {queue.end} is"
                " due; it is damaged"
            )
            return False
        if queue.file_count and queue_offset > queue.end:
            self._report.problems.append(
                f"{name}: the log has no message {queue.end}, but one {queue_offset}"
            )
        self._expected[queue.topic.decode(errors="replace"), queue.queue_id].make_room(queue_offset)
        return True

    def compare(self) -> None:
        """Compare what lies on disk with what the log says."""
        found = set()
        disk = self._subject.disk
        topics = disk.directories(queues.DIRECTORY)
        for topic in topics:
            for number in disk.directories(f"{queues.DIRECTORY}/{topic}"):
                if is_queue_number(number) and self._compare_queue(topic, int(number)):
                    found.add((topic, int(number)))
        deleted: dict[str, int] = {}
        for (topic, queue_id), rebuilt in sorted(self._expected.items()):
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
        if self._subject.deletions.has_taken(rebuilt):
            return True
        claim, last = self._subject.claim, rebuilt.entry(rebuilt.end - 1)
        if claim is None:
            return not is_topic_there
        return (
            last is not None
            and last[0] < claim.log_offset
            and self._used_count >= claim.queue_count
            and self._ends >= claim.queue_entries
        )

    def _compare_queue(self, topic: str, queue_id: int) -> bool:
        """Compare one queue with what the log says; False when there is nothing to compare."""
        files = self._files_of(topic, queue_id)
        if not files or self._is_being_deleted(topic, files):
            return False
        self._report.queue_count += 1
        expected = self._expected.get((topic, queue_id))
        if expected is not None:
            expected.queue.settle()  # its memory is read without asking it
        start = int(files[0].path.rpartition("/")[2]) // ENTRY_BYTES
        end = start + self._compare_files(topic, queue_id, files, expected)
        if end == 0:  # made, and nothing put in
            return False
        self._used_count += 1
        self._ends += end
        if expected is None:
            return True
        name = f"queue {queue_id} of {topic}"
        if start > expected.first:
            self._report.problems.append(
                f"{name} starts at {start}, but the log has messages from {expected.first} on"
            )
        if end < expected.queue.end and not self._is_late(expected.queue, end):
            self._report.problems.append(
                f"{name} ends at {end}, but the log has messages up to {expected.queue.end}"
            )
        return True

    def _files_of(self, topic: str, queue_id: int) -> list[MappedFile]:
        size = self._subject.queue_bytes
        directory = f"{queues.DIRECTORY}/{topic}/{queue_id}"
        return [
            self._subject.disk.mapped(
                f"{directory}/{segments.file_name(position)}", size, private=True, read_ahead=True
            )
            for position in self._subject.positions(directory, size)
        ]

    def _compare_files(
        self, topic: str, queue_id: int, files: list[MappedFile], expected: _Rebuilt | None
    ) -> int:
        """Compare a queue's entries up to the first that is empty; how many there are."""
        total = wrong = 0
        for file in files:
            used = used_entries(file.buffer)
            position = int(file.path.rpartition("/")[2])
            first = position // ENTRY_BYTES
            memory = None if expected is None else expected.memory.get(position)
            compared_from = 0 if expected is None else expected.first - first
            at = 0
            while at < used:
                at, count = agreeing_entries(
                    file.buffer, memory, at, used, compared_from, self._subject.log.first_position
                )
                self._report.queue_entry_count += count
                if at == used:
                    break
                entry: Entry = ENTRY.unpack_from(file.buffer, at * ENTRY_BYTES)
                should_be = None if expected is None else expected.queue.entry(first + at)
                if self._is_wrong(topic, queue_id, entry, should_be):
                    wrong += 1
                    if wrong <= PROBLEMS_PER_KIND_MAX:
                        self._report.problems.append(
                            f"queue {queue_id} of {topic}, entry {first + at}: is {entry}, should"
                            f" be {should_be}"
                        )
                at += 1
            total += used
            file.forget(0, file.size)
            if used < file.size // ENTRY_BYTES:
                break
        return total

    def _is_wrong(self, topic: str, queue_id: int, entry: Entry, should_be: Entry | None) -> bool:
        """Whether an entry that is not what it should be is a problem."""
        if self._is_early(entry, should_be):
            return False
        self._report.queue_entry_count += 1
        return not self._is_due_by_other_levels(topic, queue_id, entry, should_be)

    def _is_late(self, expected: Queue, end: int) -> bool:
        """Whether what a queue lacks from `end` on is what the next start will add."""
        entry = expected.entry(end)
        if entry is None or entry[0] < self._subject.covered:
            return False
        self.late_count += expected.end - end
        return True

    def _is_early(self, entry: Entry, should_be: Entry | None) -> bool:
        """Whether a kill came between an entry and its record; the next start removes it."""
        was_killed, log_end = self._subject.was_killed, self._report.log_end
        if should_be is not None or not was_killed or entry[0] < log_end:
            return False
        self.early_count += 1
        return True

    def _is_being_deleted(self, topic: str, files: list[MappedFile]) -> bool:
        """Whether a kill came while the queue was removed; the next start goes on with that."""
        deletions, last = self._subject.deletions, None
        if not deletions.covers(topic, 0):
            return False
        for file in files:
            if used := used_entries(file.buffer):
                last = ENTRY.unpack_from(file.buffer, (used - 1) * ENTRY_BYTES)[0]
            if used < file.size // ENTRY_BYTES:
                break
        return last is not None and deletions.covers(topic, last)

    def _is_due_by_other_levels(
        self, topic: str, queue_id: int, entry: Entry, should_be: Entry | None
    ) -> bool:
        """Whether a delayed message is only due at another time than the levels now would have it.

        They may have been others when it was stored, and it keeps the time it was given then.
        """
        if topic != SCHEDULE_TOPIC or should_be is None or entry[:2] != should_be[:2]:
            return False
        delays_ms = self._subject.delays_ms
        stored_ms = should_be[2] - delays_ms[min(queue_id, len(delays_ms) - 1)]
        return entry[2] >= stored_ms


class _Rebuilt:
    """A queue as the log says it should be, in memory."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.first = 0
        self.memory: dict[int, memoryview] = {}  # of each file, by where it begins

    def make_room(self, queue_offset: int) -> None:
        """Let entry `queue_offset` be the next one and give it memory."""
        queue = self.queue
        per_file = queue.file_bytes // ENTRY_BYTES
        if queue.file_count and queue_offset < queue.first_position // ENTRY_BYTES:
            self.memory.clear()
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
        memory = memoryview(mmap.mmap(-1, self.queue.file_bytes))
        self.memory[position] = memory
        self.queue.add(position, memory)
