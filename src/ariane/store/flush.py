"""Moving `flushed`: the log is synced up to where it ended when the sync began.

At most one sync is under way. What is appended meanwhile waits for the next one, so with many
writers each sync covers all who came during the one before: group commit without a line for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from ariane.disk import MappedFile
from ariane.store.background import Lane
from ariane.store.segments import Segments


class Flusher:
    """Syncs the log; after a failure never again, since no later sync could be believed."""

    def __init__(
        self,
        segments: Segments,
        lane: Lane,
        *,
        flushed: int,
        on_flushed: Callable[[], None],
        on_failed: Callable[[str], None],
        mark_failed: Callable[[], None],
    ) -> None:
        self.flushed = flushed
        self.has_failed = False
        self._segments = segments
        self._lane = lane
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._mark_failed = mark_failed  # where the failure happens: nothing may come between
        self._is_busy = False

    def flush(self, end: int) -> None:
        """Begin to sync the log up to `end`, unless a sync is under way."""
        if self._is_busy or self.has_failed or end <= self.flushed:
            return
        self._is_busy = True
        ranges = self._segments.ranges(self.flushed, end)
        self._lane.run(lambda: self._sync(ranges), lambda future: self._done(end, future))

    def _sync(self, ranges: list[tuple[MappedFile, int, int]]) -> None:
        try:
            for file, first, end in ranges:
                file.sync(first, end)
        except OSError:
            self._mark_failed()
            raise

    def _done(self, end: int, future: Future[None]) -> None:
        self._is_busy = False
        error = future.exception()
        if error is not None:
            self.has_failed = True
            self._on_failed(f"syncing the commit log failed: {error}")
        elif not self.has_failed:
            self.flushed = end
            self._on_flushed()
