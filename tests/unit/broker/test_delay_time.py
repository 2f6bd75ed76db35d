"""The clock of delayed messages, and what of their queues is left to deliver."""

from __future__ import annotations

import pytest

from ariane.broker.delay_progress import OPEN, Range, ranges_cut, ranges_left
from ariane.broker.delay_time import Arrivals, DelayClock

HOUR_MS = 3_600_000

# (seconds passed, milliseconds the wall clock was set by meanwhile) -> (time, correction)
TRANSCRIPT = [
    (0.0, 0, 1_000_000, 0),
    (1.0, 0, 1_001_000, 0),
    (1.0, 20, 1_002_020, 0),  # a clock being adjusted
    (1.0, 5_000, 1_008_020, 0),  # set ahead: believed
    (1.0, -4_000, 1_009_020, 4_000),  # set back: time goes on
    (1.0, -1_000, 1_010_020, 5_000),
    (1.0, 2_000, 1_011_020, 3_000),  # set ahead again, by less
    (1.0, 9_000, 1_018_020, 0),  # and by more
]


def test_the_clock_goes_on_when_it_is_set_back() -> None:
    wall_ms, monotonic_s = 1_000_000, 50.0
    clock = DelayClock(wall_ms, monotonic_s, newest_ms=0, longest_ms=HOUR_MS)
    for seconds, set_by_ms, expected_ms, correction_ms in TRANSCRIPT:
        monotonic_s += seconds
        wall_ms += round(seconds * 1000) + set_by_ms
        assert clock.tick(wall_ms, monotonic_s) == expected_ms
        assert clock.correction_ms == correction_ms


def test_a_log_from_the_future_sets_the_clock_at_the_start() -> None:
    clock = DelayClock(1_000_000, 0.0, newest_ms=1_030_000, longest_ms=HOUR_MS)
    assert clock.tick(1_002_000, 2.0) == 1_032_000


def test_the_correction_ends_when_nothing_stamped_before_can_be_left() -> None:
    clock = DelayClock(1_000_000, 0.0, newest_ms=0, longest_ms=10_000)
    clock.tick(940_001, 0.001)  # a minute back
    assert clock.correction_ms == 60_000
    assert clock.tick(1_010_001, 70.001) == 1_070_001  # caught up, and ten seconds more
    assert clock.tick(1_010_002, 70.002) == 1_010_002


def test_arrivals_are_due_their_delay_later() -> None:
    arrivals = Arrivals(5, delay_ms=1000)
    arrivals.note(5, 0)
    arrivals.note(7, 100)
    arrivals.note(7, 500)
    arrivals.note(8, 600)
    assert arrivals.due_end(1099) == 5
    assert arrivals.due_end(1100) == 7
    assert arrivals.due_end(1600) == 8
    arrivals.note(9, 1700)
    assert arrivals.due_end(2699) == 8
    assert arrivals.due_end(2700) == 9


def test_many_arrivals_are_remembered_coarsely_and_never_early() -> None:
    arrivals = Arrivals(0, delay_ms=100_000)  # a grain is a second
    for i in range(5000):
        arrivals.note(i + 1, i)
    assert len(arrivals._seen) == 5
    for i in range(5000):
        due_end = arrivals.due_end(100_000 + i)
        assert i - 1000 < due_end <= i + 1


LEFT: dict[str, tuple[list[Range | None], int, int, int, list[Range]]] = {
    "never noted": ([None] * 4, 3, 0, 9, [(3, OPEN)]),
    "one torn": ([(2, 5), None, (0, 0), (0, 0)], 1, 0, 9, [(1, OPEN)]),
    "noted": ([(7, OPEN), (0, 0), (0, 0), (0, 0)], 3, 0, 9, [(7, OPEN)]),
    "two runs": ([(2, 5), (7, OPEN), (0, 0), (0, 0)], 2, 0, 9, [(2, 5), (7, OPEN)]),
    "one run done": ([(5, 5), (7, OPEN), (0, 0), (0, 0)], 2, 0, 9, [(7, OPEN)]),
    "saved more": ([(2, 5), (7, OPEN), (0, 0), (0, 0)], 8, 0, 9, [(8, OPEN)]),
    "queue begins later": ([(2, OPEN), (0, 0), (0, 0), (0, 0)], 2, 6, 9, [(6, OPEN)]),
    "queue ends before": ([None] * 4, 77, 0, 9, [(9, OPEN)]),
    "queue lost its end": ([(12, OPEN), (0, 0), (0, 0), (0, 0)], 0, 0, 9, [(9, OPEN)]),
    "empty": ([None] * 4, 0, 0, 0, [(0, OPEN)]),
}


@pytest.mark.parametrize(("noted", "saved", "first", "end", "left"), LEFT.values(), ids=LEFT)
def test_what_is_left(
    noted: list[Range | None], saved: int, first: int, end: int, left: list[Range]
) -> None:
    assert ranges_left(noted, saved, first, end) == left


CUT: dict[str, tuple[list[Range], list[int], list[Range]]] = {
    "in order": ([(3, OPEN)], [], [(3, OPEN)]),
    "one step": ([(3, OPEN)], [7], [(3, 7), (7, OPEN)]),
    "behind": ([(3, OPEN)], [3, 2], [(3, OPEN)]),
    "more than places": ([(0, OPEN)], [1, 2, 3, 4], [(0, 1), (1, 2), (2, 3), (3, OPEN)]),
    "where it was cut before": ([(2, 5), (7, OPEN)], [7, 9], [(2, 5), (7, 9), (9, OPEN)]),
    "within a former run": ([(2, 5), (7, OPEN)], [3], [(2, 3), (3, 5), (7, OPEN)]),
}


@pytest.mark.parametrize(("ranges", "steps", "cut"), CUT.values(), ids=CUT)
def test_queues_are_cut_where_due_times_step_back(
    ranges: list[Range], steps: list[int], cut: list[Range]
) -> None:
    assert ranges_cut(ranges, steps) == cut
