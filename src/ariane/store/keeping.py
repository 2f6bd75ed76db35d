"""Looking after the files: checkpoints, and removing what is old or in the way.

A checkpoint is a snapshot taken on the loop (where log, queues and index end), then a sync of all
three, then the checkpoint file itself: what it says is never ahead of what is on the platter.

Where there are many queues, what of theirs must be synced is listed in slices, while they grow. The
claim speaks of the moment the checkpoint began: how far the log went, and how many entries there
were. Every queue that had changed by then is listed later than that, so the sync covers at least
what is claimed; a queue without a file is waited for. Nothing is claimed that came in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, NamedTuple

from ariane.clock import Clock
from ariane.config import StoreConfig
from ariane.disk import Disk, MappedFile
from ariane.kernel.log import Log
from ariane.store.background import Lane
from ariane.store.checkpoint import Checkpoint, CheckpointFile, Claim
from ariane.store.flush import Flusher, may_try_again
from ariane.store.indexes import Indexes, IndexFile
from ariane.store.leases import Leases
from ariane.store.making import Making
from ariane.store.queues import QueueFiles, Queues
from ariane.store.retention import Situation, is_clean_forced, removable_count
from ariane.store.segments import DIRECTORY, Segments
from ariane.store.slices import Slices

logger: Final = logging.getLogger("ariane.store")


class _Snapshot(NamedTuple):
    checkpoint: Checkpoint
    log_offset: int
    ranges: list[tuple[MappedFile, int, int]]
    directories: set[str]
    queue_ends: list[tuple[QueueFiles, int]]
    full_indexes: list[IndexFile]  # whose slots are to be written first


_Owed = tuple[list[tuple[MappedFile, int, int]], set[str], list[tuple[QueueFiles, int]]]


class Keeper:
    """Takes checkpoints and carries out retention."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        lane: Lane,
        *,
        log: Log,
        segments: Segments,
        queues: Queues,
        making: Making,
        slices: Slices,
        indexes: Indexes,
        flusher: Flusher,
        file: CheckpointFile,
        checkpoint: Checkpoint,
        on_failed: Callable[[str], None],
        mark_failed: Callable[[], None],
    ) -> None:
        self.config = config
        self.leases = Leases()
        self._disk = disk
        self._clock = clock
        self._lane = lane
        self._log = log
        self._segments = segments
        self._queues = queues
        self._making = making
        self._slices = slices
        self._indexes = indexes
        self._flusher = flusher
        self._file = file
        self._on_failed = on_failed
        self._mark_failed = mark_failed
        self._saved = checkpoint
        self._waiting: _Snapshot | None = None  # for the log to be flushed
        self._is_listing = False
        self._is_saving = False
        self.obstacle: str | None = None  # why the last checkpoint was given up
        # What one that was put off has listed: nobody lists it again.
        self._owed: _Owed = ([], set(), [])
        self.on_idle: Callable[[], None] = lambda: None
        # What is to be removed; for the lane only. What could not be is tried again with the next,
        # and before it: a start refuses a log with holes.
        self._doomed_segments: list[str] = []
        self._doomed: list[str] = []

    @property
    def claimed(self) -> int:
        """The log offset the newest checkpoint covers; -1 when there is none."""
        return self._saved.claim.log_offset if self._saved.claim else -1

    def checkpoint(self, end: int) -> None:
        """Begin a checkpoint that covers the log up to `end`, unless there is nothing new."""
        if self.is_busy or self._flusher.has_failed:
            return
        has_unsynced = self._queues.has_unsynced or self._indexes.has_unsynced or any(self._owed)
        if end == self.claimed and not has_unsynced:
            return
        snapshot = self._snapshot(end)
        self._is_listing = True
        self._making.after(lambda obstacle: self._list(snapshot, obstacle))

    def _list(self, snapshot: _Snapshot, obstacle: str | None) -> None:
        self.obstacle = obstacle
        if obstacle is None:
            self._slices.begin(self._listed(snapshot))
        else:
            self._is_listing = False
            self.on_idle()

    def _listed(self, snapshot: _Snapshot) -> Iterator[None]:
        yield from self._queues.unsynced(snapshot.ranges, snapshot.queue_ends)
        ranges, directories = self._indexes.unsynced()
        snapshot.ranges.extend(ranges)
        snapshot.directories.update(directories, self._queues.take_renamed())
        snapshot.full_indexes.extend(self._indexes.without_slots())
        self._is_listing = False
        self._waiting = snapshot
        self._flusher.flush(snapshot.log_offset)
        self.flushed()

    def flushed(self) -> None:
        """The log has been flushed further: a checkpoint may have waited for it."""
        snapshot = self._waiting
        if snapshot is None:
            return
        if self._flusher.flushed < snapshot.log_offset:
            self._flusher.flush(snapshot.log_offset)
            return
        self._waiting, self._is_saving = None, True
        self._lane.run(
            lambda: self._save(snapshot), lambda future: self._saved_it(snapshot, future)
        )

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is under way; `on_idle` is called when it has ended."""
        return self._is_listing or self._waiting is not None or self._is_saving

    def before_deleting_queues(
        self, topic: str, note: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        """Let the checkpoint claim no entry of a topic whose queues are about to go, then `note`.

        The checkpoint covers all there is of the topic. Off the loop; no other checkpoint is taken
        before `done`.
        """
        assert not self.is_busy
        checkpoint = self._saved
        if checkpoint.claim is not None:
            name = topic.encode()
            count, entries = self._queues.counts_without(lambda queue: queue.topic != name)
            claim = replace(
                checkpoint.claim,
                queue_count=checkpoint.claim.queue_count - count,
                queue_entries=checkpoint.claim.queue_entries - entries,
            )
            checkpoint = replace(checkpoint, claim=claim)

        def save() -> None:
            if checkpoint.claim is not None:
                self._file.save(checkpoint)
            note()

        def saved(future: Future[None]) -> None:
            self._is_saving = False
            error = future.exception()
            if error is None:
                self._saved = checkpoint
            done(error if isinstance(error, Exception) else None)

        self._is_saving = True
        self._lane.run(save, saved)

    def clean(self, used_ratio: float, *, is_asked: bool = False) -> int:
        """Remove the segments that may go, and what pointed into them; how many there were."""
        covered = min(self._flusher.flushed, self.claimed)
        leased = self.leases.floor(self._clock.monotonic_s())
        if leased is not None and not is_clean_forced(self.config, used_ratio):
            covered = min(covered, leased)
        size = self._log.file_bytes
        first = self._log.first_position
        files = [
            file
            for i, file in enumerate(self._segments.files[:-1][: self.config.delete_batch_max])
            if first + (i + 1) * size <= covered
        ]
        try:
            ages = [self._disk.modified_s(file.path) for file in files]
        except OSError as error:
            logger.warning("old segments left for now reason=%s", error)
            return 0
        count = removable_count(
            self.config,
            Situation(self._clock.wall_ms() / 1000, used_ratio, ages, is_asked),
        )
        if count:
            segments = [self._segments.drop_first() for _ in range(count)]
            logger.info("old segments removed count=%d first=%d", count, self._log.first_position)
            removable = self._indexes.trim(self._log.first_position)
            self._slices.begin(self._trimmed(removable, segments))
        return count

    def trim(self) -> None:
        """Remove what a clean-up that was cut short has left."""
        self._slices.begin(self._trimmed(self._indexes.trim(self._log.first_position), ()))

    def _trimmed(self, removable: list[str], segments: Sequence[str]) -> Iterator[None]:
        yield from self._queues.trim(removable)
        self.remove(removable, segments)

    def remove(self, paths: list[str], segments: Sequence[str] = ()) -> None:
        """Remove segments, then files that point into them, off the loop."""
        self._lane.run(lambda: self._remove(segments, paths), _log_failure)

    def _snapshot(self, end: int) -> _Snapshot:
        files = self._indexes.files
        newest = files[-1] if files else None
        log_ms = self._log.last_store_ms
        queue_count, queue_entries = self._queues.counts()
        checkpoint = replace(
            self._saved,
            log_ms=log_ms,
            # Apache's broker drops the unfinished index file after a kill and reads its keys from
            # the log again, from this time on: so it must not be later than that file's first key.
            queues_ms=min(log_ms, newest.index.begin_ms)
            if newest and not newest.is_empty
            else log_ms,
            index_ms=files[-2].index.end_ms if len(files) > 1 else self._saved.index_ms,
            claim=Claim(
                log_offset=end,
                queue_count=queue_count,
                queue_entries=queue_entries,
                index_name=newest.name if newest else 0,
                index_next=newest.index.next if newest else 0,
            ),
        )
        return _Snapshot(
            checkpoint,
            end,
            list(self._owed[0]),
            set(self._owed[1]),
            list(self._owed[2]),
            [],
        )

    def _save(self, snapshot: _Snapshot) -> None:
        try:
            for file in snapshot.full_indexes:
                file.write_slots()
            self._disk.sync_many(snapshot.ranges, snapshot.directories)
            self._file.save(snapshot.checkpoint)
        except OSError as error:
            if may_try_again(error):
                raise
            self._mark_failed()  # where many files are synced at once, the log is among them
            raise

    def _saved_it(self, snapshot: _Snapshot, future: Future[None]) -> None:
        self._is_saving = False
        error = future.exception()
        self._owed = ([], set(), [])
        if may_try_again(error):
            logger.warning("checkpoint put off reason=%s", error)
            self._owed = (snapshot.ranges, snapshot.directories, snapshot.queue_ends)
            self.on_idle()
            return
        if error:
            self._on_failed(f"taking a checkpoint failed: {error}")
            self.on_idle()
            return
        for file in snapshot.full_indexes:
            file.index.leave_table()
        self._queues.synced(snapshot.queue_ends)
        self._saved = snapshot.checkpoint
        self.on_idle()

    def _remove(self, segments: Sequence[str], others: Sequence[str]) -> None:
        self._doomed_segments += segments
        self._doomed += others
        self._remove_first(self._doomed_segments)
        # A segment that comes back must find its queues and its index still there.
        self._disk.sync_directory(DIRECTORY)
        self._remove_first(self._doomed)

    def _remove_first(self, paths: list[str]) -> None:
        while paths:
            self._disk.remove(paths[0])
            del paths[0]


def _log_failure(future: Future[None]) -> None:
    if error := future.exception():
        logger.warning("old files not removed, will be with the next ones reason=%s", error)
