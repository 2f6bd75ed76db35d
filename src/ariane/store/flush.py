"""Moving `flushed`: the log is synced up to where it ended when the sync began.

At most one sync is under way. What is appended meanwhile waits for the next one, so with many
writers each sync covers all who came during the one before: group commit without a line for it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from ariane.disk import MappedFile
from ariane.errors import DiskFull
from ariane.store.background import EventLoop, Lane
from ariane.store.segments import Segments
from ariane.store.syncing import SyncThread
from ariane.store.watermarks import Mark, Watermarks

logger: Final = logging.getLogger("ariane.store")

Ranges = list[tuple[MappedFile, int, int]]  # file, first, end


def may_try_again(error: BaseException | None) -> bool:
    """Whether nothing was synced in vain: no descriptor to do it by, or no room to write before.

    After any other failure pages may be marked clean that are on no platter.
    """
    return isinstance(error, DiskFull) or (
        isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}
    )


class Syncing(Protocol):
    """A way to sync without blocking the loop; one request at a time."""

    def begin(self, ranges: Ranges, done: Callable[[Exception | None], None]) -> None:
        """Sync the ranges in order; `done` is called on the loop, with what went wrong first."""
        ...


class LaneSyncing:
    """Syncs on a lane. A failure is marked there, since nothing may come between."""

    def __init__(self, lane: Lane, mark_failed: Callable[[], None]) -> None:
        self._lane = lane
        self._mark_failed = mark_failed

    def begin(self, ranges: Ranges, done: Callable[[Exception | None], None]) -> None:
        """Sync the ranges in order."""
        self._lane.run(lambda: self._sync(ranges), lambda future: done(_fault_of(future)))

    def _sync(self, ranges: Ranges) -> None:
        try:
            for file, first, end in ranges:
                file.sync(first, end)
        except OSError as error:
            if not may_try_again(error):
                self._mark_failed()
            raise


class ThreadSyncing:
    """Syncs on the kernel's thread, which needs no interpreter; for files with descriptors.

    The loop is told by a descriptor it watches, so a sync costs it one wake and no lock.
    """

    def __init__(self, loop: EventLoop, mark_failed: Callable[[], None]) -> None:
        self._loop = loop
        self._mark_failed = mark_failed
        self._thread = SyncThread()
        self._ranges: deque[tuple[MappedFile, int, int]] = deque()
        self._done: Callable[[Exception | None], None] = _nothing
        self._open: tuple[MappedFile, int] | None = None  # what was synced last, and its descriptor
        loop.add_reader(self._thread.ended, self._ended)

    def begin(self, ranges: Ranges, done: Callable[[Exception | None], None]) -> None:
        """Sync the ranges in order."""
        self._ranges.extend(ranges)
        self._done = done
        self._go_on()

    def wait(self) -> None:
        """Return once nothing is under way."""
        while self._thread.is_busy:
            self._ended()

    def close(self) -> None:
        """Wait, and end the thread."""
        self.wait()
        self._loop.remove_reader(self._thread.ended)
        self._thread.close()
        self._forget()

    def _go_on(self) -> None:
        if not self._ranges:
            self._done(None)
            return
        try:
            self._thread.begin(self._descriptor_of(self._ranges[0][0]))
        except OSError as error:
            self._fail(error)

    def _ended(self) -> None:
        if not self._thread.is_busy:
            return  # `wait` was here before the loop
        if fault := self._thread.take():
            self._fail(OSError(fault, os.strerror(fault), self._ranges[0][0].path))
            return
        file, _, end = self._ranges.popleft()
        if end == file.size:
            self._forget()  # a full segment is not synced again
        self._go_on()

    def _descriptor_of(self, file: MappedFile) -> int:
        """Kept from sync to sync: a segment is synced a thousand times a second."""
        if self._open is None or self._open[0] is not file:
            self._forget()
            self._open = file, file.open_descriptor()
        return self._open[1]

    def _forget(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _fail(self, error: OSError) -> None:
        if not may_try_again(error):
            self._mark_failed()
        self._ranges.clear()
        self._done(error)


def _fault_of(future: Future[None]) -> Exception | None:
    error = future.exception()
    assert error is None or isinstance(error, Exception)
    return error


def _nothing(_: Exception | None) -> None:
    """Nobody asked."""


class Flusher:
    """Syncs the log; after a failure never again, since no later sync could be believed."""

    def __init__(
        self,
        segments: Segments,
        syncing: Syncing,
        marks: Watermarks,
        *,
        on_flushed: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.has_failed = False
        self.syncing = syncing
        self._segments = segments
        self._marks = marks
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._is_busy = False

    @property
    def flushed(self) -> int:
        """How far the log is on the platter."""
        return self._marks.flushed

    def flush(self, end: int) -> None:
        """Begin to sync the log up to `end`, unless a sync is under way."""
        assert end <= self._marks.stored, "a sync would claim what is not in the file"
        if self._is_busy or self.has_failed or end <= self.flushed:
            return
        self._is_busy = True
        ranges = self._segments.ranges(self.flushed, end)
        self.syncing.begin(ranges, lambda error: self._done(end, error))

    def _done(self, end: int, error: Exception | None) -> None:
        self._is_busy = False
        if may_try_again(error):
            logger.warning("sync of the commit log put off reason=%s", error)
        elif error is not None:
            self.has_failed = True
            self._on_failed(f"syncing the commit log failed: {error}")
        elif not self.has_failed:
            self._marks.move(Mark.FLUSHED, end)
            self._on_flushed()
