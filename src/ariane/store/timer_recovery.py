"""Bringing the timer wheel back to what the log holds, after a clean stop or any other.

Theory of operation. The log is the truth, and `timercheck` says how much of it wheel and timer log
hold for certain. Units of messages taken in since are kept as far as they are whole; the slots that
were written for others are led back along their chains. Then messages are taken in again from
where the units end, passing over those that the progress of the last turn says were delivered.

Where files are missing, damaged or of another precision, all of it is made anew from the timer
topic. Either way can be cut short and begun again: nothing is claimed before it has been synced.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.clockwork import Clockwork
from ariane.store.timer_check import Progress, TimerCheck
from ariane.store.timer_files import TimerFiles
from ariane.store.timer_slots import SlotRepair, oldest_ms

logger: Final = logging.getLogger("ariane.store")

QUEUE_OFFSET_AT: Final = slice(20, 28)  # in a record


class Start(NamedTuple):
    """Where a former process was."""

    next_offset: int  # of the timer queue: what is certain to be in the timer log ends here
    taken_end: int  # up to where messages had been taken in
    read_ms: int
    done_ms: int


class _Kept(NamedTuple):
    first: int  # units from here on are linked anew
    cut: int  # and those from here on go
    next_offset: int  # the message after the last one that has a unit, or 0


@dataclass(slots=True)
class TimerRecovery:
    """One wheel being recovered. `run` is the whole of it, but for taking messages in again."""

    files: TimerFiles
    log: Log
    queue: Queue
    check: TimerCheck | None
    progress: Progress | None
    now_ms: int
    window_slots: int
    was_killed: bool
    sync_failed: bool

    def run(self) -> tuple[Clockwork, bool]:
        """The wheel, and whether it was made anew."""
        if self.was_killed:
            self.files.distrust_names()
        start = self.start
        resumed = self._resume(start)
        if isinstance(resumed, Clockwork):
            return self._begun(resumed, start), False
        if self.check is not None:
            logger.warning("timer wheel made anew from its topic reason=%s", resumed)
        self.files.begin_anew()
        clockwork = self._clockwork(start.read_ms or self.now_ms, self.queue.min_offset)
        return self._begun(clockwork, start), True

    @property
    def start(self) -> Start:
        """Where to begin, as far as the files tell."""
        if self.check is None:
            return Start(self.queue.min_offset, 0, 0, 0)
        next_offset = min(self.check.queue_offset, self.queue.end)
        progress = self.progress
        if progress is None or progress.log_end > self.log.end:  # a power cut took deliveries
            return Start(next_offset, next_offset, self.check.read_ms, self.check.read_ms)
        return Start(next_offset, progress.queue_offset, progress.read_ms, progress.done_ms)

    def _begun(self, clockwork: Clockwork, start: Start) -> Clockwork:
        clockwork.delivered_ms = start.done_ms
        clockwork.taken_end = min(start.taken_end, self.log.visible_end(self.queue))
        return clockwork

    def _resume(self, start: Start) -> Clockwork | str:
        """The wheel as its files are; or why they cannot be used."""
        files, check = self.files, self.check
        if check is None:
            return "there is no timercheck"
        if self.sync_failed:
            return "a sync has failed, and nobody knows what is on the platter"
        if files.check.precision_ms not in (None, files.precision_ms):
            return f"its precision was {files.check.precision_ms} ms"
        if fault := files.wheel_fault():
            return fault
        files.log.load()
        kept = self._kept_units(check.log_position, start.taken_end)
        if kept is None:
            return "timerlog does not hold what timercheck speaks of"
        files.open_wheel()
        read_ms = start.read_ms or oldest_ms(files.wheel) or self.now_ms
        clockwork = self._clockwork(read_ms, max(start.next_offset, kept.next_offset))
        files.log.units.end = kept.cut
        repair = SlotRepair(clockwork)
        if not repair.restore(kept.first):
            return "timerlog is damaged"
        if kept.first < kept.cut:
            files.reserve_all_slots()
            repair.relink(kept.first, kept.cut)
        files.log.end_at(
            kept.cut,
            synced_end=min(check.log_position, kept.cut),
            is_clean=not self.was_killed and files.log.units.unit(kept.cut) is None,
        )
        clockwork.units_end = kept.cut
        return clockwork

    def _kept_units(self, position: int, taken_end: int) -> _Kept | None:
        """Which units to keep: those of messages that had been taken in, as far as they are whole.

        Units are in the order of their messages. Some may follow the position that was synced:
        of messages taken in since, or because Apache's position lies in front of its queue offset.
        None when units before the position are missing.
        """
        units, log = self.files.log.units, self.log
        if not units.first_position <= position <= units.end_position:
            return None
        taken_end = max(taken_end, self.queue.min_offset)
        entry = self.queue.entry(taken_end) if taken_end < self.queue.end else None
        log_end = entry[0] if entry is not None else log.end
        first = units.place_of(position)
        while (before := units.before(first)) >= 0:
            unit = units.unit(before)
            if unit is None:
                return None
            if unit[4] < log_end:
                break
            first = before  # of a message that the log has lost
        cut, last = first, -1
        while (unit := units.unit(cut)) is not None and unit[4] < log_end:
            if log.check(unit[4], log.end, check_crc=False) != unit[5]:
                break  # a sector of it is lost
            cut, last = units.after(cut), unit[4]
        record = log.record(last, log.end)
        next_offset = int.from_bytes(record[QUEUE_OFFSET_AT], "big") + 1 if record else 0
        return _Kept(first, min(cut, units.end_position), next_offset)

    def _clockwork(self, read_ms: int, next_offset: int) -> Clockwork:
        return self.files.clockwork(
            self.log,
            self.queue,
            window_slots=self.window_slots,
            read_ms=read_ms,
            next_offset=next_offset,
        )
