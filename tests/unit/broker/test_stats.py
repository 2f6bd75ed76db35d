"""Counts and rates by sampling, on a clock that is told."""

from __future__ import annotations

import pytest

from ariane.broker.stats import GOT_TOTAL, PUT_TOTAL, SLICE, Stats
from ariane.clock import ManualClock, Timers


class World:
    """Counts that are sampled."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.clock = ManualClock(wall_ms=wall_ms)
        self.stats = Stats(self.clock)
        timers = Timers(self.clock)
        self.clock.timers.append(timers)
        self.stats.start(timers)

    def pass_a_day(self) -> None:
        """Let the wall clock jump to tomorrow, and a sample be taken."""
        self.clock.step_wall(86_400_000)
        self.clock.advance(1)

    def load(self, seconds: int, messages_per_s: int) -> None:
        """Let the same number of messages of 100 bytes come in and go out each second."""
        for _ in range(seconds):
            self.stats.put_to("T").add(messages_per_s, 100 * messages_per_s)
            self.stats.got_by("T", "g").add(messages_per_s, 100 * messages_per_s)
            self.clock.advance(1)


@pytest.fixture
def world() -> World:
    return World()


def test_a_steady_load_shows_as_its_rate_in_every_window(world: World) -> None:
    world.load(7200, 50)
    for rate in world.stats.rates("T"):
        assert rate.messages_per_s == pytest.approx(50, rel=0.02)
        assert rate.bytes_per_s == pytest.approx(5000, rel=0.02)
    minute, hour, day = world.stats.rates("T@g")
    assert (minute.messages, hour.messages, day.messages) == (3000, 180_000, 360_000)
    assert world.stats.put_per_s() == pytest.approx([50, 50, 50])
    assert world.stats.got_per_s() == pytest.approx([50, 50, 50])
    assert world.stats.rates(PUT_TOTAL)[0].messages == 3000
    assert world.stats.rates(GOT_TOTAL)[0].messages == 3000


def test_a_load_that_ended_leaves_the_windows_one_by_one(world: World) -> None:
    world.load(60, 10)
    world.clock.advance(30)
    assert world.stats.put_per_s() == pytest.approx([0, 300 / 60, 600 / 90], rel=0.05)
    world.clock.advance(120)
    assert world.stats.rates("T")[0].messages == 0
    assert world.stats.put_total().messages == 600


def test_what_was_never_counted_has_no_rate(world: World) -> None:
    world.clock.advance(100)
    assert [rate.messages_per_s for rate in world.stats.rates("nothing")] == [0, 0, 0]
    assert world.stats.put_per_s() == [0, 0, 0]


def test_a_topic_born_between_samples_counts_from_its_birth(world: World) -> None:
    world.clock.advance(95)
    world.stats.put_to("late").add(40, 400)
    world.clock.advance(5)
    minute = world.stats.rates("late")[0]
    assert (minute.messages, minute.seconds) == (40, 10)


def test_counts_kept_elsewhere_are_brought_in_before_each_sample(world: World) -> None:
    lane = {"T": 0}

    def refresh() -> None:
        world.stats.put_to("T").messages = lane["T"]

    world.stats.refresh.append(refresh)
    lane["T"] = 1000
    world.clock.advance(10)
    assert world.stats.rates("T")[0].messages == 1000
    lane["T"] = 1500
    assert world.stats.put_total().messages == 1500


def test_many_topics_are_sampled_by_slices(world: World) -> None:
    for number in range(2 * SLICE + 1):
        world.stats.put_to(f"T{number}").add(number, 0)
    world.clock.advance(10)
    minutes = [world.stats.rates(f"T{number}")[0] for number in range(2 * SLICE + 1)]
    assert [minute.messages for minute in minutes] == list(range(2 * SLICE + 1))


def test_a_deleted_topic_stays_in_the_totals(world: World) -> None:
    world.load(10, 5)
    world.stats.forget_topic("T")
    world.clock.advance(20)
    assert world.stats.put_total().messages == 50
    assert world.stats.got_total().messages == 50
    assert world.stats.rates("T")[0].messages == 0
    assert world.stats.put == {}
    assert world.stats.got == {}


def test_each_morning_the_totals_are_marked(world: World) -> None:
    world.load(10, 5)
    assert world.stats.put_marks.today == 0
    world.pass_a_day()
    assert (world.stats.put_marks.yesterday, world.stats.put_marks.today) == (0, 50)
    world.load(10, 1)
    world.pass_a_day()
    assert (world.stats.got_marks.yesterday, world.stats.got_marks.today) == (50, 60)
