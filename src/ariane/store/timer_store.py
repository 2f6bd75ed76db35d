"""The timer wheel on disk: recovered at a start, turned as time goes by, synced and cleaned.

A broker that never sees a timed message has none of the files: they are made with the first.

A checkpoint is a snapshot taken on the loop, then a flush of the log as far as it reached, then a
sync of wheel and timer log, then the numbers in `timercheck`: what they say is never ahead of what
is on the platter. A turn notes its progress, so that what a killed process delivered after
the last checkpoint is not delivered twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ariane.clock import Clock
from ariane.config import StoreConfig
from ariane.disk import Disk
from ariane.errors import StoreError
from ariane.kernel.log import Log
from ariane.store.background import Lane
from ariane.store.clockwork import Clockwork
from ariane.store.flush import may_try_again
from ariane.store.queues import Queues
from ariane.store.timer_check import Progress, TimerCheck
from ariane.store.timer_files import TimerFiles
from ariane.store.timer_log import DIRECTORY
from ariane.store.timer_recovery import TimerRecovery
from ariane.store.timer_wheel import SLOT_COUNT, Outlet, TimerWheel, Turn, window_of
from ariane.topics import TIMER_TOPIC

logger: Final = logging.getLogger("ariane.store")

CLEAN_INTERVAL_S: Final = 30.0
NEVER: Final = (-1, -1, -1)  # marks that nothing has


@dataclass(slots=True, frozen=True)
class LogDoor:
    """What is needed of the commit log's keeper."""

    flush: Callable[[], None]
    flushed: Callable[[], int]
    fail: Callable[[str], None]
    mark_failed: Callable[[], None]
    may_append: Callable[[], bool]


class _Snapshot(NamedTuple):
    check: TimerCheck
    log_end: int  # has to be on the platter first: deliveries are there


