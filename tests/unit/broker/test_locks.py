"""Leases on queues: one owner at a time, for a minute at most."""

from __future__ import annotations

import pytest

from ariane.broker.locks import QueueLocks
from ariane.clock import ManualClock
from ariane.protocol.bodies import MessageQueue

QUEUES = [MessageQueue(broker_name="broker-a", queue_id=number, topic="T") for number in range(3)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock)


def test_only_what_is_free_or_ones_own_is_given(locks: QueueLocks) -> None:
    assert locks.lock("g", "one", QUEUES[:2]) == QUEUES[:2]
    assert locks.lock("g", "two", QUEUES) == QUEUES[2:]
    assert locks.lock("g", "one", QUEUES) == QUEUES[:2]
    assert locks.lock("other group", "two", QUEUES) == QUEUES


def test_a_lease_ends_a_minute_after_it_was_last_renewed(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "one", QUEUES)
    clock.advance(40)
    locks.lock("g", "one", QUEUES[:1])
    clock.advance(20)
    assert locks.lock("g", "two", QUEUES) == QUEUES[1:]
    clock.advance(40)
    assert locks.lock("g", "two", QUEUES) == QUEUES


def test_only_the_owner_can_unlock(locks: QueueLocks) -> None:
    locks.lock("g", "one", QUEUES)
    locks.unlock("g", "two", QUEUES)
    assert locks.lock("g", "two", QUEUES) == []
    locks.unlock("g", "one", QUEUES[:1])
    assert locks.lock("g", "two", QUEUES) == QUEUES[:1]


def test_the_wall_clock_may_jump(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "one", QUEUES)
    clock.step_wall(3_600_000)
    assert locks.lock("g", "two", QUEUES) == []


def test_forgetting_keeps_what_still_runs(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "one", QUEUES[:1])
    clock.advance(30)
    locks.lock("g", "one", QUEUES[1:])
    clock.advance(30)
    locks.forget_expired()
    assert locks.lock("g", "two", QUEUES) == QUEUES[:1]


def test_there_is_an_end_to_leases_and_who_holds_one_keeps_it(
    locks: QueueLocks, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.broker.locks.LEASES_MAX", 2)
    assert locks.lock("g", "one", QUEUES) == QUEUES[:2]
    assert locks.lock("other", "two", QUEUES) == []
    assert not locks.is_held("other")
    assert locks.lock("g", "one", QUEUES[:2]) == QUEUES[:2]
    locks.unlock("g", "one", QUEUES[:1])
    assert locks.lock("other", "two", QUEUES) == QUEUES[:1]
    clock.advance(61)
    locks.forget_expired()
    assert locks.lock("third", "three", QUEUES) == QUEUES[:2]
