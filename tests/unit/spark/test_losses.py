"""The data-loss rules, one by one."""

import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import DataLoss
from ariane.spark.bytes.contract import QueueBounds, QueueRange
from ariane.spark.losses import LossRules
from tests.unit.spark.fakes import A0

STRICT, LENIENT = LossRules(fails=True), LossRules(fails=False)


def of(start: int, end: int) -> QueueRange:
    return QueueRange("orders", "broker-a", 0, start, end)


def test_what_is_there_is_read_whole() -> None:
    assert STRICT.range_of(A0, 5, 9, QueueBounds(5, 9)) == of(5, 9)


def test_a_start_below_the_first_offset_names_all_there_is_to_know() -> None:
    with pytest.raises(DataLoss) as caught:
        STRICT.range_of(A0, 3, 9, QueueBounds(5, 9))
    loss = pickle.loads(pickle.dumps(caught.value))  # as it comes back from an executor
    assert (loss.topic, loss.broker, loss.queue_id) == ("orders", "broker-a", 0)
    assert (loss.wanted, loss.available) == (3, 5)
    for word in ("orders", "broker-a", "queue 0", "3", "5", "2 messages", "failOnDataLoss=false"):
        assert word in str(loss)


def test_a_start_below_the_first_offset_moves_up_when_loss_is_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "ariane.spark"):
        assert LENIENT.range_of(A0, 3, 9, QueueBounds(5, 9)) == of(5, 9)
    assert "count=2" in caplog.text


def test_a_range_that_is_gone_altogether_is_empty_and_not_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "ariane.spark"):
        assert LENIENT.range_of(A0, 3, 9, QueueBounds(20, 30)) == of(9, 9)
    assert "count=6" in caplog.text


@pytest.mark.parametrize("rules", [STRICT, LENIENT])
def test_an_end_above_the_queues_end_is_always_an_error(rules: LossRules) -> None:
    with pytest.raises(DataLoss, match="deleted and created again") as caught:
        rules.range_of(A0, 5, 10, QueueBounds(0, 9))
    assert (caught.value.wanted, caught.value.available) == (10, 9)
    with pytest.raises(DataLoss) as caught:
        rules.range_of(A0, 12, 12, QueueBounds(0, 9))
    assert (caught.value.wanted, caught.value.available) == (12, 9)


def test_nothing_wanted_is_nothing_lost() -> None:
    assert STRICT.range_of(A0, 3, 3, QueueBounds(5, 9)) == of(3, 3)


def test_a_removed_queue_is_loss(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLoss, match=r"wanted offset 7.*queue was removed"):
        STRICT.removed(A0, 7)
    with caplog.at_level(logging.WARNING, "ariane.spark"):
        LENIENT.removed(A0, 7)
    assert "wanted=7" in caplog.text


@given(*(st.integers(0, 20) for _ in range(4)))
def test_never_anything_outside_of_the_range(a: int, b: int, c: int, d: int) -> None:
    start, end = sorted((a, b))
    first, stop = sorted((c, d))
    try:
        found = LENIENT.range_of(A0, start, end, QueueBounds(first, stop))
    except DataLoss:
        assert end > stop
    else:
        there = set(range(first, stop)) & set(range(start, end))
        assert set(range(found.start, found.end)) == there
        assert start <= found.start <= found.end <= end
