"""Ahead of the writer: the next segment is made, and pages of other files are brought in.

Making a segment takes longer than many messages, and a page fault on the loop longer than one; both
are done on a lane before they are needed. The log and the index are written by calls and need no
pages ahead (docs/decisions/0015, 0022).
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from ariane.clock import Clock
from ariane.disk import MappedFile
from ariane.kernel.log import Log
from ariane.store.background import Lane
from ariane.store.indexes import IndexFile
from ariane.store.segments import Segments

logger: Final = logging.getLogger("ariane.store")

INDEX_AHEAD_ENTRIES: Final = 400_000  # some 100 ms of the most that is sent
INDEX_STEP_BYTES: Final = 1 << 20
CALL_BYTES: Final = 512 << 10  # no call keeps the address space from mapping files for longer
RETRY_S: Final = 1.0


class Preparation:
    """Keeps a segment ready, blocks of the index, and pages of the queues."""

    def __init__(self, log: Log, segments: Segments, clock: Clock, lane: Lane) -> None:
        self._log = log
        self._segments = segments
        self._clock = clock
        self._lane = lane
        self._indexed = (0, 0)  # file and entry at the last look
        self._is_creating = False
        self._is_indexing = False
        self._retry_at_s = 0.0

    def look(self) -> None:
        """Start to make the next segment once it will be needed soon."""
        if self._segments.next is None and self._log.free_bytes < self._log.file_bytes // 4:
            self._create()

    def look_at_index(self, newest: IndexFile) -> None:
        """Have blocks ready for the keys to come, while messages do come."""
        if self._is_indexing or self._indexed == (newest.name, newest.index.next):
            return
        self._indexed = (newest.name, newest.index.next)
        first, end = newest.range_ahead(INDEX_AHEAD_ENTRIES)
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

    def bring_in(self, file: MappedFile, first: int, end: int) -> None:
        """Bring in pages of another file that is about to be written all over."""
        self._lane.run(lambda: _populate(file, first, end), lambda future: None)


def _populate(file: MappedFile, first: int, end: int) -> None:
    for start in range(first, end, CALL_BYTES):
        file.populate(start, min(start + CALL_BYTES, end))
