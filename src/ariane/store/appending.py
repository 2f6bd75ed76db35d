"""Placing messages: the kernel writes, and whatever room it misses is made here.

Room is always made before anything of a message, or of a batch, is written: an append that raises
has left the store as it was.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Final

from ariane.clock import Clock
from ariane.disk import MappedFile
from ariane.errors import MessageTooLarge
from ariane.kernel.log import (
    INDEX_ROOM_NEEDED,
    MEMORY_NEEDED,
    QUEUE_ROOM_NEEDED,
    RECORD_NOT_STORED,
    SEGMENT_NEEDED,
    Log,
)
from ariane.kernel.properties import key_count_of
from ariane.kernel.queue import Queue
from ariane.store import chunks
from ariane.store.hosts import host_bytes_of, message_id_of
from ariane.store.indexes import Indexes
from ariane.store.messages import (
    BatchEntry,
    NewBatch,
    NewMessage,
    Placed,
    PlacedBatch,
    PlacedRows,
    StagedRows,
)
from ariane.store.queues import Queues
from ariane.store.segments import Segments

FIXED_BYTES: Final = 75  # of a record, beside hosts, body, topic and properties
BLANK_BYTES: Final = 8  # kept free at the end of a segment
SHORT_TOPIC_BYTES_MAX: Final = 127  # a longer one has a longer length


class Appender:
    """Writes messages to the end of the log."""

    def __init__(
        self,
        clock: Clock,
        *,
        host_bytes: bytes,
        log: Log,
        segments: Segments,
        queues: Queues,
        indexes: Indexes | None,
        next_segment: Callable[[], MappedFile | None],
        open_descriptor: Callable[[MappedFile], int],
        on_rolled: Callable[[MappedFile, int], None],
    ) -> None:
        self._clock = clock
        self._host_bytes = host_bytes
        self._log = log
        self._segments = segments
        self._queues = queues
        self._indexes = indexes
        self._next_segment = next_segment
        self._open_descriptor = open_descriptor
        self._on_rolled = on_rolled

    def append(self, message: NewMessage) -> Placed:
        """Place one message; raises DiskFull or MessageTooLarge."""
        queue = self._queues.obtain(message.topic, message.queue_id)
        entry = BatchEntry(message.flag, message.body, message.properties)
        born_host = host_bytes_of(message.born_host)
        size = self._check_sizes(queue, [entry], born_host)
        log_offset = self._place(queue, entry, message, born_host)
        return Placed(
            log_offset,
            size - self._log.head_bytes,
            queue.assigned - 1,
            self._log.end,
            self._log.last_store_ms,
            message_id_of(self._host_bytes, log_offset),
        )

    def append_batch(self, batch: NewBatch) -> PlacedBatch:
        """Place messages together in one segment, or none of them; raises as `append` does."""
        queue = self._queues.obtain(batch.topic, batch.queue_id)
        born_host = host_bytes_of(batch.born_host)
        total = self._check_sizes(queue, batch.entries, born_host)
        if self._log.free_bytes < total + BLANK_BYTES:
            self._roll()
        self._queues.make_room(queue, len(batch.entries))
        if self._indexes is not None:
            keys = sum(key_count_of(entry.properties) for entry in batch.entries)
            self._indexes.make_room(min(keys, self._indexes.keys_max))
        first = queue.assigned
        log_offsets = [self._place(queue, entry, batch, born_host) for entry in batch.entries]
        return PlacedBatch(
            log_offsets[0],
            total - len(log_offsets) * self._log.head_bytes,
            first,
            self._log.end,
            self._log.last_store_ms,
            [message_id_of(self._host_bytes, log_offset) for log_offset in log_offsets],
        )

    def append_rows(self, rows: StagedRows, note_of: Callable[[int], NewMessage]) -> PlacedRows:
        """Place some rows of a chunk right behind a note of how many; raises as `append` does.

        Room for all of it is made first, so that only a kill can part the rows from their note.
        LookupError when the chunk is not in the log.
        """
        log, queue = self._log, self._queues.obtain(rows.topic, rows.queue_id)
        count, total, keys = chunks.measure(
            log,
            queue,
            rows.chunk_offset,
            rows.position,
            rows_max=rows.count_max,
            bytes_max=min(rows.bytes_max, log.file_bytes // 2),
            keys_max=1 << 62 if self._indexes is None else self._indexes.keys_max // 2,
        )
        note = note_of(count)
        note_queue = self._queues.obtain(note.topic, note.queue_id)
        note_entry = BatchEntry(note.flag, note.body, note.properties)
        note_host = host_bytes_of(note.born_host)
        note_bytes = self._check_sizes(note_queue, [note_entry], note_host)
        if log.free_bytes < note_bytes + total + BLANK_BYTES:
            self._roll()
        self._queues.make_room(note_queue)
        self._queues.make_room(queue, count)
        index = None  # also for more keys than a whole file can hold
        if self._indexes is not None and keys <= self._indexes.keys_max:
            index = self._indexes.make_room(keys)
        self._place(note_queue, note_entry, note, note_host)
        size, number = note_bytes - log.head_bytes, note_queue.assigned - 1
        placed = Placed(0, size, number, log.end, log.last_store_ms, "")
        first = queue.assigned
        position = chunks.place_rows(
            log,
            queue,
            index,
            rows.chunk_offset,
            rows.position,
            count,
            now_ms=self._clock.wall_ms(),
        )
        return PlacedRows(placed, count, total, first, position)

    def append_raw(self, log_offset: int, data: bytes) -> None:
        """Take whole records of another log at the end of this one, in the places they have there.

        They stay within a segment, and may end it. They are not dispatched. DiskFull or OSError,
        and ValueError for what cannot follow, leave the log as it was.
        """
        refusal = self._log.append_raw(log_offset, data)
        if refusal == SEGMENT_NEEDED:
            self._roll()
            refusal = self._log.append_raw(log_offset, data)
        if refusal == RECORD_NOT_STORED:
            raise OSError(self._log.fault, "cannot write the commit log")

    def _place(
        self, queue: Queue, entry: BatchEntry, source: NewMessage | NewBatch, born_host: bytes
    ) -> int:
        prepared_offset = source.prepared_offset if isinstance(source, NewMessage) else 0
        index = self._indexes.current if self._indexes is not None else None
        now_ms = self._clock.wall_ms()
        is_index_asked = False
        while True:
            log_offset = self._log.append(
                queue,
                index,
                entry.body,
                entry.properties,
                flag=entry.flag,
                system_flag=source.system_flag,
                born_ms=source.born_at_ms,
                born_host=born_host,
                reconsume_times=source.reconsume_times,
                prepared_offset=prepared_offset,
                now_ms=now_ms,
            )
            if log_offset >= 0:
                queue.settle()  # only the lane keeps entries back
                return log_offset
            if log_offset == SEGMENT_NEEDED:
                self._roll()
            elif log_offset == QUEUE_ROOM_NEEDED:
                self._queues.make_room(queue)
            elif log_offset == INDEX_ROOM_NEEDED and self._indexes is not None:
                keys = min(key_count_of(entry.properties), self._indexes.keys_max)
                # More keys than a whole file can hold go without the index.
                index = None if is_index_asked else self._indexes.make_room(keys)
                is_index_asked = True
            elif log_offset == RECORD_NOT_STORED:
                raise OSError(self._log.fault, "cannot write the commit log")
            elif log_offset == MEMORY_NEEDED:
                raise OSError(errno.ENOMEM, "no memory to write the record from")
            else:
                raise MessageTooLarge(
                    f"a message of {len(entry.body)} bytes with {len(entry.properties)} bytes of"
                    " properties does not fit into a record"
                )

    def _check_sizes(self, queue: Queue, entries: Sequence[BatchEntry], born_host: bytes) -> int:
        """The bytes of the log that the records will take; MessageTooLarge if no segment can."""
        fixed = FIXED_BYTES + len(born_host) + len(self._host_bytes) + len(queue.topic)
        fixed += len(queue.topic) > SHORT_TOPIC_BYTES_MAX
        sizes = [fixed + len(entry.body) + len(entry.properties) for entry in entries]
        if max(sizes) > self._log.record_bytes_max:
            raise MessageTooLarge(
                f"a message of {max(sizes)} bytes with its header; {self._log.record_bytes_max} are"
                " allowed (maxMessageSize, mappedFileSizeCommitLog)"
            )
        total = sum(sizes) + len(sizes) * self._log.head_bytes
        if total + BLANK_BYTES > self._log.file_bytes:
            raise MessageTooLarge(
                f"a batch of {total} bytes does not fit into a segment of"
                f" {self._log.file_bytes} (mappedFileSizeCommitLog); send it in parts"
            )
        return total

    def _roll(self) -> None:
        """Go on in a new segment; or DiskFull or OSError, with the old one as it was."""
        file = self._next_segment()
        if file is None:
            file = self._segments.next = self._segments.create(self._log.end_position)
        descriptor = self._open_descriptor(file)  # all that may fail comes before the old one ends
        try:
            self._log.seal()
            self._segments.append(file)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise
        self._on_rolled(file, descriptor)
