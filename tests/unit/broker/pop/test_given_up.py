"""Lent as often as the group says and never acknowledged: a dead letter, and exactly one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ariane.config import BrokerConfig
from ariane.errors import StoreError
from ariane.protocol.bodies import SubscriptionGroupConfig
from tests.unit.broker.pop.popping import Popping, bodies
from tests.unit.broker.pop.test_pop import AFTER_S

DEAD = "%DLQ%g"
LENT_MAX = 3


def limited(broker: Popping, retries: int = LENT_MAX - 1) -> Popping:
    broker.state.groups.put(SubscriptionGroupConfig(name="g", retry_times_max=retries))
    return broker


def lend_out(broker: Popping, times: int = LENT_MAX) -> None:
    """Pop everything and acknowledge nothing, so often."""
    for _ in range(times):
        broker.pop()
        broker.clock.advance(AFTER_S + 1)


@pytest.mark.parametrize("separate", [False, True])
def test_a_message_nobody_acknowledges_becomes_a_dead_letter(*, separate: bool) -> None:
    broker = limited(Popping(BrokerConfig(separate_retry_queues=separate)))
    sent = broker.fill(3)
    for times in range(LENT_MAX):
        lent = broker.pop()
        assert sorted(bodies(lent)) == sorted(sent)
        assert {one.message.reconsume_times for one in lent} == {times}
        assert broker.state.topics.get(DEAD) is None or broker.stored(DEAD) == []
        broker.clock.advance(AFTER_S + 1)
    assert broker.pop() == []
    dead = broker.stored(DEAD)
    assert sorted(message.stored_body for message in dead) == sorted(sent)
    assert {message.reconsume_times for message in dead} == {LENT_MAX}
    assert {message.properties["RETRY_TOPIC"] for message in dead} == {"T"}
    assert all(message.properties["ORIGIN_MESSAGE_ID"] for message in dead)
    broker.clock.advance(3600)
    assert broker.pop() == []
    assert len(broker.stored(DEAD)) == len(sent)


def test_what_is_acknowledged_in_the_end_is_no_dead_letter() -> None:
    broker = limited(Popping())
    broker.fill(2)
    lend_out(broker, LENT_MAX - 1)
    last = broker.pop()
    broker.ack(last[0])
    broker.clock.advance(AFTER_S + 1)
    assert [message.stored_body for message in broker.stored(DEAD)] == [last[1].body]


def test_the_group_may_say_otherwise_meanwhile() -> None:
    broker = limited(Popping(), 9)
    broker.fill(1)
    lend_out(broker, 3)
    limited(broker, 3)
    lend_out(broker, 1)
    assert len(broker.stored(DEAD)) == 1


def test_dead_letters_that_nobody_may_write_are_lent_on() -> None:
    broker = limited(Popping(), 0)
    topics = broker.state.topics
    dead = topics.ensure_dead_letter(broker.state.groups.for_consumer("g"))
    topics.put(replace(dead, permission=4))
    broker.fill(1)
    lend_out(broker, 4)
    assert len(broker.pop()) == 1


def test_a_kill_behind_the_dead_letter_makes_no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = limited(Popping(), 0)
    broker.fill(1)
    broker.pop()

    def refuse(note: object, *rest: object) -> object:
        raise StoreError("the process is about to die")

    monkeypatch.setattr(broker.state.pop.journal, "append", refuse)
    broker.clock.advance(AFTER_S + 1)
    assert len(broker.stored(DEAD)) == 1
    after = broker.killed()
    after.clock.advance(60)
    assert after.pop() == []
    assert len(after.stored(DEAD)) == 1
