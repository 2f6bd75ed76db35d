"""Percentiles against a sorted list."""

import random

import pytest

from ariane.cli.histogram import Histogram


def test_small_values_are_exact() -> None:
    histogram = Histogram()
    for value in range(1, 51):
        histogram.record(value)
    assert histogram.percentile(50) == 25
    assert histogram.percentile(100) == 50
    assert histogram.max_us == 50


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 99.9, 100])
def test_a_percentile_is_right_to_four_percent(percent: float) -> None:
    dice = random.Random(7)
    values = sorted(int(dice.lognormvariate(6, 2)) for _ in range(20_000))
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    expected = values[max(round(len(values) * percent / 100) - 1, 0)]
    assert expected <= histogram.percentile(percent) <= expected * 1.04 + 1


def test_nothing_recorded_is_all_zero() -> None:
    assert set(Histogram().summary_ms().values()) == {0.0}
