"""Bugs of timer wheels, put back into ours: lives with crashes in them must find each.

The numbers are those of Apache RocketMQ's issues where a bug was told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ariane.disk import CrashMode
from ariane.errors import DiskFull
from ariane.store.timer_check import Progress
from ariane.store.timer_files import TimerFiles
from ariane.store.timer_log import TimerLogFiles
from ariane.store.timer_recovery import Start, TimerRecovery, _Kept
from ariane.store.timer_store import TimerStore
from ariane.store.timer_wheel import TimerWheel, Turn
from tests.unit.store.shelf import config_with
from tests.unit.store.timer_world import TIMED, TimerWorld

Patch = pytest.MonkeyPatch
VALUES = {name: getattr(TIMED, name) for name in TIMED.__struct_fields__}
LIVES_MAX = 400
FOUND_BY = {"names_never_synced": 205, "timer_log_not_synced": 175}  # tried first, to save time


def units_past_the_end_of_the_log(patch: Patch) -> None:
    """#10668: the log was cut short, and units for what it lost stay in their slots."""
    start = TimerRecovery.start.fget  # type: ignore[attr-defined]

    def believed(self: TimerRecovery) -> Start:
        found: Start = start(self)
        return found._replace(taken_end=1 << 40)

    patch.setattr(TimerRecovery, "start", property(believed))


def a_failure_puts_the_whole_batch_again(patch: Patch) -> None:
    """#6984: one message could not be stored, and those before it are stored once more."""
    turn = TimerWheel.turn
    delivered: list[Any] = []

    def again(self: TimerWheel, now_ms: int) -> Turn:
        append = self._outlet.append
        delivered.clear()
        done = turn(self, now_ms)
        if done.fault is not None:
            for message in delivered:
                append(message)
        return done

    def first(self: TimerWheel, status: int, turn: Turn) -> None:
        append = self._outlet.append
        noting = replace(self._outlet, append=lambda m: (delivered.append(m), append(m))[1])
        wheel = TimerWheel(self.clockwork, self._room, noting)
        deliver_first(wheel, status, turn)

    deliver_first = TimerWheel._deliver_first
    patch.setattr(TimerWheel, "turn", again)
    patch.setattr(TimerWheel, "_deliver_first", first)


def numbers_ahead_of_the_flush(patch: Patch) -> None:
    """Slots count as delivered while their deliveries are in memory only."""
    patch.setattr(
        TimerStore,
        "checkpoint",
        lambda self: self._wheel and self._checkpoint_now(self._wheel.clockwork),
    )


def progress_without_its_deliveries(patch: Patch) -> None:
    """Progress that reached the disk is believed, though the log it speaks of did not."""
    progress = TimerStore._progress

    def forgetful(self: TimerStore, clockwork: Any) -> Progress:
        return replace(progress(self, clockwork), log_end=0)

    patch.setattr(TimerStore, "_progress", forgetful)


def read_time_ahead_of_the_slot(patch: Patch) -> None:
    """The slot under way counts as delivered when it is opened."""
    snapshot = TimerStore._snapshot

    def ahead(self: TimerStore, clockwork: Any) -> Any:
        found = snapshot(self, clockwork)
        read_ms = found.check.read_ms + self.config.timer_precision_ms
        return found._replace(check=replace(found.check, read_ms=read_ms))

    patch.setattr(TimerStore, "_snapshot", ahead)


def stale_units_behind_the_end(patch: Patch) -> None:
    """What a crash left behind the end of the timer log is not made zero."""
    end_at = TimerLogFiles.end_at

    def left(self: TimerLogFiles, end: int, *, synced_end: int, is_clean: bool) -> None:
        end_at(self, end, synced_end=synced_end, is_clean=True)

    patch.setattr(TimerLogFiles, "end_at", left)
    patch.setattr(TimerRecovery, "_kept_units", _all_whole_units)


def _all_whole_units(self: TimerRecovery, position: int, taken_end: int) -> Any:
    units = self.files.log.units
    cut = units.place_of(position)
    if not units.first_position <= position <= units.end_position:
        return None
    first = cut
    while units.unit(cut) is not None:
        cut = units.after(cut)
    return _Kept(first, min(cut, units.end_position), 0)


