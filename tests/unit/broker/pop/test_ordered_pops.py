"""Pops in order, as requests: one batch of a queue at a time, and nothing out of its turn."""

from __future__ import annotations

from typing import Any

import pytest

from ariane.codes import RequestCode, ResponseCode
from tests.unit.broker.pop.popping import Popped, Popping, ack_fields, bodies, popped_of
from tests.unit.broker.rig import Peer


@pytest.fixture
def broker() -> Popping:
    broker = Popping(queues=2)
    broker.fill(10, queues=1)  # all in queue 0
    return broker


def pop(broker: Popping, count: int = 32, **fields: Any) -> list[Popped]:
    return broker.pop(**{"order": "true", "maxMsgNums": count} | fields)


def counts(broker: Popping, **fields: Any) -> str:
    answer = broker.pop_command(**{"order": "true"} | fields)
    assert answer is not None
    assert answer.ext["reviveQid"] == "999"
    return answer.ext.get("orderCountInfo", "")


def test_a_batch_at_a_time_and_the_next_when_all_is_acknowledged(broker: Popping) -> None:
    lent = pop(broker, 4)
    assert bodies(lent) == [b"m0", b"m1", b"m2", b"m3"]
    assert pop(broker) == []
    for each in reversed(lent):
        assert pop(broker) == []
        assert broker.ack(each).code == 0
    assert bodies(pop(broker, 2)) == [b"m4", b"m5"]


def test_it_comes_again_in_order_when_time_is_up(broker: Popping) -> None:
    assert counts(broker, maxMsgNums=3) == "0 0 0"
    broker.clock.advance(9.99)
    assert pop(broker) == []
    broker.clock.advance(0.01)
    assert counts(broker, maxMsgNums=4) == "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 0"
    broker.clock.advance(10)
    assert bodies(pop(broker, 2)) == [b"m0", b"m1"]
    assert broker.state.topics.get("%RETRY%g_T") is None


def test_only_its_own_queue_waits(broker: Popping) -> None:
    pop(broker, 1)
    broker.send(queue_id=1, body=b"other queue")
    assert bodies(pop(broker)) == [b"other queue"]
    assert len(pop(broker, consumerGroup="h")) == 11


def test_acknowledged_messages_do_not_come_again_with_the_others(broker: Popping) -> None:
    lent = pop(broker, 4)
    broker.ack(lent[1])
    broker.ack(lent[3])
    broker.clock.advance(10)
    assert bodies(pop(broker, 2)) == [b"m0", b"m2"]
    broker.clock.advance(10.1)
    (one,) = pop(broker, 1)
    broker.ack(one)
    again = pop(broker)
    assert bodies(again) == [b"m2", b"m4", b"m5", b"m6", b"m7", b"m8", b"m9"]
    assert broker.batch_ack(again).code == 0
    broker.clock.advance(10.1)
    assert pop(broker) == []


def test_a_lost_answer_is_given_again_to_the_same_attempt(broker: Popping) -> None:
    first = pop(broker, 3, attemptId="a")
    assert pop(broker, 3, attemptId="b") == []
    broker.clock.advance(1)
    second = pop(broker, 3, attemptId="a")
    assert bodies(second) == bodies(first)
    # The handles of the lost answer mean nothing any more, the new ones do.
    assert broker.ack(first[0]).code == 0
    for each in second:
        assert broker.ack(each).code == 0
    assert bodies(pop(broker, 1)) == [b"m3"]


def test_a_repeated_attempt_does_not_wait_for_the_time_to_be_up(broker: Popping) -> None:
    pop(broker, 3, attemptId="a", invisibleTime=3 * 3600 * 1000)
    peer = Peer()
    answer = broker.pop_command(
        peer=peer, order="true", attemptId="a", pollTime=5_000, maxMsgNums=3
    )
    assert answer is not None
    assert len(popped_of(answer)) == 3


def test_the_group_stands_at_the_first_message_not_acknowledged(broker: Popping) -> None:
    lent = pop(broker, 3)
    offsets = broker.state.offsets
    assert offsets.get("T", "g", 0) == 0
    broker.ack(lent[1])
    assert offsets.get("T", "g", 0) == 0
    broker.ack(lent[0])
    assert offsets.get("T", "g", 0) == 2
    broker.ack(lent[2])
    assert offsets.get("T", "g", 0) == 3


def test_who_waits_is_woken_by_the_last_acknowledgement(broker: Popping) -> None:
    lent = pop(broker, 2)
    peer = Peer()
    command = broker.pop_command(peer=peer, order="true", pollTime=8_000, maxMsgNums=1)
    assert command is None
    broker.ack(lent[0])
    broker.clock.advance(0)
    assert peer.sent == []
    broker.ack(lent[1])
    broker.clock.advance(0)
    (answer,) = peer.sent
    assert bodies(popped_of(answer)) == [b"m2"]


