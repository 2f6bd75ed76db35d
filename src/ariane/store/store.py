"""The store: one writer, appends by plain calls, watermarks for everything that takes time.

`written` moves with each append, `visible` is how far consumers may read, `flushed` how far the log
is on the platter. All methods are for the loop's thread. What blocks (sync, making and removing
files) runs on lanes and comes back as a call on the loop; without `post` it runs at once, so that a
test sees every step. A failed sync makes the store read-only for good: the pages it covered are
marked clean by the kernel, so trying again would report as safe what is not.

Invariant: visible <= written, and with SYNC_FLUSH visible <= flushed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from ariane.clock import Clock
from ariane.config import StoreConfig
from ariane.disk import Disk, Lock, MappedFile
from ariane.errors import DiskFull, StoreError, StoreReadOnly, UnsupportedStore
from ariane.kernel.bad_pages import bad_pages
from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags
from ariane.store import lookups
from ariane.store.appending import Appender
from ariane.store.background import EventLoop, InlineLane, Lane, Post, ThreadLane
from ariane.store.bulk import BulkRead
from ariane.store.checkpoint import ABORT_PATH, Checkpoint, CheckpointFile, Claim
from ariane.store.delays import delays_ms_of
from ariane.store.deletions import Deletions
from ariane.store.filters import Filter
from ariane.store.flush import Flusher, LaneSyncing, ThreadSyncing
from ariane.store.hosts import host_bytes_of
from ariane.store.indexes import Indexes
from ariane.store.keeping import Keeper
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
from ariane.store.preparation import Preparation
from ariane.store.queues import ENTRY_BYTES, Queues
from ariane.store.recovery import Recovery
from ariane.store.retention import is_too_full
from ariane.store.segments import Segments
from ariane.store.timer_store import LogDoor, TimerStore
from ariane.store.timer_wheel import SLOT_COUNT, Outlet
from ariane.store.topic_deletion import TopicDeletion, raised
from ariane.store.transient_pool import TransientPool

logger: Final = logging.getLogger("ariane.store")

T = TypeVar("T")

GATHER: Final = "gather"  # the lane of bulk reads
LOCK_PATH: Final = "lock"
FAILED_MARK: Final = b"sync failed"
RECORD_SPARE_BYTES: Final = 64 * 1024  # what a record may have beside its body
BLANK_BYTES: Final = 8
READ_BYTES_MAX: Final = 128 << 20
USAGE_INTERVAL_MS: Final = 1000
CHECKPOINT_BYTES: Final = 3 << 30  # of log; a start after a kill walks what no checkpoint covers
SETTLE_INTERVAL_MS: Final = 1000  # at most so late are queues for those who map the files
QUEUE_COUNT_NEVER_REACHED: Final = 1 << 62


class Store:
    """Messages on disk. Made by `open`; `start` before the first append, `stop` at the end."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        *,
        store_host: tuple[str, int],
        post: Post | None,
        loop: EventLoop | None,
        lock: Lock,
        timer_slots: int = SLOT_COUNT,
    ) -> None:
        self.config = config
        self.was_killed = False  # whoever had the store before did not stop it
        self.read_only_reason: str | None = None
        self.disk_full_reason: str | None = None
        self.disk_used_ratio = 0.0
        self.on_advance: list[Callable[[], None]] = []
        self._disk = disk
        self._clock = clock
        self._post = post
        self._loop = loop
        self._lock = lock
        self._timer_slots = timer_slots
        self._host_bytes = host_bytes_of(store_host)
        self._is_sync = config.is_sync_flush
        self._is_started = False
        self._settled = 0  # where the log ended when queues were last settled
        self._flush_is_posted = False
        self._sync_thread: ThreadSyncing | None = None
        self._due_s: dict[str, float] = {}
        self._bad_pages = bad_pages()
        self._lanes: dict[str, Lane] = {}
        self.log = Log(
            config.segment_bytes,
            self._host_bytes,
            delays_ms=delays_ms_of(config.delay_levels),
            record_bytes_max=min(
                config.message_bytes_max + RECORD_SPARE_BYTES, config.segment_bytes - BLANK_BYTES
            ),
        )
        self._segments = Segments(disk, self.log)
        self._queues = Queues(disk, self.log, config.queue_file_bytes)
        self._indexes = Indexes(
            disk, clock, slot_count=config.index_slot_count, entry_count=config.index_entry_count
        )
        self._checkpoint_file = CheckpointFile(disk)
        self._deletions = Deletions(disk)
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
        disk.make_directory("")
        lock = disk.lock(LOCK_PATH)
        try:
            store = cls(
                config,
                disk,
                clock,
                store_host=store_host,
                post=post,
                loop=loop,
                lock=lock,
                timer_slots=timer_slots,
            )
            try:
                store._assemble(store._recover())
                store.timer.recover(
                    was_killed=store.was_killed, sync_failed=store._has_failed_before()
                )
            except BaseException as error:
                for lane in store._lanes.values():
                    lane.close()
                if not isinstance(error, OSError):
                    raise
                store._mark_failed()
                raise StoreError(f"the store cannot be opened: {error}") from error
        except BaseException:
            lock.release()
            raise
        return store

    def start(self) -> None:
        """Mark the store as in use; from now on only `stop` ends it cleanly."""
        self._mark_in_use()  # before anything is made: what a kill leaves unsynced must be known
        if self.config.index_enabled:
            self._indexes.make_room(1)  # an append without an index would lose its keys
        self.log.write_by(self._open_descriptor(self._segments.files[-1]))
        if self._loop is not None and self._is_sync and self._disk.syncs_by_descriptor:
            self._flusher.syncing = self._sync_thread = ThreadSyncing(self._loop, self._mark_failed)
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
        for lane in self._lanes.values():
            lane.close()
        if self._is_started and self.read_only_reason is None:
            try:
                self._end_cleanly()
            except (OSError, StoreError) as error:
                self._fail(f"the store could not be stopped cleanly: {error}")
        self._is_started = False
        self.timer.close()
        with suppress(OSError):  # nobody was told of what cannot be written
            self.log.write_by(-1)
        self._segments.close()
        self._queues.close()
        self._indexes.close()
        self._checkpoint_file.close()
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
            self._flusher.flush(self._flushable())
        is_long_ago = self.log.end - self._keeper.claimed > CHECKPOINT_BYTES
        if self._is_due("checkpoint", config.checkpoint_interval_ms) or is_long_ago:
            self.checkpoint()
        if self._is_due("settle", SETTLE_INTERVAL_MS) and self.log.end != self._settled:
            self._settled = self.log.end
            self._queues.settle()
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
        return self._flusher.flushed

    @property
    def index(self) -> Index | None:
        """The index file that takes new keys now; another one when it is full."""
        return self._indexes.current if self.config.index_enabled else None

    @property
    def shows_at_once(self) -> bool:
        """Whether consumers may read a record as soon as it is written."""
        return not self._is_sync and self._pool is None

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
        except (DiskFull, OSError):  # whoever appends will try again, and tell its sender why not
            return False
        return True

    def advance(self) -> None:
        """Records have been placed, here or by the kernel's lane: let the watermarks follow."""
        if not self._store_records():
            return
        if self._is_sync:
            self._flush_soon()
        elif self.shows_at_once:
            self.log.visible = self.log.stored

    def _store_records(self) -> bool:
        """Put what was placed into its file; False, and read-only from now on, if that fails."""
        if self.log.store() and not self.log.fault:
            return True
        self._fail(f"the commit log cannot be written: {os.strerror(self.log.fault)}")
        return False

    def _raise_if_unwritten(self) -> None:
        if self.log.fault:
            self.advance()
            raise StoreReadOnly(str(self.read_only_reason))

    def flush(self) -> None:
        """Sync the log up to its end, or begin to."""
        self._copy()
        self._flusher.flush(self._flushable())

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
        self._keeper.checkpoint(self._flushable())

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
        tags = None if tag_codes is None else Tags(tag_codes)
        return BulkRead(self.log, queue, first, end, bytes_max=bytes_max, tags=tags)

    def off_loop(self, job: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Do what may wait for the disk where it holds nobody up; `done` runs on the loop."""
        if GATHER not in self._lanes:
            self._lanes[GATHER] = (
                InlineLane() if self._post is None else ThreadLane(GATHER, self._post)
            )
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
        return 0 if queue is None else self.log.visible_end(queue)

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

    def delete_topic(self, topic: str, done: Callable[[Exception | None], None] = raised) -> None:
        """Remove a topic's queues; its records stay in the log until their segment goes.

        `done` is called when they are gone, or with why they are not. Nobody may append to them.
        """
        self._deletion.add(topic, done)

    def _flushable(self) -> int:
        """How far a sync that begins now may claim to reach: what is in the file, and no further.

        Within a round the lane may have records on its desk; whoever syncs before the round ends
        has them written first.
        """
        if self._pool is not None:
            return self._pool.copied
        if not self._store_records():
            return self.flushed
        return self.log.stored

    def _end_cleanly(self) -> None:
        self._segments.discard_next()
        self._queues.remove_unused()
        self._indexes.put_slots_back()
        self.flush()
        self.checkpoint()
        self.timer.end()
        if self.read_only_reason is None:
            self._disk.remove(ABORT_PATH)
            self._disk.sync_directory("")

    def _recover(self) -> Checkpoint:
        _refuse_other_layouts(self._disk)
        self.was_killed = self._disk.exists(ABORT_PATH)
        self._segments.load()
        self._queues.load()
        self._indexes.load()
        self._deletions.load()
        checkpoint = self._checkpoint_file.load()
        claim = Recovery(
            log=self.log,
            segments=self._segments,
            queues=self._queues,
            indexes=self._indexes,
            deletions=self._deletions,
            checkpoint=checkpoint,
            was_killed=self.was_killed,
            sync_failed=self._has_failed_before(),
            check_crc=self.config.check_crc_on_recover,
            index_enabled=self.config.index_enabled,
            distrust=self._distrust,
        ).run()
        return replace(checkpoint, claim=claim)

    def _mark_in_use(self) -> None:
        self._disk.write(ABORT_PATH, str(os.getpid()).encode())
        self._disk.sync_directory("")

    def _mark_failed(self) -> None:
        """Let the next start know of a failed sync; any thread may call this.

        It need not be synced: once the page cache is gone there is nothing left to be wrong about.
        """
        with suppress(OSError, StoreError):
            self._disk.write(ABORT_PATH, FAILED_MARK)

    def _has_failed_before(self) -> bool:
        return self._disk.exists(ABORT_PATH) and self._disk.read(ABORT_PATH) == FAILED_MARK

    def _distrust(self, claim: Claim | None) -> None:
        """Let every start find fewer queues than claimed, until one has rebuilt them all."""
        if not self._has_failed_before():
            self._mark_in_use()
        if claim is not None:
            claim = replace(claim, queue_count=QUEUE_COUNT_NEVER_REACHED)
        self._checkpoint_file.save(Checkpoint(claim=claim))

    def _assemble(self, checkpoint: Checkpoint) -> None:
        """Put together what works on the recovered files."""
        is_pooled = self.config.transient_pool_enabled and not self._is_sync
        self._lanes = {
            name: InlineLane() if self._post is None else ThreadLane(name, self._post)
            for name in ("flush", "prepare", "keep", *(("copy",) if is_pooled else ()))
        }
        self._flusher = Flusher(
            self._segments,
            LaneSyncing(self._lanes["flush"], self._mark_failed),
            flushed=self.log.end,
            on_flushed=self._flushed,
            on_failed=self._fail,
        )
        self._keeper = Keeper(
            self.config,
            self._disk,
            self._clock,
            self._lanes["keep"],
            log=self.log,
            segments=self._segments,
            queues=self._queues,
            indexes=self._indexes,
            flusher=self._flusher,
            file=self._checkpoint_file,
            checkpoint=checkpoint,
            on_failed=self._fail,
            mark_failed=self._mark_failed,
        )
        self._preparation = Preparation(
            self.log, self._segments, self._queues, self._clock, self._lanes["prepare"]
        )
        self._queues.on_long = self._preparation.bring_in
        self._deletion = TopicDeletion(
            log=self.log,
            queues=self._queues,
            deletions=self._deletions,
            keeper=self._keeper,
            preparing=self._lanes["prepare"],
            checkpoint=self.checkpoint,
            fail=self._fail,
            refusal=lambda: self.read_only_reason,
        )
        self._appender = Appender(
            self._clock,
            host_bytes=self._host_bytes,
            log=self.log,
            segments=self._segments,
            queues=self._queues,
            indexes=self._indexes if self.config.index_enabled else None,
            next_segment=self._preparation.next_segment,
            open_descriptor=self._open_descriptor,
            on_rolled=self._rolled,
        )
        self.timer = self._make_timer()
        self._pool = TransientPool(self.log) if is_pooled else None
        if self._pool is not None:
            self._pool.begin(self._segments.files[-1])
        self._keeper.remove(self._queues.trim() + self._indexes.trim(self.log.first_position))

    def _make_timer(self) -> TimerStore:
        return TimerStore(
            self.config,
            self._disk,
            self._clock,
            self._lanes["keep"],
            log=self.log,
            queues=self._queues,
            outlet=Outlet(
                index=lambda: self.index,
                queue_of=self._queues.obtain,
                append=self.append_again,
                advance=self.advance,
            ),
            door=LogDoor(
                flush=self.flush,
                flushed=lambda: self.flushed,
                fail=self._fail,
                mark_failed=self._mark_failed,
                may_append=lambda: self._is_started and self.refusal is None,
            ),
            slot_count=self._timer_slots,
        )

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
            self._flusher.syncing = LaneSyncing(self._lanes["flush"], self._mark_failed)

    def _check_may_append(self) -> None:
        assert self._is_started
        if (refusal := self.refusal) is not None:
            raise refusal

    def _open_descriptor(self, file: MappedFile) -> int:
        """What records are written to a segment by; -1 where they go through memory."""
        return file.open_descriptor() if self._pool is None else -1

    def _rolled(self, file: MappedFile, descriptor: int) -> None:
        if self._pool is not None:
            self._pool.begin(file)
        self.log.write_by(descriptor)
        logger.info("segment rolled base_offset=%d", self.log.end)

    def _copy(self) -> None:
        pool = self._pool
        if pool is None or pool.copied == self.log.end or self.read_only_reason:
            return
        end = self.log.end
        self._lanes["copy"].run(lambda: pool.copy(end), self._copied)

    def _copied(self, future: Future[int]) -> None:
        assert self._pool is not None
        if error := future.exception():
            self._fail(f"copying messages to the commit log failed: {error}")
            return
        self._pool.copied_to(future.result())
        self.log.visible = max(self.log.visible, future.result())
        self._notify()

    def _flushed(self) -> None:
        if self._is_sync:
            self.log.visible = self._flusher.flushed
            # For who came meanwhile; answering can wait for it.
            self._flusher.flush(self._flushable())
        self._keeper.flushed()
        self.timer.flushed()
        self._notify()

    def _flush_soon(self) -> None:
        """Begin a sync once the loop has handed over all that has arrived: they share it."""
        if self._post is None:
            self._flusher.flush(self._flushable())
        elif not self._flush_is_posted:
            self._flush_is_posted = True
            later = self._post if self._loop is None else self._loop.call_soon
            later(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_is_posted = False
        self._flusher.flush(self._flushable())

    def _fail(self, reason: str) -> None:
        """Never write again: what is on the platter is no longer known."""
        self._flusher.has_failed = True
        if self.read_only_reason is None:
            self.read_only_reason = (
                f"{reason}; the store is read-only until the disk is repaired and the broker"
                " restarted"
            )
            logger.error("store turned read-only reason=%s", reason)
        self._notify()

    def _notify(self) -> None:
        for callback in self.on_advance:
            callback()

    def _look_at_disk(self) -> None:
        self.disk_used_ratio, _ = self._disk.usage()
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


def _refuse_other_layouts(disk: Disk) -> None:
    for name in disk.directories(""):
        if name.startswith("dledger-") or (
            name == "batchconsumequeue" and disk.directories("batchconsumequeue")
        ):
            raise UnsupportedStore(
                f"{name} belongs to a kind of store that is not supported (DLedger, or topics with"
                " queue.type=BatchCQ)"
            )
