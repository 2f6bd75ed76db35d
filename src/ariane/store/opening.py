"""Opening a store: its files, found sound or made so, and the parts that work on them.

Nothing in a store is touched before its lock is held. The file `abort` is there while a store is in
use; it stays after a kill or a failure, and what is in it tells the next start how far to trust.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ariane.clock import Clock
from ariane.config import StoreConfig
from ariane.disk import Disk, MappedFile
from ariane.errors import StoreError, UnsupportedStore
from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.store.appending import BLANK_BYTES, Appender
from ariane.store.background import Lane, Post, lane_of
from ariane.store.checkpoint import ABORT_PATH, Checkpoint, CheckpointFile, Claim
from ariane.store.delays import delays_ms_of
from ariane.store.deletions import Deletions
from ariane.store.flush import Flusher, LaneSyncing
from ariane.store.hosts import host_bytes_of
from ariane.store.indexes import Indexes
from ariane.store.keeping import Keeper
from ariane.store.making import Making
from ariane.store.messages import NewMessage, Placed
from ariane.store.preparation import Preparation
from ariane.store.queues import Queues
from ariane.store.recovery import Recovery
from ariane.store.segments import Segments
from ariane.store.slices import Slices
from ariane.store.timer_store import LogDoor, TimerStore
from ariane.store.timer_wheel import Outlet
from ariane.store.topic_deletion import TopicDeletion
from ariane.store.transient_pool import TransientPool
from ariane.store.watermarks import POOLED, Watermarks, policy_of

FAILED_MARK: Final = b"sync failed"
RECORD_SPARE_BYTES: Final = 64 * 1024  # what a record may have beside its body
QUEUE_COUNT_NEVER_REACHED: Final = 1 << 62


class Files:
    """What a store has on disk."""

    def __init__(
        self, config: StoreConfig, disk: Disk, clock: Clock, store_host: tuple[str, int]
    ) -> None:
        self.was_killed = False  # whoever had the store before did not stop it
        self.host_bytes = host_bytes_of(store_host)
        self._config = config
        self._disk = disk
        self.log = Log(
            config.segment_bytes,
            self.host_bytes,
            delays_ms=delays_ms_of(config.delay_levels),
            record_bytes_max=min(
                config.message_bytes_max + RECORD_SPARE_BYTES, config.segment_bytes - BLANK_BYTES
            ),
        )
        self.segments = Segments(disk, self.log)
        self.queues = Queues(disk, self.log, config.queue_file_bytes)
        self.indexes = Indexes(
            disk, clock, slot_count=config.index_slot_count, entry_count=config.index_entry_count
        )
        self.checkpoint_file = CheckpointFile(disk)
        self.deletions = Deletions(disk)

    def recover(self) -> Checkpoint:
        """Load everything and make it agree with the log; the checkpoint that holds then."""
        _refuse_other_layouts(self._disk)
        self.was_killed = self._disk.exists(ABORT_PATH)
        self.segments.load()
        self.queues.load()
        self.indexes.load()
        self.deletions.load()
        checkpoint = self.checkpoint_file.load()
        claim = Recovery(
            log=self.log,
            segments=self.segments,
            queues=self.queues,
            indexes=self.indexes,
            deletions=self.deletions,
            checkpoint=checkpoint,
            was_killed=self.was_killed,
            sync_failed=self.has_failed_before(),
            check_crc=self._config.check_crc_on_recover,
            index_enabled=self._config.index_enabled,
            distrust=self._distrust,
        ).run()
        return replace(checkpoint, claim=claim)

    def mark_in_use(self) -> None:
        """Let the next start know, from now on, that this process may have been killed."""
        self._disk.write(ABORT_PATH, str(os.getpid()).encode())
        self._disk.sync_directory("")

    def mark_failed(self) -> None:
        """Let the next start know of a failed sync; any thread may call this.

        It need not be synced: once the page cache is gone there is nothing left to be wrong about.
        """
        with suppress(OSError, StoreError):
            self._disk.write(ABORT_PATH, FAILED_MARK)

    def mark_stopped(self) -> None:
        """Let the next start know that everything is on the platter."""
        self._disk.remove(ABORT_PATH)
        self._disk.sync_directory("")

    def has_failed_before(self) -> bool:
        """Whether a former process could not sync, and what it left may be in no file."""
        return self._disk.exists(ABORT_PATH) and self._disk.read(ABORT_PATH) == FAILED_MARK

    def close(self) -> None:
        """Let go of every file."""
        with suppress(OSError):  # nobody was told of what cannot be written
            self.log.write_by(-1)
        self.segments.close()
        self.queues.close()
        self.indexes.close()
        self.checkpoint_file.close()

    def _distrust(self, claim: Claim | None) -> None:
        """Let every start find fewer queues than claimed, until one has rebuilt them all."""
        if not self.has_failed_before():
            self.mark_in_use()
        if claim is not None:
            claim = replace(claim, queue_count=QUEUE_COUNT_NEVER_REACHED)
        self.checkpoint_file.save(Checkpoint(claim=claim))


class Owner(Protocol):
    """Whom the parts tell, and ask: the store."""

    @property
    def index(self) -> Index | None:
        """The index file that takes new keys now."""
        ...

    def flushed_on(self) -> None:
        """The log is on the platter further than before."""
        ...

    def fail(self, reason: str) -> None:
        """Never write again."""
        ...

    def rolled(self, file: MappedFile, descriptor: int) -> None:
        """Another segment takes the records."""
        ...

    def writer_of(self, file: MappedFile) -> int:
        """The descriptor by which records are written to a segment; -1 for none."""
        ...

    def may_append(self) -> bool:
        """Whether there is any use in trying."""
        ...

    def append_again(self, message: NewMessage) -> Placed:
        """Append what the log held before."""
        ...

    def advance(self) -> None:
        """Records have been placed."""
        ...

    def flush(self) -> None:
        """Sync the log up to its end, or begin to."""
        ...

    def checkpoint(self) -> None:
        """Begin a checkpoint."""
        ...

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing is written any more."""
        ...