class TimerStore:
    """Timed messages waiting on disk. `recover` first, then `turn` as often as there is time."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        lane: Lane,
        *,
        log: Log,
        queues: Queues,
        outlet: Outlet,
        door: LogDoor,
        slot_count: int = SLOT_COUNT,
    ) -> None:
        self.config = config
        self._disk = disk
        self._clock = clock
        self._lane = lane
        self._log = log
        self._queues = queues
        self._outlet = outlet
        self._door = door
        self._files = TimerFiles(
            disk,
            slot_count=slot_count,
            precision_ms=config.timer_precision_ms,
            log_file_bytes=config.timer_log_file_bytes,
        )
        self._wheel: TimerWheel | None = None
        self._saved = NEVER
        self._waiting: _Snapshot | None = None  # for the log to be flushed
        self._is_saving = False
        self._due_s: dict[str, float] = {}
        self._doomed: list[str] = []  # for the lane only
        self._fault = ""

    @property
    def clockwork(self) -> Clockwork | None:
        """The wheel's inside; None while there has been no timed message."""
        return None if self._wheel is None else self._wheel.clockwork

    @property
    def check(self) -> TimerCheck:
        """What is on the platter, as slaves are told."""
        return self._files.check.check

    @property
    def pending(self) -> int:
        """How many messages wait in the wheel."""
        return max(0, self.clockwork.pending) if self.clockwork is not None else 0

    @property
    def behind_messages(self) -> int:
        """How many messages of the timer topic have not been taken in yet."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None:
            return 0
        taken = self.clockwork.next_offset if self.clockwork is not None else queue.min_offset
        return queue.end - taken

    @property
    def next_ms(self) -> int | None:
        """When the next turn will find something to do; None while nothing was ever timed."""
        return None if self.clockwork is None else self.clockwork.next_ms

    def count_at(self, slot_ms: int) -> int:
        """How many messages wait for a slot."""
        return 0 if self.clockwork is None else self.clockwork.count_at(slot_ms)

    def turn(self) -> Turn:
        """Take in, open, deliver: a part of what there is to do now."""
        if not self.config.timer_enabled or not self._door.may_append():
            return Turn()
        try:
            wheel = self._wheel or self._begin()
        except (OSError, StoreError) as error:
            return self._watched(Turn(fault=error))
        if wheel is None:
            return Turn()
        turn = wheel.turn(self._clock.wall_ms())
        if not self._log.fault:  # else what the turn delivered is in no file, and is still due
            self._files.check.note(self._progress(wheel.clockwork))
        return self._watched(turn)

    def tick(self) -> None:
        """Do what is due; called every 100 ms or so."""
        if self._wheel is None:
            return
        if self._is_due("check", self.config.timer_flush_interval_ms / 1000):
            self.checkpoint()
        self.flushed()
        if self._is_due("clean", CLEAN_INTERVAL_S):
            self.clean()

    def checkpoint(self) -> None:
        """Begin to put everything on the platter, unless nothing has changed."""
        if self._wheel is None or self._waiting is not None or self._is_saving or self._log.fault:
            return
        clockwork = self._wheel.clockwork
        marks = self._marks(clockwork)
        if marks == self._saved:
            return
        self._saved = marks
        self._waiting = self._snapshot(clockwork)
        self.flushed()

    def flushed(self) -> None:
        """The log may have been flushed as far as a checkpoint needs it."""
        snapshot = self._waiting
        if snapshot is None:
            return
        if self._door.flushed() < snapshot.log_end:
            self._door.flush()
            return
        self._waiting, self._is_saving = None, True
        job = self._files.sync_job(self._door.mark_failed)
        self._lane.run(job, lambda future: self._synced(snapshot, future))

    def clean(self) -> None:
        """Remove files of the timer log whose messages the log no longer has."""
        if paths := self._files.log.drop_expired(self._log.first_position):
            logger.info("old timer log files removed count=%d", len(paths))
            self._lane.run(lambda: self._remove(paths), _log_failure)

    def end(self) -> None:
        """Put everything on the platter for the last time.

        An open slot with nothing left in it is over: Apache's broker would deliver it again.
        """
        if self._wheel is not None:
            self._wheel.clockwork.finish()
            if self._snapshot(self._wheel.clockwork).check != self.check:
                self._saved = NEVER
            self.checkpoint()
            if self._saved == NEVER:
                raise StoreError("the timer wheel could not be put on the platter")

    def close(self) -> None:
        """Let go of every file."""
        self._wheel = None
        self._files.close()

    def reconfigure(self, config: StoreConfig) -> None:
        """Work by other settings; the precision and the files' sizes stay as they are."""
        self.config = config
        if self._wheel is not None:
            self._wheel.clockwork.window_slots = self._window_slots()

    def recover(self, *, was_killed: bool, sync_failed: bool) -> None:
        """Bring the wheel back to what the log and `timercheck` say. May take a while."""
        if not self.config.timer_enabled:
            return
        check, progress = self._files.check.load()
        queue = self._queues.get(TIMER_TOPIC, 0)
        if check is None and (queue is None or queue.end == 0):
            return
        recovery = TimerRecovery(
            self._files,
            self._log,
            self._queues.obtain(TIMER_TOPIC, 0),
            check,
            progress,
            now_ms=self._clock.wall_ms(),
            window_slots=self._window_slots(),
            was_killed=was_killed,
            sync_failed=sync_failed,
        )
        clockwork, is_new = recovery.run()
        self._wheel = TimerWheel(clockwork, self._files, self._outlet)
        self._take_again(self._wheel)
        self._files.check.open()
        if is_new or was_killed or self._snapshot(clockwork).check != check:
            self._checkpoint_now(clockwork)
        self._saved = self._marks(clockwork)
        logger.info(
            "timer wheel ready pending=%d read_ms=%d queue_offset=%d",
            self.pending,
            clockwork.read_ms,
            clockwork.next_offset,
        )

    def _begin(self) -> TimerWheel | None:
        """Make the files, now that there is a first timed message."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None or queue.end == 0:
            return None
        files = self._files
        files.begin_anew()
        files.check.open()
        clockwork = files.clockwork(
            self._log,
            queue,
            window_slots=self._window_slots(),
            read_ms=self._clock.wall_ms(),
            next_offset=queue.min_offset,
        )
        self._wheel = TimerWheel(clockwork, files, self._outlet)
        # Progress counts from here on, should there be a kill before the first checkpoint.
        files.check.write(self._snapshot(clockwork).check, self._progress(clockwork))
        logger.info("timer wheel made precision_ms=%d", files.precision_ms)
        return self._wheel

    def _take_again(self, wheel: TimerWheel) -> None:
        """Take in what a former process had taken in, but for what it had delivered."""
        clockwork = wheel.clockwork
        while (count := clockwork.taken_end - clockwork.next_offset) > 0:
            before = clockwork.next_offset
            try:
                wheel.take(self._clock.wall_ms(), count)
            except (OSError, StoreError) as error:
                logger.warning("timed messages taken in later reason=%s", error)
                break
            if clockwork.next_offset == before:
                break  # what is in the way has to be delivered first

    def _window_slots(self) -> int:
        return window_of(
            self.config.timer_window_slots,
            slot_count=self._files.slot_count,
            precision_ms=self._files.precision_ms,
            retention_hours=self.config.retention_hours,
        )

    def _progress(self, clockwork: Clockwork) -> Progress:
        return Progress(
            precision_ms=self._files.precision_ms,
            read_ms=clockwork.read_ms,
            done_ms=clockwork.done_ms,
            queue_offset=clockwork.safe_offset,
            log_end=self._log.end,
        )

    def _snapshot(self, clockwork: Clockwork) -> _Snapshot:
        offset = clockwork.safe_offset
        before = self.check
        check = replace(
            before,
            read_ms=clockwork.read_ms,
            log_position=clockwork.units.end,
            queue_offset=offset,
            master_queue_offset=offset,
        )
        if check != before:
            check = replace(check, timestamp_ms=self._clock.wall_ms(), counter=before.counter + 1)
        return _Snapshot(check, self._log.end)

    def _marks(self, clockwork: Clockwork) -> tuple[int, int, int]:
        """What changes when there is something to sync; time passing alone is not."""
        return clockwork.units.end, clockwork.safe_offset, clockwork.delivered

    def _synced(self, snapshot: _Snapshot, future: Future[int]) -> None:
        if error := future.exception():
            self._failed(error)
            return
        if self._wheel is None or self._log.fault:
            return
        self._files.log.synced_end = future.result()
        self._files.check.write(snapshot.check, self._progress(self._wheel.clockwork))
        self._lane.run(self._sync_check, self._checked)

    def _sync_check(self) -> None:
        try:
            self._files.check.sync()
        except OSError as error:
            if not may_try_again(error):
                self._door.mark_failed()
            raise

    def _checked(self, future: Future[None]) -> None:
        self._is_saving = False
        if error := future.exception():
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if may_try_again(error):
            logger.warning("sync of the timer wheel put off reason=%s", error)
            self._is_saving, self._saved = False, NEVER
            self._files.distrust_names()
            return
        self._door.fail(f"syncing the timer wheel failed: {error}")

    def _checkpoint_now(self, clockwork: Clockwork) -> None:
        """Everything so far is on the platter when this returns. The log is, after recovery."""
        snapshot = self._snapshot(clockwork)
        self._files.log.synced_end = self._files.sync_job(self._door.mark_failed)()
        self._files.check.write(snapshot.check, self._progress(clockwork))
        self._files.check.sync()

    def _remove(self, paths: list[str]) -> None:
        self._doomed += paths
        while self._doomed:
            self._disk.remove(self._doomed[0])
            del self._doomed[0]
        self._disk.sync_directory(DIRECTORY)

    def _watched(self, turn: Turn) -> Turn:
        """Say once what stands in the way, and once that it is gone."""
        fault = str(turn.fault) if turn.fault is not None else ""
        if fault != self._fault:
            self._fault = fault
            logger.warning("timed messages %s", f"held up reason={fault}" if fault else "go on")
        return turn

    def _is_due(self, name: str, interval_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s.setdefault(name, now_s + interval_s):
            return False
        self._due_s[name] = now_s + interval_s
        return True


def _log_failure(future: Future[None]) -> None:
    if error := future.exception():
        logger.warning("timer log files not removed, will be with the next reason=%s", error)
