"""Pops and notifications that wait: who is woken by what, in which order, and when time is up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from ariane.broker.pop.polling import SLICE
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from tests.unit.broker.pop.popping import Popping, bodies, popped_of
from tests.unit.broker.rig import SMALL_STORE, Peer, TickingClock, pull_fields


@pytest.fixture
def broker() -> Popping:
    return Popping()


def wait(broker: Popping, peer: Peer | None = None, **fields: Any) -> Peer:
    """A pop that finds nothing, and the connection it waits on."""
    peer = peer or Peer()
    assert broker.pop_command(peer=peer, **{"pollTime": 15_000} | fields) is None
    return peer


def notice(broker: Popping, peer: Peer | None = None, **fields: Any) -> Any:
    given = {
        "consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 15_000, "bornTime": 0,
    } | fields  # fmt: skip
    return broker.call(RequestCode.NOTIFICATION, given, peer=peer)


def answered(peer: Peer) -> list[bytes]:
    return [body for answer in peer.sent for body in bodies(popped_of(answer))]


def waiting(broker: Popping, **fields: Any) -> int:
    given = {"consumerGroup": "g", "topic": "T", "queueId": -1} | fields
    answer = broker.call(RequestCode.POLLING_INFO, given)
    assert answer is not None
    assert answer.code == 0
    return int(answer.ext["pollingNum"])


def test_a_message_wakes_who_waits_for_any_queue_or_for_its_own(broker: Popping) -> None:
    any_queue, own, other = wait(broker), wait(broker, queueId=1), wait(broker, queueId=0)
    assert waiting(broker) == waiting(broker, queueId=1) == 1
    broker.send(queue_id=1, body=b"one")
    broker.send(queue_id=1, body=b"two")
    broker.clock.advance(0)
    assert sorted(answered(any_queue) + answered(own)) == [b"one", b"two"]
    assert answered(other) == []
    assert waiting(broker, queueId=0) == 1


def test_the_first_to_come_are_served_first(broker: Popping) -> None:
    peers = [wait(broker, maxMsgNums=1) for _ in range(5)]
    broker.fill(3)
    broker.clock.advance(0)
    assert [len(peer.sent) for peer in peers] == [1, 1, 1, 0, 0]
    broker.fill(1)
    broker.clock.advance(0)
    assert [len(peer.sent) for peer in peers] == [1, 1, 1, 1, 0]


def test_a_crowd_is_served_in_slices_in_order_and_nobody_twice() -> None:
    broker = Popping(clock=TickingClock())
    peers = [wait(broker, maxMsgNums=1) for _ in range(3 * SLICE)]
    broker.fill(2 * SLICE)
    turns = [[]]
    for _ in range(4):
        broker.timers.run_due()
        turns.append([len(peer.sent) for peer in peers])
        peers[2 * SLICE - 1].close()
    assert turns[1] == [1] * SLICE + [0] * 2 * SLICE
    assert turns[-1] == [1] * (2 * SLICE - 1) + [0, 1] + [0] * (SLICE - 1)


def hold(broker: Popping, code: RequestCode, **fields: Any) -> Peer:
    """A pop or a notification that waits."""
    peer = Peer()
    if code is RequestCode.POP_MESSAGE:
        return wait(broker, peer, **fields)
    assert notice(broker, peer, **fields) is None
    return peer


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
def test_a_crowd_with_an_attempt_id_each_is_looked_at_once(code: RequestCode) -> None:
    broker = Popping(clock=TickingClock())
    broker.topic("U", 1)
    for number in range(3 * SLICE):
        hold(broker, code, queueId=0, attemptId=f"a{number}")
    bystander = hold(broker, code, topic="U")
    broker.send(queue_id=1)  # not for the crowd
    broker.send("U", body=b"u")
    broker.timers.run_due()
    assert [answer.code for answer in bystander.sent] == [0]


def test_a_crowd_whose_time_is_up_is_told_in_slices() -> None:
    broker = Popping(clock=TickingClock())
    peers = [wait(broker, pollTime=1_000) for _ in range(2 * SLICE + 1)]
    broker.clock.pass_by(2.0)
    counts = [0]
    while counts[-1] < len(peers):
        broker.timers.run_due()
        counts.append(sum(len(peer.sent) for peer in peers))
    assert max(after - before for before, after in pairwise(counts)) == SLICE


def test_time_is_up(broker: Popping) -> None:
    born_ms = broker.clock.wall_ms() - 5_000
    peer = wait(broker, bornTime=born_ms)
    broker.clock.advance(9.9)
    assert peer.sent == []
    broker.clock.advance(0.2)
    (answer,) = peer.sent
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.ext.keys()
    assert waiting(broker) == 0
    broker.fill(1)
    broker.clock.advance(1)
    assert len(peer.sent) == 1
    assert len(broker.pop()) == 1  # nothing was lent to who had gone


def test_what_comes_back_wakes_who_waits(broker: Popping) -> None:
    broker.fill(1)
    broker.pop()
    peer = wait(broker)
    broker.clock.advance(10.3)
    (answer,) = peer.sent
    (message,) = popped_of(answer)
    assert message.mark == "1"


def test_a_broken_connection_waits_no_more(broker: Popping) -> None:
    gone, here = wait(broker), wait(broker)
    gone.close()
    assert waiting(broker) == 1
    broker.fill(1)
    broker.clock.advance(0)
    assert (gone.sent, len(answered(here))) == ([], 1)


def test_no_patience_no_waiting(broker: Popping) -> None:
    for poll_ms in (0, -1):
        answer = broker.pop_command(pollTime=poll_ms)
        assert answer is not None
        assert answer.code == ResponseCode.POLLING_TIMEOUT
    answer = broker.pop_command(pollTime=1_000, bornTime=broker.clock.wall_ms() - 1_200)
    assert answer is not None
    assert answer.code == ResponseCode.POLLING_TIMEOUT


def test_too_many_wait() -> None:
    broker = Popping(BrokerConfig(waiting_pops_per_queue_max=2, waiting_pops_max=4))
    for _ in range(2):
        wait(broker)
    full = ResponseCode.POLLING_FULL
    assert broker.pop_command(pollTime=1_000).code == full  # type: ignore[union-attr]
    wait(broker, queueId=0)
    wait(broker, consumerGroup="other")
    assert broker.pop_command(pollTime=1_000, queueId=1).code == full  # type: ignore[union-attr]
    for _ in range(2):
        assert notice(broker) is None
    answer = notice(broker)
    assert (answer.code, answer.ext) == (0, {"hasMsg": "false", "pollingFull": "true"})


def test_filters_hold_while_waiting(broker: Popping) -> None:
    a, b = wait(broker, exp="a"), wait(broker, exp="b")
    broker.send(body=b"b1", properties="UNIQ_KEY\x01U\x02TAGS\x01b\x02")
    broker.clock.advance(0)
    # The group has one place in the queue, and whoever is asked first decides for all of it.
    assert (answered(a), answered(b)) == ([], [])
    broker.send(body=b"a1", properties="UNIQ_KEY\x01V\x02TAGS\x01a\x02")
    broker.clock.advance(0)
    assert answered(a) == [b"a1"]


def test_a_deleted_topic_answers_who_waits_for_it(broker: Popping) -> None:
    peer = wait(broker)
    broker.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    broker.clock.advance(0)
    (answer,) = peer.sent
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_who_waits_does_not_make_a_deleted_group_again(broker: Popping) -> None:
    popping, asking = wait(broker), Peer()
    assert notice(broker, asking) is None
    broker.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    broker.fill(1)
    broker.clock.advance(0)
    for peer in popping, asking:
        assert [answer.code for answer in peer.sent] == [ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST]
    assert broker.state.groups.get("g") is None


def test_a_topic_that_grows_by_queues(broker: Popping) -> None:
    peer = wait(broker)
    broker.topic("T", 3)
    broker.send(queue_id=2, body=b"new queue")
    broker.clock.advance(0)
    assert answered(peer) == [b"new queue"]


def test_a_reset_is_news_too(broker: Popping) -> None:
    broker.fill(2)
    for each in broker.pop():
        broker.ack(each)
    peer = wait(broker)
    broker.state.offsets.reset("T", "g", {0: 0})
    broker.clock.advance(0)
    assert answered(peer) == [b"m0"]


def test_a_stop_answers_everybody(broker: Popping) -> None:
    peer, noticing = wait(broker), Peer()
    notice(broker, noticing)
    broker.state.pop.release_all()
    assert [answer.code for answer in peer.sent] == [ResponseCode.POLLING_TIMEOUT]
    assert [answer.ext["hasMsg"] for answer in noticing.sent] == ["false"]


def test_what_is_not_flushed_wakes_nobody_and_what_is_does() -> None:
    config = msgspec.structs.replace(SMALL_STORE, flush_mode="SYNC_FLUSH")
    broker = Popping(store_config=config)
    peer = wait(broker)
    broker.send(body=b"flushed")
    broker.clock.advance(0)
    assert answered(peer) == [b"flushed"]


# The kernel tells of arrivals only where somebody waits.


def is_waiting(broker: Popping) -> list[bool]:
    return [broker.state.store.queue("T", queue_id).is_waiting for queue_id in range(2)]


def test_queues_are_marked_while_anybody_waits(broker: Popping) -> None:
    assert is_waiting(broker) == [False, False]
    wait(broker)
    assert is_waiting(broker) == [True, True]
    broker.fill(1)
    broker.clock.advance(0)
    broker.fill(1)  # nobody waits any more: the mark goes with this message
    assert is_waiting(broker) == [False, False]


def test_a_pull_that_goes_does_not_take_the_mark_from_a_pop(broker: Popping) -> None:
    peer = wait(broker)
    fields = pull_fields("T", 0, 0, sysFlag=6, suspendTimeoutMillis=1_000)
    assert broker.call(RequestCode.PULL_MESSAGE, fields) is None
    broker.clock.advance(2)
    assert is_waiting(broker) == [True, True]
    broker.fill(1)
    broker.clock.advance(0)
    assert len(peer.sent) == 1


def test_a_pop_that_goes_does_not_take_the_mark_from_a_pull(broker: Popping) -> None:
    wait(broker, pollTime=1_000)
    fields = pull_fields("T", 0, 0, sysFlag=6, suspendTimeoutMillis=20_000)
    puller = Peer()
    assert broker.call(RequestCode.PULL_MESSAGE, fields, peer=puller) is None
    broker.clock.advance(2)
    broker.send(queue_id=1)
    broker.clock.advance(0)
    assert is_waiting(broker)[0]
    broker.send(queue_id=0)
    broker.clock.advance(0)
    assert len(puller.sent) == 1


# Notifications.


def test_notifications_tell_and_take_nothing(broker: Popping) -> None:
    peer = Peer()
    assert notice(broker, peer) is None
    broker.fill(1)
    broker.clock.advance(0)
    (answer,) = peer.sent
    assert (answer.code, answer.ext) == (0, {"hasMsg": "true", "pollingFull": "false"})
    again = notice(broker)
    assert again.ext["hasMsg"] == "true"
    assert len(broker.pop()) == 1
    assert notice(broker, pollTime=0).ext["hasMsg"] == "false"


def test_notifications_of_what_comes_back_and_of_time_being_up(broker: Popping) -> None:
    broker.fill(1)
    broker.pop()
    late, in_time = Peer(), Peer()
    assert notice(broker, late, pollTime=2_000) is None
    assert notice(broker, in_time) is None
    broker.clock.advance(2.1)
    assert [answer.ext["hasMsg"] for answer in late.sent] == ["false"]
    broker.clock.advance(9)
    assert [answer.ext["hasMsg"] for answer in in_time.sent] == ["true"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 9}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_notifications_that_are_refused(
    broker: Popping, fields: dict[str, Any], code: ResponseCode
) -> None:
    assert notice(broker, **fields).code == code
