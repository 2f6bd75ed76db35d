"""Pages of the log ahead of the writer, where memory is dear.

A write into a file needs pages of memory. On most machines these cost next to nothing; a virtual
machine whose host backs memory only when it is touched takes ten times as long for a page it has
not used yet, and for the log that would be on the loop. So the kernel measures how long long writes
take, and where many are slow a lane brings pages in before they are written
(docs/decisions/0023).
"""

from __future__ import annotations

import os
from typing import Final

from ariane.kernel.log import Log
from ariane.store.background import Lane
from ariane.store.segments import Segments

# To judge by: a writer that was interrupted is slow now and then, and pages ahead where they are
# not dear cost a third more CPU time.
ENOUGH_BYTES: Final = 64 << 20
SLOW_PART: Final = 1 / 2
AHEAD_BYTES_MIN: Final = 32 << 20
STEP_BYTES: Final = 64 << 20  # brought in by one job
SEGMENTS_UNTIL_CHEAP: Final = 2  # written without a sign that pages are dear


class Pager:
    """Keeps as many pages ready as have been written since the start, up to so many bytes."""

    def __init__(self, log: Log, segments: Segments, lane: Lane, *, bytes_max: int) -> None:
        self._log = log
        self._segments = segments
        self._lane = lane
        self._bytes_max = bytes_max
        self._began = log.end
        self._brought_in = 0  # up to this log offset
        self._dear_until = 0  # the log ends here
        self._bytes = self._slow_bytes = 0
        self._is_busy = False

    def look(self) -> None:
        """Judge how quick writing was, and bring in the next pages if it was too slow."""
        byte_count, slow_bytes = self._log.take_long_writes()
        self._bytes, self._slow_bytes = self._bytes + byte_count, self._slow_bytes + slow_bytes
        if self._bytes >= ENOUGH_BYTES:
            if self._slow_bytes > self._bytes * SLOW_PART:
                self._dear_until = self._log.end + SEGMENTS_UNTIL_CHEAP * self._log.file_bytes
            self._bytes = self._slow_bytes = 0
        self._go_on()

    def _go_on(self) -> None:
        end = self._log.end
        if self._is_busy or end >= self._dear_until:
            return
        first = max(self._brought_in, end)
        position, file = self._log.end_position - self._log.file_bytes, self._segments.files[-1]
        if first >= self._log.end_position:
            if self._segments.next is None:
                return
            position, file = self._log.end_position, self._segments.next
        ahead = min(max(end - self._began, AHEAD_BYTES_MIN), self._bytes_max)
        stop = min(first + STEP_BYTES, end + ahead, position + self._log.file_bytes)
        if stop <= first:
            return
        try:
            descriptor = os.dup(file.descriptor())
        except OSError:  # too many are open; pages come as they are written, then
            return
        self._is_busy = True
        is_last = stop == end + ahead  # what is written meanwhile is for the next look
        self._lane.run(
            lambda: self._bring_in(descriptor, position, first, stop),
            lambda _: self._brought(stop, is_last=is_last),
        )

    def _bring_in(self, descriptor: int, position: int, first: int, stop: int) -> None:
        try:
            self._log.bring_in(descriptor, position, first, stop)
        finally:
            os.close(descriptor)

    def _brought(self, stop: int, *, is_last: bool) -> None:
        self._is_busy = False
        self._brought_in = stop
        if not is_last:
            self._go_on()
