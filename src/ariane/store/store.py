"""The store: one writer, appends by plain calls, watermarks for everything that takes time.

How far the log has come, what of it is shown and when an answer may leave is for `watermarks.py` to
say; here the marks are moved. Whoever looks at the log's files or syncs them before the end of a
round has what was placed stored first, in `_store`.

All methods are for the loop's thread. What blocks (sync, making and removing files) runs on lanes
and comes back as a call on the loop; without `post` it runs at once, so that a test sees every
step. A failed sync makes the store read-only for good: the pages it covered are
marked clean by the kernel, so trying again would report as safe what is not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeVar

from ariane.clock import Clock
from ariane.config import StoreConfig
from ariane.disk import Disk, Lock, MappedFile
from ariane.errors import DiskFull, StoreError, StoreReadOnly
from ariane.kernel.bad_pages import bad_pages
from ariane.kernel.index import Index
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags
from ariane.store import lookups
from ariane.store.appending import BLANK_BYTES
from ariane.store.background import EventLoop, Lane, Post, lane_of
from ariane.store.bulk import BulkRead
from ariane.store.filters import Filter
from ariane.store.flush import LaneSyncing, ThreadSyncing, may_try_again
from ariane.store.leases import Leases
from ariane.store.messages import (
    Boundary,
    Found,
    NewBatch,
    NewMessage,
    Placed,
    PlacedBatch,
    PlacedRows,
    QueryFound,
    StagedRows,
)
from ariane.store.opening import Files, assemble
from ariane.store.queues import ENTRY_BYTES
from ariane.store.retention import is_too_full
from ariane.store.slices import Slices
from ariane.store.timer_wheel import SLOT_COUNT
from ariane.store.topic_deletion import raised
from ariane.store.watermarks import Mark

logger: Final = logging.getLogger("ariane.store")

T = TypeVar("T")

GATHER: Final = "gather"  # the lane of bulk reads
LOCK_PATH: Final = "lock"
READ_BYTES_MAX: Final = 128 << 20
USAGE_INTERVAL_MS: Final = 1000
CHECKPOINT_BYTES: Final = 3 << 30  # of log; a start after a kill walks what no checkpoint covers
SETTLE_INTERVAL_MS: Final = 1000  # at most so late are queues for those who map the files


class Store:
    """Messages on disk. Made by `open`; `start` before the first append, `stop` at the end."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        *,
        files: Files,
        post: Post | None,
        loop: EventLoop | None,
        lock: Lock,
    ) -> None:
        self.config = config
        self.read_only_reason: str | None = None
        self.disk_full_reason: str | None = None
        self.disk_used_ratio = 0.0
        self.on_advance: list[Callable[[], None]] = []
        self._disk = disk
        self._clock = clock
        self._post = post
        self._loop = loop
        self._lock = lock
        self._files = files
        self._is_started = False
        self._settled = 0  # where the log ended when queues were last settled
        self._flush_is_posted = False
        self._sync_thread: ThreadSyncing | None = None
        self._due_s: dict[str, float] = {}
        self._bad_pages = bad_pages()
        self._lanes: dict[str, Lane] = {}
        self.log = files.log
        self._segments = files.segments
        self._queues = files.queues
        self._indexes = files.indexes
        self._slices = Slices(clock, post)
        self.read_limits = lookups.ReadLimits(
            memory_count_max=config.transfer_count_memory_max,
            memory_bytes_max=config.transfer_bytes_memory_max,
            disk_count_max=config.transfer_count_disk_max,
            disk_bytes_max=config.transfer_bytes_disk_max,
            memory_window=_memory_bytes() * config.memory_ratio_percent // 100,
            scan_count_max=config.filter_scan_bytes_max // ENTRY_BYTES,
        )

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        *,
        store_host: tuple[str, int],
        post: Post | None = None,
        loop: EventLoop | None = None,
        timer_slots: int = SLOT_COUNT,
    ) -> Store:
        """Lock, load and recover a store; nothing in it is touched before the lock is held."""
        try:
            disk.make_directory("")
            lock = disk.lock(LOCK_PATH)
        except OSError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error
        try:
            files = Files(config, disk, clock, store_host)
            store = cls(config, disk, clock, files=files, post=post, loop=loop, lock=lock)
            try:
                store._recover(timer_slots)
            except BaseException as error:
                for lane in store._lanes.values():
                    lane.close()
                files.close()
                if not isinstance(error, OSError):
                    raise
                files.mark_failed()
                raise StoreError(f"the store cannot be opened: {error}") from error
        except BaseException:
            lock.release()
            raise
        return store

    def start(self) -> None:
        """Mark the store as in use; from now on only `stop` ends it cleanly."""
        self._files.mark_in_use()  # before anything is made: what a kill leaves must be known
        if self.config.index_enabled:
            self._indexes.make_room(1)  # an append without an index would lose its keys
        self.log.write_by(self.writer_of(self._segments.files[-1]))
        if (
            self._loop is not None
            and self.marks.policy.flushes_at_once
            and self._disk.syncs_by_descriptor
        ):
            self._sync_thread = ThreadSyncing(self._loop, self._files.mark_failed)
            self._flusher.syncing = self._sync_thread
        self._segments.guard()
        self._is_started = True
        self._look_at_disk()
        if self._keeper.claimed < 0:
            self._checkpoint_now()
        self._indexes.has_checkpoints = True

    def stop(self) -> None:
        """Put everything on the platter and let go of the store, in a state Apache can start from.

        After a failure the mark of a store in use stays, so that the next start looks closely.
        """
        self._end_sync_thread()
        self._slices.finish()
        for lane in self._lanes.values():
            lane.close()
        self._slices.finish()
        if self._is_started and self.read_only_reason is None:
            try:
                self._end_cleanly()
            except (OSError, StoreError) as error:
                self.fail(f"the store could not be stopped cleanly: {error}")
        self._is_started = False
        self._making.end()
        self.timer.close()
        self._files.close()
        self._lock.release()

    def tick(self) -> None:
        """Do what is due; called every 100 ms or so."""
        if not self._is_started:
            return
        config = self.config
        if self._pool is not None and self._is_due(
            "copy", config.transient_pool_commit_interval_ms
        ):
            self._copy()
        if self._is_due("flush", config.flush_interval_ms):
            self._flusher.flush(self._stored_end())
        is_long_ago = self.log.end - self._keeper.claimed > CHECKPOINT_BYTES
        if self._is_due("checkpoint", config.checkpoint_interval_ms) or is_long_ago:
            self.checkpoint()
        if self._is_due("settle", SETTLE_INTERVAL_MS) and self.log.end != self._settled:
            self._settled = self.log.end
            self._slices.begin(self._queues.settle())
        self._making.tick()
        if self._is_due("usage", USAGE_INTERVAL_MS):
            self._look_at_disk()
            self._look_at_bad_pages()
        if self._is_due("clean", config.clean_interval_ms):
            self._keeper.clean(self.disk_used_ratio)
        self.timer.tick()
        self.prepare()

    @property
    def written(self) -> int:
        """The log offset behind the last record."""
        return self.log.end

    @property
    def visible(self) -> int:
        """The log offset up to which consumers may read."""
        return self.log.visible

    @property
    def flushed(self) -> int:
        """The log offset up to which the log is on the platter."""
        return self.marks.flushed

    @property
    def was_killed(self) -> bool:
        """Whether whoever had the store before did not stop it."""
        return self._files.was_killed

    @property
    def index(self) -> Index | None:
        """The index file that takes new keys now; another one when it is full."""
        return self._indexes.current if self.config.index_enabled else None

    @property
    def shows_at_once(self) -> bool:
        """Whether consumers may read a record as soon as it is written."""
        return self.marks.policy.shows_at_once

    @property
    def refusal(self) -> StoreError | None:
        """Why nothing can be appended at present, or None when it can."""
        if self.read_only_reason is not None:
            return StoreReadOnly(self.read_only_reason)
        if self.disk_full_reason is not None:
            return DiskFull(self.disk_full_reason)
        return None

    def append(self, message: NewMessage) -> Placed:
        """Place one message; or a StoreError (DiskFull, ...), and nothing was written."""
        self._check_may_append()
        try:
            placed = self._appender.append(message)
        except OSError as error:
            self._raise_if_unwritten()
            raise StoreError(f"no room could be made for the message: {error}") from error
        self.advance()
        self._raise_if_unwritten()
        return placed

    def append_batch(self, batch: NewBatch) -> PlacedBatch:
        """Place messages together in one segment, or none of them; raises as `append` does."""
        self._check_may_append()
        try:
            placed = self._appender.append_batch(batch)
        except OSError as error:
            self._raise_if_unwritten()
            raise StoreError(f"no room could be made for the batch: {error}") from error
        self.advance()
        self._raise_if_unwritten()
        return placed

    def append_rows(self, rows: StagedRows, note_of: Callable[[int], NewMessage]) -> PlacedRows:
        """Place some rows of a chunk right behind a note of how many; raises as `append` does.

        LookupError when the chunk is not in the log.
        """
        self._check_may_append()
        try:
            placed = self._appender.append_rows(rows, note_of)
        except OSError as error:
            self._raise_if_unwritten()
            raise StoreError(f"no room could be made for the rows: {error}") from error
        self.advance()
        self._raise_if_unwritten()
        return placed

    def make_room(self, queue: Queue, count: int) -> bool:
        """Whether a queue has, or now was given, room for so many more entries."""
        try:
            self._queues.make_room(queue, count)
        except (StoreError, OSError):  # whoever appends will try again, and tell its sender why not
            return False
        return True

    def advance(self) -> None:
        """Records have been placed, here or by the kernel's lane: let the watermarks follow."""
        if not self._store():
            return
        policy = self.marks.policy
        if policy.shows_at_once:
            self._show()
        if policy.flushes_at_once:
            self._flush_soon()

    def _store(self) -> bool:
        """Put what was placed into its file; False, and read-only from now on, if that fails."""
        if self.log.store() and not self.log.fault:
            self.marks.round_ended(self.log.stored)
            return True
        self.fail(f"the commit log cannot be written: {os.strerror(self.log.fault)}")
        return False

    def _show(self) -> None:
        """Let consumers see what the watermarks say; the lane may have done so within a round."""
        self.log.visible = max(self.log.visible, self.marks.shown)

    def _raise_if_unwritten(self) -> None:
        if self.log.fault:
            self.advance()
            raise StoreReadOnly(str(self.read_only_reason))

    def flush(self) -> None:
        """Sync the log up to its end, or begin to."""
        self._copy()
        self._flusher.flush(self._stored_end())

    def flush_now(self) -> None:
        """Sync the log up to its end, and return when that is done or has failed. Blocks."""
        for _ in range(2):  # one may be under way, and cover less
            self.flush()
            if self._sync_thread is not None:
                self._sync_thread.wait()
            for name in ("copy", "flush"):
                if name in self._lanes:
                    self._lanes[name].wait()

    def checkpoint(self) -> None:
        """Put queues, index and log on the platter and say so in the checkpoint, or begin to."""
        self._copy()
        if self._pool is not None:
            self._lanes["copy"].wait()
            if self.marks.stored != self.log.end:
                return  # copying was put off: queues have entries for what is in memory only
        self._keeper.checkpoint(self._stored_end())

    def prepare(self) -> None:
        """Have the next segment ready, and blocks for the index."""
        if self.read_only_reason is None:
            self._preparation.look()
            if self.config.index_enabled and self._indexes.files:
                self._preparation.look_at_index(self._indexes.files[-1])

    def clean(self, *, is_asked: bool = False) -> int:
        """Remove old segments that may go, at any hour when asked to; how many went."""
        self._look_at_disk()
        return self._keeper.clean(self.disk_used_ratio, is_asked=is_asked)

    def reconfigure(self, config: StoreConfig) -> None:
        """Work by other settings from now on; sizes and the way of flushing stay as opened."""
        self.config = self._keeper.config = config
        self.timer.reconfigure(config)

    def read(
        self,
        topic: str,
        queue_id: int,
        first: int,
        *,
        count_max: int,
        bytes_max: int = READ_BYTES_MAX,
        tag_codes: frozenset[int] | None = None,
        expression: Filter | None = None,
    ) -> Found:
        """Messages of a queue from a queue offset on, as stored, or what stands in the way.

        Either tags or an expression may narrow them down.
        """
        return lookups.find(
            self.log,
            self._queues.get(topic, queue_id),
            first,
            count_max=count_max,
            bytes_max=bytes_max,
            tag_codes=tag_codes,
            limits=self.read_limits,
            expression=expression,
        )

    def bulk_read(
        self,
        topic: str,
        queue_id: int,
        first: int,
        end: int,
        *,
        bytes_max: int,
        tag_codes: frozenset[int] | None = None,
    ) -> BulkRead | None:
        """A read of many megabytes, to be carried out `off_loop`; None when there is no message."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= first < self.log.visible_end(queue):
            return None
        if not self._put_into_file(queue):
            return None
        tags = None if tag_codes is None else Tags(tag_codes)
        return BulkRead(self.log, queue, first, end, bytes_max=bytes_max, tags=tags)

    def _put_into_file(self, queue: Queue) -> bool:
        """Let those who look at the queue's file find all of it there; False when there is none."""
        queue.settle()
        if queue.is_fresh:
            with suppress(StoreError, OSError):  # it will be tried again
                self._making.make_now(queue)
        return not queue.is_fresh

    def off_loop(self, job: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Do what may wait for the disk where it holds nobody up; `done` runs on the loop."""
        if GATHER not in self._lanes:
            self._lanes[GATHER] = lane_of(GATHER, self._post)
        self._lanes[GATHER].run(job, done)

    @property
    def leases(self) -> Leases:
        """Who reads the log's files from outside."""
        return self._keeper.leases

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The oldest queue offset that can be read; 0 for a queue never written."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next visible message will have."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        self._put_into_file(queue)
        return self.log.visible_end(queue)

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The queue offset that belongs to a moment."""
        return lookups.offset_at(
            self.log, self._queues.get(topic, queue_id), timestamp_ms, boundary
        )

    def store_ms_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When the message at a queue offset was stored; -1 when there is none."""
        return lookups.store_ms_at(self.log, self._queues.get(topic, queue_id), queue_offset)

    def earliest_store_ms(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 when there is none."""
        return self.store_ms_at(topic, queue_id, self.min_offset(topic, queue_id))

    @property
    def earliest_log_ms(self) -> int:
        """When the oldest message of all was stored; -1 when there is none."""
        return self.log.store_ms_of(self.log.first_position + self.log.head_bytes) or -1

    def record_at(self, log_offset: int) -> bytes | None:
        """The record that begins at a log offset, or None when none does."""
        return self.log.record(log_offset, self.log.visible)

    def query(
        self, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryFound:
        """Messages by key (or unique key) and store time, newest first."""
        return lookups.query(
            self.log,
            self._indexes,
            topic,
            key,
            count_max=min(count_max, self.config.query_count_max),
            begin_ms=begin_ms,
            end_ms=end_ms,
        )

    def queue(self, topic: str, queue_id: int) -> Queue:
        """The kernel's queue, made on demand; it has no files until its first message."""
        return self._queues.obtain(topic, queue_id)

    def topics(self) -> dict[str, list[int]]:
        """Queue numbers by topic, for every queue that has files."""
        return self._queues.topics()

    def has_queues(self, topic: str) -> bool:
        """Whether a topic has any queue that ever had a message."""
        return bool(self._queues.ends_of(topic))

    def delete_topic(self, topic: str, done: Callable[[Exception | None], None] = raised) -> None:
        """Remove a topic's queues; its records stay in the log until their segment goes.

        `done` is called when they are gone, or with why they are not. Nobody may append to them.
        """
        self._deletion.add(topic, done)

    def _stored_end(self) -> int:
        """How far a sync that begins now may claim to reach: what is in the file by then."""
        self._store()
        return self.marks.stored

    def _end_cleanly(self) -> None:
        self._segments.discard_next()
        self._making.make_all_now()
        self._queues.remove_unused()
        self._indexes.put_slots_back()
        self.flush()
        self.checkpoint()
        self._slices.finish()
        self.timer.end()
        if self._keeper.claimed != self.log.end:
            raise StoreError("not everything could be put on the platter")
        if self.read_only_reason is None:
            self._files.mark_stopped()

    def _recover(self, timer_slots: int) -> None:
        checkpoint = self._files.recover()
        parts = assemble(
            self._files,
            checkpoint,
            self,
            config=self.config,
            disk=self._disk,
            clock=self._clock,
            lanes=self._lanes,
            post=self._post,
            slices=self._slices,
            timer_slots=timer_slots,
        )
        self.marks = parts.marks
        self.timer = parts.timer
        self._flusher = parts.flusher
        self._keeper = parts.keeper
        self._making = parts.making
        self._preparation = parts.preparation
        self._deletion = parts.deletion
        self._appender = parts.appender
        self._pool = parts.pool
        self.timer.recover(was_killed=self.was_killed, sync_failed=self._files.has_failed_before())

    def may_append(self) -> bool:
        """Whether an append would not be refused."""
        return self._is_started and self.refusal is None

    def append_again(self, message: NewMessage) -> Placed:
        """Append what the log held before, even if it has grown larger than is allowed by now."""
        bytes_max = self.log.record_bytes_max
        self.log.record_bytes_max = self.config.segment_bytes - BLANK_BYTES
        try:
            return self.append(message)
        finally:
            self.log.record_bytes_max = bytes_max

    def _checkpoint_now(self) -> None:
        """Take a checkpoint of everything so far, and return once it is on the platter."""
        for _ in range(2):  # one may be under way, and say less
            self.checkpoint()
            self._slices.finish()
            if self._sync_thread is not None:
                self._sync_thread.wait()
            for lane in self._lanes.values():
                lane.wait()
        if self.read_only_reason is not None:
            raise StoreReadOnly(self.read_only_reason)

    def _end_sync_thread(self) -> None:
        if self._sync_thread is not None:
            self._sync_thread.close()
            self._sync_thread = None
            self._flusher.syncing = LaneSyncing(self._lanes["flush"], self._files.mark_failed)

    def _check_may_append(self) -> None:
        assert self._is_started
        if (refusal := self.refusal) is not None:
            raise refusal

    def writer_of(self, file: MappedFile) -> int:
        """What records are written to a segment by; -1 where they go through memory."""
        return file.open_descriptor() if self._pool is None else -1

    def rolled(self, file: MappedFile, descriptor: int) -> None:
        """Write to another segment from now on."""
        if self._pool is not None:
            self._pool.begin(file)
        self.log.write_by(descriptor)
        logger.info("segment rolled base_offset=%d", self.log.end)

    def _copy(self) -> None:
        pool = self._pool
        if pool is None or self.read_only_reason:
            return
        self._store()  # also a segment's end, where the append that needed the next one was refused
        end = self.marks.placed
        if self.marks.stored == end:
            return
        self._lanes["copy"].run(lambda: pool.copy(end), self._copied)

    def _copied(self, future: Future[int]) -> None:
        assert self._pool is not None
        error = future.exception()
        if may_try_again(error):
            logger.warning("copying messages to the commit log put off reason=%s", error)
            return
        if error:
            self.fail(f"copying messages to the commit log failed: {error}")
            return
        self._pool.copied_to(future.result())
        self.marks.move(Mark.STORED, future.result())
        self._show()
        self._notify()

    def flushed_on(self) -> None:
        """The log is on the platter further than before: whoever waited for it goes on."""
        self._show()
        if self.marks.policy.flushes_at_once:
            # For who came meanwhile; answering can wait for it.
            self._flusher.flush(self._stored_end())
        self._keeper.flushed()
        self.timer.flushed()
        self._notify()

    def _flush_soon(self) -> None:
        """Begin a sync once the loop has handed over all that has arrived: they share it."""
        if self._post is None:
            self._flusher.flush(self._stored_end())
        elif not self._flush_is_posted:
            self._flush_is_posted = True
            later = self._post if self._loop is None else self._loop.call_soon
            later(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_is_posted = False
        self._flusher.flush(self._stored_end())

    def fail(self, reason: str) -> None:
        """Never write again: what is on the platter is no longer known."""
        self._flusher.has_failed = True
        if self.read_only_reason is None:
            self.read_only_reason = (
                f"{reason}; the store is read-only until the disk is repaired and the broker"
                " restarted"
            )
            logger.error("store turned read-only reason=%s", reason)
        self._notify()
        self._deletion.failed()

    def _notify(self) -> None:
        for callback in self.on_advance:
            callback()

    def _look_at_disk(self) -> None:
        try:
            self.disk_used_ratio, _ = self._disk.usage()
        except OSError as error:  # what was known last stays true for a while
            logger.warning("the disk cannot be asked how full it is reason=%s", error)
            return
        was_full = self.disk_full_reason is not None
        if is_too_full(self.config, self.disk_used_ratio):
            self.disk_full_reason = (
                f"the disk is {self.disk_used_ratio:.0%} full and writing stops at"
                f" {self.config.disk_stop_ratio:.0%} (diskSpaceWarningLevelRatio); free some space"
            )
        else:
            self.disk_full_reason = None
        if was_full != (self.disk_full_reason is not None):
            logger.warning("disk %s", self.disk_full_reason or "has room again; writing goes on")

    def _look_at_bad_pages(self) -> None:
        if (count := bad_pages()) != self._bad_pages:
            self._bad_pages = count
            logger.error(
                "pages of the commit log cannot be read from the disk count=%d; messages there are"
                " passed over, look at the disk and run `ariane store check`",
                count,
            )

    def _is_due(self, name: str, interval_ms: int) -> bool:
        now_s = self._clock.monotonic_s()
        due_s = self._due_s.setdefault(name, now_s + interval_ms / 1000)
        if now_s < due_s:
            return False
        self._due_s[name] = now_s + interval_ms / 1000
        return True


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
