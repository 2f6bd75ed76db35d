"""Ahead of the writer: the next segment is made, and blocks and pages of other files.

Making a segment takes longer than many messages, reserving blocks may wait for the file system's
journal, and a page fault on the loop takes longer than a message; all are done on a lane before
they are needed. What is written by calls needs no pages ahead (docs/decisions/0015, 0022, 0025).
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from ariane.clock import Clock
from ariane.disk import MappedFile
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.background import Lane
from ariane.store.indexes import IndexFile
from ariane.store.queues import Queues
from ariane.store.segments import Segments

logger: Final = logging.getLogger("ariane.store")

INDEX_AHEAD_ENTRIES: Final = 400_000
INDEX_AHEAD_LOOKS: Final = 8  # and as many as have come between so many looks
INDEX_STEP_BYTES: Final = 1 << 20
CALL_BYTES: Final = 512 << 10  # no call keeps the address space from mapping files for longer
RETRY_S: Final = 1.0


class Preparation:
    """Keeps a segment ready, blocks of the index, and blocks and pages of long queues."""

    def __init__(
        self, log: Log, segments: Segments, queues: Queues, clock: Clock, lane: Lane
    ) -> None:
        self._log = log
        self._segments = segments
        self._queues = queues
        self._clock = clock
        self._lane = lane
        self._indexed = (0, 0)  # file and entry at the last look
        self._is_creating = False
        self._is_indexing = False
        self._retry_at_s = 0.0

    def look(self) -> None:
        """Start to make the next segment once the newest is in use in earnest.

        On a disk that is behind with its writing this takes seconds, in which many a message comes.
        """
        used = self._log.file_bytes - self._log.free_bytes
        if self._segments.next is None and used >= self._log.file_bytes // 8:
            self._create()

    def look_at_index(self, newest: IndexFile) -> None:
        """Have blocks ready for the keys to come, while messages do come."""
        name, entry = self._indexed
        if self._is_indexing or (name, entry) == (newest.name, newest.index.next):
            return
        came = newest.index.next - (entry if name == newest.name else 1)
        self._indexed = (newest.name, newest.index.next)
        first, end = newest.range_ahead(max(INDEX_AHEAD_ENTRIES, came * INDEX_AHEAD_LOOKS))
        if end - first < INDEX_STEP_BYTES:
            return
        self._is_indexing = True
        self._lane.run(
            lambda: newest.file.reserve(first, end),
            lambda future: self._did_index(future, newest, end),
        )

    def _did_index(self, future: Future[None], newest: IndexFile, end: int) -> None:
        self._is_indexing = False
        if error := future.exception():
            logger.warning("index not made ready ahead reason=%s", error)
        else:
            newest.reserved_to(end)

    def next_segment(self) -> MappedFile | None:
        """The segment made ahead; waits for one that is being made; None if there is none."""
        if self._is_creating:
            self._lane.wait()
        return self._segments.next

    def _create(self) -> None:
        if self._is_creating or self._clock.monotonic_s() < self._retry_at_s:
            return
        self._is_creating = True
        position = self._log.end_position
        self._lane.run(lambda: self._segments.create(position), self._created)

    def _created(self, future: Future[MappedFile]) -> None:
        self._is_creating = False
        if error := future.exception():
            # The append that needs it will try again and tell its sender.
            self._retry_at_s = self._clock.monotonic_s() + RETRY_S
            logger.warning("segment not made ahead reason=%s", error)
        else:
            self._segments.next = future.result()

    def bring_in(self, queue: Queue, file: MappedFile, first: int, end: int) -> None:
        """Give a stretch of a long queue's file its blocks, and pages if its map is written."""
        is_mapped = queue.take_mapped()
        self._lane.run(
            lambda: _make_ready(file, first, end, with_pages=is_mapped),
            lambda future: self._brought_in(future, queue, file, end),
        )

    def _brought_in(self, future: Future[None], queue: Queue, file: MappedFile, end: int) -> None:
        # What failed is tried again by the entry that needs it, and its sender told; a queue that
        # was deleted meanwhile needs nothing.
        self._queues.made_ready(queue, file, 0 if future.exception() else end)


def _make_ready(file: MappedFile, first: int, end: int, *, with_pages: bool) -> None:
    file.reserve(first, end)
    for start in range(first, end if with_pages else first, CALL_BYTES):
        file.populate(start, min(start + CALL_BYTES, end))