def test_who_waits_is_woken_when_time_is_up(broker: Popping) -> None:
    pop(broker, 2)
    peer = Peer()
    assert broker.pop_command(peer=peer, order="true", pollTime=15_000, maxMsgNums=1) is None
    broker.clock.advance(9.99)
    assert peer.sent == []
    broker.clock.advance(0.02)
    (answer,) = peer.sent
    assert bodies(popped_of(answer)) == [b"m0"]


def test_a_message_can_be_kept_or_given_back_sooner(broker: Popping) -> None:
    one, two = pop(broker, 2)
    broker.ack(two)
    answer = broker.change(one, 30_000)
    assert (answer.code, answer.ext) == (
        0,
        {"popTime": str(one.popped_ms), "invisibleTime": "30000", "reviveQid": "999"},
    )
    broker.clock.advance(29)
    assert pop(broker) == []
    broker.change(one, 100)
    broker.clock.advance(0.1)
    assert bodies(pop(broker, 1)) == [b"m0"]


def test_one_that_is_out_no_more_cannot_be_kept(broker: Popping) -> None:
    _, two = pop(broker, 2)
    broker.clock.advance(10)
    (again,) = pop(broker, 1)
    answer = broker.change(two, 30_000)
    assert answer.code == ResponseCode.NO_MESSAGE
    assert "not out under this handle" in str(answer.remark)
    broker.ack(again)
    assert bodies(pop(broker, 1)) == [b"m1"]


def test_a_waiting_pop_hears_of_a_shorter_time(broker: Popping) -> None:
    (one,) = pop(broker, 1, invisibleTime=3_600_000)
    peer = Peer()
    assert broker.pop_command(peer=peer, order="true", pollTime=15_000, maxMsgNums=1) is None
    broker.change(one, 1_000)
    broker.clock.advance(1.01)
    assert len(peer.sent) == 1


def test_acknowledgements_that_are_refused_or_ignored(broker: Popping) -> None:
    lent = pop(broker, 2)
    fields = ack_fields(lent[0]) | {"offset": 7}
    answer = broker.call(RequestCode.ACK_MESSAGE, fields)
    assert answer is not None
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    broker.clock.advance(10)
    again = pop(broker, 2)
    assert broker.ack(lent[0]).code == 0  # of the earlier delivery: ignored
    assert broker.state.offsets.get("T", "g", 0) == 0
    for each in again:
        broker.ack(each)
    assert broker.ack(again[0]).code == 0  # long done
    assert broker.change(again[0], 1_000).code == 0


def test_a_reset_frees_the_queue(broker: Popping) -> None:
    pop(broker, 2, invisibleTime=3_600_000)
    broker.state.offsets.reset("T", "g", {0: 5})
    assert bodies(pop(broker, 1)) == [b"m5"]


def test_many_rounds_without_the_first_being_acknowledged(broker: Popping) -> None:
    for n in range(10, 200):
        broker.send(queue_id=0, body=b"m%d" % n)
    seen: list[bytes] = []
    for _ in range(6):
        lent = pop(broker)
        assert lent[0].body == b"m0"
        for each in lent[1:]:
            broker.ack(each)
        seen += bodies(lent[1:])
        broker.clock.advance(10.1)
    assert len(seen) == len(set(seen)) == 63  # then the first one is waited for
    (first,) = pop(broker)
    broker.ack(first)
    assert bodies(pop(broker, 1)) == [b"m64"]


def test_notifications_say_nothing_of_a_blocked_queue(broker: Popping) -> None:
    fields = {
        "consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 0, "bornTime": 0,
        "order": "true",
    }  # fmt: skip
    (one,) = pop(broker, 1, attemptId="a")
    for given, expected in (({}, "false"), ({"attemptId": "a"}, "true")):
        answer = broker.call(RequestCode.NOTIFICATION, fields | given)
        assert answer is not None
        assert answer.ext["hasMsg"] == expected
    broker.ack(one)
    answer = broker.call(RequestCode.NOTIFICATION, fields)
    assert answer is not None
    assert answer.ext["hasMsg"] == "true"


# Kills.


def test_what_is_out_and_acknowledged_survives_a_kill(broker: Popping) -> None:
    lent = pop(broker, 4)
    broker.ack(lent[0])
    broker.ack(lent[2])
    broker.clock.advance(3)
    after = broker.killed()
    assert pop(after) == []  # still blocked
    assert after.state.offsets.get("T", "g", 0) == 1
    broker.ack(lent[1])
    after.ack(lent[1])
    after.clock.advance(7)
    assert bodies(pop(after, 2)) == [b"m3", b"m4"]


@pytest.mark.parametrize("is_saved", [True, False])
def test_acknowledged_is_acknowledged_whatever_was_saved(broker: Popping, is_saved: bool) -> None:
    for each in pop(broker, 4):
        broker.ack(each)
    if is_saved:
        broker.save()
    for each in pop(broker, 2):
        broker.ack(each)
    after = broker.killed()
    assert bodies(pop(after, 1)) == [b"m6"]
    again = after.killed()
    assert pop(again) == []
    again.clock.advance(10.1)
    assert bodies(pop(again, 2)) == [b"m6", b"m7"]