def names_never_synced(patch: Patch) -> None:
    """After a kill the timer log's files are used though their names are not on the platter."""
    patch.setattr(TimerFiles, "distrust_names", lambda self: None)


def timer_log_not_synced(patch: Patch) -> None:
    """The check speaks of units that are in memory only."""
    patch.setattr(TimerLogFiles, "unsynced", lambda self: [])


def a_slot_too_early(patch: Patch) -> None:
    """Slots are let go when they begin, not when they are over."""
    turn = TimerWheel.turn

    def early(self: TimerWheel, now_ms: int) -> Turn:
        return turn(self, now_ms + self.clockwork.wheel.precision_ms)

    patch.setattr(TimerWheel, "turn", early)


def restart_forgets_the_queue(patch: Patch) -> None:
    """Messages stored but not yet taken in when the broker was killed are passed over."""
    clockwork = TimerRecovery._clockwork

    def at_the_end(self: TimerRecovery, read_ms: int, next_offset: int) -> Any:
        return clockwork(self, read_ms, self.queue.end)

    patch.setattr(TimerRecovery, "_clockwork", at_the_end)


TWICE, NEVER, EARLY, BACK = "came twice", "have not come", "came early", "was deleted"
BUGS: dict[str, tuple[Callable[[Patch], None], str]] = {  # with the words it is found by
    bug.__name__: (bug, words)
    for bug, words in (
        (units_past_the_end_of_the_log, TWICE),
        (a_failure_puts_the_whole_batch_again, TWICE),
        (numbers_ahead_of_the_flush, NEVER),
        (progress_without_its_deliveries, NEVER),
        (read_time_ahead_of_the_slot, NEVER),
        (stale_units_behind_the_end, TWICE),
        (names_never_synced, BACK),
        (timer_log_not_synced, NEVER),
        (a_slot_too_early, EARLY),
        (restart_forgets_the_queue, NEVER),
    )
}


def live(seed: int) -> None:
    """A life with sends, deletions, full disks, restarts, kills and power cuts in it."""
    random = Random(seed)
    precision_ms = random.choice([100, 1000])
    changes = {
        "timer_precision_ms": precision_ms,
        "timer_window_slots": random.choice([9, 1000]),
        "flush_interval_ms": random.choice([200, 5000]),
    }
    world = TimerWorld(config_with(**(VALUES | changes)))
    for _ in range(random.randrange(10, 40)):
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                for _ in range(random.choice([1, 5, 30])):
                    world.send(random.randrange(1, 12 * precision_ms))
            case 4:
                world.delete(random.randrange(len(world.due) or 1)) if world.due else None
            case 5 | 6:
                world.advance(random.choice([1, precision_ms // 2, precision_ms, 3 * precision_ms]))
            case 7:
                fail_once(world, random)
            case 8:
                world.disk.write_back(random)
                world.crash(random.choice([CrashMode.KILL, CrashMode.MIXED]), random)
            case 9:
                world.crash(random.choice([CrashMode.KILL, CrashMode.DROP]), random)
    world.advance(15 * precision_ms)
    world.restart()
    world.advance(15 * precision_ms)
    clockwork = world.store.timer.clockwork
    assert clockwork is None or (clockwork.lost, clockwork.ready_count) == (0, 0), "some are lost"
    world.store.stop()


def fail_once(world: TimerWorld, random: Random) -> None:
    """Let the disk be full for a moment, while messages are due."""
    world.clock.advance(random.random())
    world.disk.plant("reserve", DiskFull("full"), after=random.randrange(3))
    while True:
        turn = world.store.timer.turn()
        if turn.fault is not None or not turn.is_more:
            break
    world.disk.heal()
    world.turn()


def test_without_bugs_lives_are_fine() -> None:
    for seed in range(20):
        live(seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    plant, words = BUGS[name]
    plant(monkeypatch)
    for seed in (FOUND_BY.get(name, 0), *range(LIVES_MAX)):
        try:
            live(seed)
        except AssertionError as found:
            assert words in str(found), f"{name} was found by other words"
            say(f"{name}: life {seed}, {str(found)[:90]}")
            return
    pytest.fail(f"{name} was not found in {LIVES_MAX} lives")