@dataclass(slots=True)
class Parts:
    """What works on the files."""

    marks: Watermarks
    flusher: Flusher
    keeper: Keeper
    making: Making
    preparation: Preparation
    deletion: TopicDeletion
    appender: Appender
    timer: TimerStore
    pool: TransientPool | None


def assemble(
    files: Files,
    checkpoint: Checkpoint,
    owner: Owner,
    *,
    config: StoreConfig,
    disk: Disk,
    clock: Clock,
    lanes: dict[str, Lane],
    post: Post | None,
    slices: Slices,
    timer_slots: int,
) -> Parts:
    """Put together what works on recovered files; the lanes are the owner's to end in any case."""
    log, queues = files.log, files.queues
    marks = Watermarks(policy_of(config), log.end)
    pool = TransientPool(log) if marks.policy is POOLED else None
    for name in ("flush", "prepare", "make", "keep", *(() if pool is None else ("copy",))):
        lanes[name] = lane_of(name, post)
    flusher = Flusher(
        files.segments,
        LaneSyncing(lanes["flush"], files.mark_failed),
        marks,
        on_flushed=owner.flushed_on,
        on_failed=owner.fail,
    )
    queues.recovered()
    making = Making(disk, queues, clock, lanes["make"], post or (lambda callback: callback()))
    if post is not None:  # else nobody is held up
        queues.on_fresh = making.ask
        queues.make_now = making.make_now
    keeper = Keeper(
        config,
        disk,
        clock,
        lanes["keep"],
        log=log,
        segments=files.segments,
        queues=queues,
        making=making,
        slices=slices,
        indexes=files.indexes,
        flusher=flusher,
        file=files.checkpoint_file,
        checkpoint=checkpoint,
        on_failed=owner.fail,
        mark_failed=files.mark_failed,
    )
    preparation = Preparation(log, files.segments, queues, clock, lanes["prepare"])
    queues.on_long = preparation.bring_in
    deletion = TopicDeletion(
        log=log,
        queues=queues,
        deletions=files.deletions,
        keeper=keeper,
        preparing=lanes["prepare"],
        making=making,
        checkpoint=owner.checkpoint,
        fail=owner.fail,
        refusal=lambda: owner.read_only_reason,
    )
    appender = Appender(
        clock,
        host_bytes=files.host_bytes,
        log=log,
        segments=files.segments,
        queues=queues,
        indexes=files.indexes if config.index_enabled else None,
        next_segment=preparation.next_segment,
        open_descriptor=owner.writer_of,
        on_rolled=owner.rolled,
    )
    timer = TimerStore(
        config,
        disk,
        clock,
        lanes["keep"],
        log=log,
        queues=queues,
        outlet=Outlet(
            index=lambda: owner.index,
            queue_of=queues.obtain,
            append=owner.append_again,
            advance=owner.advance,
        ),
        door=LogDoor(
            flush=owner.flush,
            flushed=lambda: marks.flushed,
            fail=owner.fail,
            mark_failed=files.mark_failed,
            may_append=owner.may_append,
        ),
        slot_count=timer_slots,
    )
    if pool is not None:
        pool.begin(files.segments.files[-1])
    keeper.trim()
    return Parts(marks, flusher, keeper, making, preparation, deletion, appender, timer, pool)


def _refuse_other_layouts(disk: Disk) -> None:
    for name in disk.directories(""):
        if name.startswith("dledger-") or (
            name == "batchconsumequeue" and disk.directories("batchconsumequeue")
        ):
            raise UnsupportedStore(
                f"{name} belongs to a kind of store that is not supported (DLedger, or topics with"
                " queue.type=BatchCQ)"
            )
