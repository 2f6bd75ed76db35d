"""Bugs of brokers that delay messages, put back into ours for the length of a test, and found.

The numbers are those of Apache RocketMQ's issues where a bug of the kind was told.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from ariane.broker import delay_progress, schedule
from ariane.broker.delay_progress import DelayProgress, Run
from ariane.broker.delay_time import DelayClock
from ariane.broker.placing import place
from ariane.broker.state import BrokerState
from ariane.disk import CrashMode
from ariane.errors import StoreError
from ariane.store.deliveries import Slots
from ariane.store.messages import NewMessage
from tests.planted.finding import told_by
from tests.unit.broker import test_schedule as scenes
from tests.unit.broker.test_schedule import started

Patch = pytest.MonkeyPatch


def progress_ahead_of_the_log(patch: Patch) -> None:
    """#678, #10073, of progress: what is saved is ahead of what is on the platter."""

    def observe(self: DelayProgress) -> None:
        self._safe = self.offsets()
        self.file.mark()

    patch.setattr(DelayProgress, "observe", observe)


class TrustingSlots(Slots):
    """#10666, of progress: what was noted for a tail of the log that is gone is believed."""

    def get(self, slot: int, log_end: int) -> tuple[int, int] | None:
        return super().get(slot, 1 << 62)


def stale_progress_is_believed(patch: Patch) -> None:
    """#10666: see `TrustingSlots`."""
    patch.setattr(delay_progress, "Slots", TrustingSlots)


def a_failed_delivery_is_passed_over(patch: Patch) -> None:
    """#10985: what could not be placed counts as delivered."""

    def place_or_not(state: BrokerState, message: NewMessage) -> None:
        with suppress(StoreError):
            place(state, message)

    patch.setattr(schedule, "place", place_or_not)


def deliveries_are_not_noted(patch: Patch) -> None:
    """As where progress is only written every ten seconds: a kill repeats what came since."""

    def advanced(self: DelayProgress, run: Run, next_offset: int) -> None:
        run.next = next_offset

    patch.setattr(DelayProgress, "advanced", advanced)


def a_clock_set_back_is_believed(patch: Patch) -> None:
    """A clock set back by an hour keeps everything back for an hour."""
    patch.setattr(DelayClock, "tick", lambda self, wall_ms, monotonic_s: wall_ms)


def a_shorter_level_waits_for_the_longer(patch: Patch) -> None:
    """The front of a queue decides for all of it, though its level was given a shorter delay."""
    patch.setattr(delay_progress, "descents", lambda queue, first, end: [])


def power_cut() -> None:
    for seed in range(5):
        scenes.test_a_power_cut_may_repeat_but_never_lose_what_was_safe(CrashMode.DROP, seed)


def a_store_that_says_no_once() -> None:
    with Patch.context() as patch:
        scenes.test_a_store_that_says_no_once_is_asked_again(started(), patch)


def a_kill_after_one_delivery() -> None:
    rig = started()
    scenes.send(rig, "a", 1)
    rig.clock.advance(1)
    rig = scenes.killed(rig)
    rig.clock.advance(1)
    assert scenes.names(rig) == ["a"]


BUGS: dict[str, tuple[Callable[[Patch], None], Callable[[], None], str]] = {
    "progress ahead of the log": (progress_ahead_of_the_log, power_cut, "== set(range(10))"),
    "stale progress is believed": (
        stale_progress_is_believed,
        lambda: scenes.test_progress_that_is_ahead_of_the_log_is_not_believed(started()),
        'assert names(rig) == ["a"]',
    ),
    "a failed delivery is passed over": (
        a_failed_delivery_is_passed_over,
        a_store_that_says_no_once,
        'assert names(rig) == ["a"]',
    ),
    "deliveries are not noted": (
        deliveries_are_not_noted,
        a_kill_after_one_delivery,
        "assert ['a', 'a'] == ['a']",
    ),
    "a clock set back is believed": (
        a_clock_set_back_is_believed,
        lambda: scenes.test_a_clock_set_back_makes_nothing_early_or_late(started()),
        'assert names(rig) == ["before"]',
    ),
    "a shorter level waits for the longer": (
        a_shorter_level_waits_for_the_longer,
        lambda: scenes.test_a_level_made_shorter_does_not_wait_for_what_came_before(started()),
        'assert names(rig) == ["new 1", "new 2"]',
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch) -> None:
    plant, scene, words = BUGS[name]
    scene()
    plant(monkeypatch)
    with pytest.raises(AssertionError) as found:
        scene()
    assert words in told_by(found)
