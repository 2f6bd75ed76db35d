"""The latency table, and what it makes of a choice between queues."""

import pytest

from ariane.client.faults import FaultTable, avoid_ms_of, choose

AVOIDED = {
    0: 0,
    49: 0,
    100: 0,
    549: 0,
    550: 2_000,
    1_799: 2_000,
    1_800: 5_000,
    3_000: 6_000,
    5_000: 10_000,
    10_000: 10_000,
    15_000: 30_000,
    99_000: 30_000,
}


@pytest.mark.parametrize(("latency_ms", "avoid_ms"), AVOIDED.items())
def test_slower_answers_are_avoided_longer(latency_ms: int, avoid_ms: int) -> None:
    assert avoid_ms_of(latency_ms) == avoid_ms


BROKERS = ["a", "a", "b", "b"]  # of the queues to choose from


def test_queues_take_turns() -> None:
    chosen = [choose(BROKERS, turn, FaultTable(), now_s=0) for turn in range(5)]
    assert chosen == [0, 1, 2, 3, 0]


def test_a_retry_goes_to_another_broker() -> None:
    for turn in range(4):
        assert choose(BROKERS, turn, FaultTable(), now_s=0, last_broker="a") in (2, 3)


def test_a_retry_with_one_broker_takes_its_next_queue() -> None:
    assert choose(["a", "a"], 1, FaultTable(), now_s=0, last_broker="a") == 1


def test_a_failed_broker_is_passed_over_until_its_time_is_up() -> None:
    faults = FaultTable()
    assert not faults
    faults.failed("a", now_s=100)
    assert faults
    assert {choose(BROKERS, turn, faults, now_s=109) for turn in range(4)} == {2, 3}
    assert choose(BROKERS, 0, faults, now_s=110) == 0


def test_a_slow_answer_counts_and_a_quick_one_forgives() -> None:
    faults = FaultTable()
    faults.answered("a", 2.0, now_s=0)
    assert not faults.is_usable("a", now_s=4.9)
    faults.answered("a", 0.01, now_s=4.9)
    assert faults.is_usable("a", now_s=4.9)
    assert not faults


def test_when_all_have_failed_somebody_is_chosen_all_the_same() -> None:
    faults = FaultTable()
    for broker in ("a", "b"):
        faults.failed(broker, now_s=0)
    assert choose(BROKERS, 0, faults, now_s=1) == 0
    assert choose(BROKERS, 0, faults, now_s=1, last_broker="a") == 2
