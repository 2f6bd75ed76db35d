"""The timer wheel on disk: its files made, recovered, synced and let go.

Theory of operation. The log is the truth: a timed message is a record of the timer topic, and all
else can be made anew from those. `timercheck` says how far that is done and on the platter;
whatever the wheel and the timer log hold beyond is undone at a start, and done again. A turn notes
its progress, so that what a killed process delivered after the last sync is not delivered twice.
Files that are missing, damaged or made with another precision are made anew from the timer topic.

A broker that never sees a timed message has none of these files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ariane.clock import Clock
from ariane.config import StoreConfig
from ariane.disk import Disk, MappedFile
from ariane.errors import StoreError
from ariane.kernel.log import Log, Queue
from ariane.kernel.timer import Clockwork, Wheel, wheel_chunk_bytes
from ariane.store.background import Lane
from ariane.store.queues import Queues
from ariane.store.timer_check import Progress, TimerCheck, TimerCheckFile
from ariane.store.timer_log import DIRECTORY, TimerLogFiles
from ariane.store.timer_wheel import (
    SLOT_BYTES,
    SLOT_COUNT,
    Outlet,
    TimerWheel,
    Turn,
    window_of,
)
from ariane.topics import TIMER_TOPIC

logger: Final = logging.getLogger("ariane.store")

WHEEL_PATH: Final = "timerwheel"
CLEAN_INTERVAL_S: Final = 30.0


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
        self._slot_count = slot_count
        self._precision_ms = config.timer_precision_ms
        self._files = TimerLogFiles(disk, config.timer_log_file_bytes)
        self._check_file = TimerCheckFile(disk)
        self._wheel_file: MappedFile | None = None
        self._wheel: TimerWheel | None = None
        self._root_changed = False
        self._saved: tuple[int, int, int] = (-1, -1, -1)
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
        return self._check_file.check

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

    # -------------------------------------------------------------- work

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
        self._check_file.note(self._progress(wheel.clockwork))
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
        if self._wheel is None or self._waiting is not None or self._is_saving:
            return
        snapshot = self._snapshot(self._wheel.clockwork)
        if self._marks() == self._saved:
            return
        self._saved = self._marks()
        self._waiting = snapshot
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
        job = self._sync_job()
        self._lane.run(job, lambda future: self._synced(snapshot, future))

    def clean(self) -> None:
        """Remove files of the timer log whose messages the log no longer has."""
        if paths := self._files.drop_expired(self._log.first_position):
            logger.info("old timer log files removed count=%d", len(paths))
            self._lane.run(lambda: self._remove(paths), _log_failure)

    def close(self) -> None:
        """Let go of every file."""
        if self._wheel is not None:
            self._wheel.clockwork.wheel.release()
            self._wheel = None
        if self._wheel_file is not None:
            self._wheel_file.close()
            self._wheel_file = None
        self._files.close()
        self._check_file.close()

    def reconfigure(self, config: StoreConfig) -> None:
        """Work by other settings; the precision and the files' sizes stay as they are."""
        self.config = config
        if self._wheel is not None:
            self._wheel.clockwork.window_slots = self._window_slots()

    # -------------------------------------------------------------- room for the wheel

    def add_unit_file(self) -> None:
        """Begin the next file of the timer log."""
        self._files.add_file()

    def reserve_units(self) -> None:
        """Give the timer log more blocks."""
        self._files.reserve()

    def reserve_slots(self, chunk: int) -> None:
        """Give a chunk of the wheel its blocks."""
        assert self._wheel_file is not None and self._wheel is not None
        first = chunk * wheel_chunk_bytes
        self._wheel_file.reserve(first, min(first + wheel_chunk_bytes, self._wheel_file.size))
        self._wheel.clockwork.wheel.chunk_reserved(chunk)

    # -------------------------------------------------------------- start

    def recover(self, *, was_killed: bool, sync_failed: bool) -> None:
        """Bring wheel and timer log back to what the log and `timercheck` say. May take a while."""
        if not self.config.timer_enabled:
            return
        check, progress = self._check_file.load()
        queue = self._queues.get(TIMER_TOPIC, 0)
        if check is None and (queue is None or queue.end == 0):
            return
        queue = self._queues.obtain(TIMER_TOPIC, 0)
        if was_killed:  # any name may be known to the page cache only
            self._files.names_changed = self._root_changed = self._check_file.is_new = True
        if progress is not None and progress.log_end > self._log.end:
            progress = None  # of deliveries that a power cut took
        start = _start_of(check, progress, queue)
        reason = self._resume(start, check, queue, was_killed) if not sync_failed else "failed sync"
        if reason is not None:
            if check is not None:
                logger.warning("timer wheel made anew from its topic reason=%s", reason)
            self._rebuild(start, queue)
        wheel = self._wheel
        assert wheel is not None
        self._take_again(wheel, start.taken_end)
        self._check_file.open()
        if reason is not None or was_killed or self._snapshot(wheel.clockwork).check != check:
            self._checkpoint_now()
        self._saved = self._marks()
        logger.info(
            "timer wheel ready pending=%d read_ms=%d queue_offset=%d",
            self.pending,
            wheel.clockwork.read_ms,
            wheel.clockwork.next_offset,
        )

    def _begin(self) -> TimerWheel | None:
        """Make the files, now that there is a first timed message."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None or queue.end == 0:
            return None
        now_ms = self._clock.wall_ms()
        self._files.clear()
        self._map_wheel(create=True)
        self._check_file.open()
        wheel = self._assemble(queue, now_ms, queue.min_offset)
        self._wheel = wheel
        # Progress counts from here on, should there be a kill before the first checkpoint.
        self._check_file.write(
            self._snapshot(wheel.clockwork).check, self._progress(wheel.clockwork)
        )
        logger.info(
            "timer wheel made slots=%d precision_ms=%d", self._slot_count, self._precision_ms
        )
        return wheel

    def _resume(
        self, start: _Start, check: TimerCheck | None, queue: Queue, was_killed: bool
    ) -> str | None:
        """Go on with the files as they are; or why that cannot be."""
        if check is None:
            return "no timercheck"
        if self._check_file.precision_ms not in (None, self._precision_ms):
            return f"its precision was {self._check_file.precision_ms} ms"
        size = dict(self._disk.names("")).get(WHEEL_PATH)
        if size != self._slot_count * SLOT_BYTES:
            return "no timerwheel" if size is None else f"timerwheel has {size} bytes"
        self._files.load()
        units = self._files.units
        kept = self._kept_units(check.log_position, queue, start.taken_end)
        if kept is None:
            return "timerlog does not hold what timercheck speaks of"
        first, cut, next_offset = kept
        self._map_wheel(create=False)
        read_ms = start.read_ms or self._oldest_ms()
        clockwork = self._assemble(queue, read_ms, max(start.next_offset, next_offset))
        units.end = cut
        if not clockwork.clockwork.restore(first):
            return "timerlog is damaged"
        self._wheel = clockwork
        if first < cut:
            self._reserve_wheel()
            clockwork.clockwork.relink(first, cut)
        if was_killed or units.unit(cut) is not None:
            self._files.cut(cut)
        units.end = units.reserved_end = cut
        self._files.synced_end = min(check.log_position, cut)
        clockwork.clockwork.units_end = cut
        clockwork.clockwork.delivered_ms = start.done_ms
        return None

    def _kept_units(self, position: int, queue: Queue, taken_end: int) -> _Kept | None:
        """Which units to keep: those of messages that had been taken in, as far as they are whole.

        Units are in the order of their messages. Some may follow the position that was synced:
        of messages taken in since, or because Apache's position lies in front of its queue offset.
        """
        units = self._files.units
        if not units.first_position <= position <= units.end_position:
            return None
        taken_end = max(taken_end, queue.min_offset)
        entry = queue.entry(taken_end) if taken_end < queue.end else None
        log_end = entry[0] if entry is not None else self._log.end
        first = units.place_of(position)
        while (before := units.before(first)) >= 0:
            unit = units.unit(before)
            if unit is None:
                return None
            if unit[4] < log_end:
                break
            first = before
        cut, last = first, -1
        while (unit := units.unit(cut)) is not None and unit[4] < log_end:
            if self._log.check(unit[4], self._log.end, False) != unit[5]:
                break  # a sector of it is lost
            cut, last = units.after(cut), unit[4]
        record = self._log.record(last, self._log.end)
        next_offset = int.from_bytes(record[20:28], "big") + 1 if record is not None else 0
        return _Kept(first, min(cut, units.end_position), next_offset)

    def _rebuild(self, start: _Start, queue: Queue) -> None:
        """Make wheel and timer log anew; messages are taken in from the topic's beginning."""
        self._wheel = None
        if self._wheel_file is not None:
            self._wheel_file.close()
            self._wheel_file = None
        self._disk.remove(WHEEL_PATH)
        self._root_changed = True
        self._files.close()
        self._files.clear()
        self._map_wheel(create=True)
        read_ms = start.read_ms or self._clock.wall_ms()
        self._wheel = self._assemble(queue, read_ms, queue.min_offset)
        self._wheel.clockwork.delivered_ms = start.done_ms

    def _take_again(self, wheel: TimerWheel, taken_end: int) -> None:
        """Take in what a former process had taken in, but for what it had delivered."""
        clockwork = wheel.clockwork
        clockwork.taken_end = min(taken_end, clockwork.queue.visible_end(self._log))
        while (count := clockwork.taken_end - clockwork.next_offset) > 0:
            before = clockwork.next_offset
            try:
                wheel.take(self._clock.wall_ms(), count)
            except (OSError, StoreError) as error:
                logger.warning("timed messages taken in later reason=%s", error)
                break
            if clockwork.next_offset == before:
                break  # what is in the way has to be delivered first

    def _assemble(self, queue: Queue, read_ms: int, next_offset: int) -> TimerWheel:
        assert self._wheel_file is not None
        slots = Wheel(self._wheel_file.buffer, self._slot_count, self._precision_ms)
        clockwork = Clockwork(
            self._log,
            queue,
            slots,
            self._files.units,
            window_slots=self._window_slots(),
            read_ms=read_ms,
            next_offset=next_offset,
        )
        return TimerWheel(clockwork, self, self._outlet)

    def _window_slots(self) -> int:
        return window_of(
            self.config.timer_window_slots,
            slot_count=self._slot_count,
            precision_ms=self._precision_ms,
            retention_hours=self.config.retention_hours,
        )

    def _oldest_ms(self) -> int:
        assert self._wheel_file is not None
        slots = Wheel(self._wheel_file.buffer, self._slot_count, self._precision_ms)
        oldest_ms = slots.oldest_ms()
        slots.release()
        return self._clock.wall_ms() if oldest_ms is None else oldest_ms

    def _map_wheel(self, *, create: bool) -> None:
        size = self._slot_count * SLOT_BYTES
        if create:
            self._disk.remove(WHEEL_PATH)
            self._root_changed = True
        self._wheel_file = self._disk.mapped(WHEEL_PATH, size, create=create)

    def _reserve_wheel(self) -> None:
        assert self._wheel_file is not None
        for chunk in range(-(-self._wheel_file.size // wheel_chunk_bytes)):
            self.reserve_slots(chunk)

    # -------------------------------------------------------------- checkpoints

    def _progress(self, clockwork: Clockwork) -> Progress:
        return Progress(
            precision_ms=self._precision_ms,
            read_ms=clockwork.read_ms,
            done_ms=clockwork.done_ms,
            queue_offset=clockwork.safe_offset,
            log_end=self._log.end,
        )

    def _snapshot(self, clockwork: Clockwork) -> _Snapshot:
        offset = clockwork.safe_offset
        before = self._check_file.check
        check = replace(
            before,
            read_ms=clockwork.read_ms,
            log_position=self._files.units.end,
            queue_offset=offset,
            master_queue_offset=offset,
        )
        if check != before:
            check = replace(check, timestamp_ms=self._clock.wall_ms(), counter=before.counter + 1)
        return _Snapshot(check, self._log.end)

    def _marks(self) -> tuple[int, int, int]:
        """What changes when there is something to sync; time passing alone is not."""
        assert self._wheel is not None
        clockwork = self._wheel.clockwork
        return self._files.units.end, clockwork.safe_offset, clockwork.delivered

    def _sync_job(self) -> Callable[[], int]:
        assert self._wheel_file is not None
        ranges = [*self._files.unsynced(), (self._wheel_file, 0, self._wheel_file.size)]
        directories = set()
        if self._files.names_changed:
            directories.add(DIRECTORY)
            self._root_changed = True
        if self._check_file.is_new:
            directories.add("config")
            self._root_changed = True
        if self._root_changed:
            directories.add("")
        self._files.names_changed = self._root_changed = self._check_file.is_new = False
        end, disk, mark_failed = self._files.units.end, self._disk, self._door.mark_failed

        def job() -> int:
            try:
                disk.sync_many(ranges, directories)
            except OSError:
                mark_failed()
                raise
            return end

        return job

    def _synced(self, snapshot: _Snapshot, future: Future[int]) -> None:
        if error := future.exception():
            self._failed(error)
            return
        if self._wheel is None:
            return
        self._files.synced_end = future.result()
        self._check_file.write(snapshot.check, self._progress(self._wheel.clockwork))
        self._lane.run(self._sync_check, self._checked)

    def _sync_check(self) -> None:
        try:
            self._check_file.sync()
        except OSError:
            self._door.mark_failed()
            raise

    def _checked(self, future: Future[None]) -> None:
        self._is_saving = False
        if error := future.exception():
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._door.fail(f"syncing the timer wheel failed: {error}")

    def _checkpoint_now(self) -> None:
        """Everything so far is on the platter when this returns. The log is, after recovery."""
        assert self._wheel is not None
        snapshot = self._snapshot(self._wheel.clockwork)
        self._files.synced_end = self._sync_job()()
        self._check_file.write(snapshot.check, self._progress(self._wheel.clockwork))
        self._check_file.sync()

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


class _Kept(NamedTuple):
    """What stays of the timer log."""

    first: int  # units from here on are linked anew
    cut: int  # and those from here on go
    next_offset: int  # the message after the last one that has a unit, or 0


class _Start(NamedTuple):
    """Where a former process was."""

    next_offset: int  # of the timer queue: what is not in the timer log from there on
    taken_end: int  # up to where it had been taken in
    read_ms: int
    done_ms: int


def _start_of(check: TimerCheck | None, progress: Progress | None, queue: Queue) -> _Start:
    if check is None:
        return _Start(queue.min_offset, 0, 0, 0)
    next_offset = min(check.queue_offset, queue.end)
    if progress is None:
        return _Start(next_offset, next_offset, check.read_ms, check.read_ms)
    return _Start(next_offset, progress.queue_offset, progress.read_ms, progress.done_ms)


def _log_failure(future: Future[None]) -> None:
    if error := future.exception():
        logger.warning("timer log files not removed, will be with the next reason=%s", error)
