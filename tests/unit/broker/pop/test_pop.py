"""Pops and acknowledgements as requests: what is lent, what comes back, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ariane.broker.pop.revive import SLOT_MS
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.protocol.bodies import SubscriptionGroupConfig
from tests.unit.broker.pop.popping import (
    INVISIBLE_MS,
    Popping,
    ack_fields,
    batch_body,
    bodies,
    popped_of,
)

AFTER_S = (INVISIBLE_MS + 2 * SLOT_MS) / 1000 + 0.1  # given back by then
RETRY = "%RETRY%g_T"


@pytest.fixture
def broker() -> Popping:
    return Popping()


def test_a_pop_takes_from_every_queue_and_the_next_goes_on(broker: Popping) -> None:
    sent = broker.fill(10)
    first = broker.pop(maxMsgNums=4)
    assert len(first) == 4
    rest = broker.pop()
    assert sorted(bodies(first + rest)) == sent
    assert broker.pop() == []


def test_the_answer_has_every_field(broker: Popping) -> None:
    broker.fill(5)
    answer = broker.pop_command(maxMsgNums=3)
    assert answer is not None
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.ext == {
        "popTime": "1700000000000", "invisibleTime": "10000", "reviveQid": "0", "restNum": "2",
        "startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0,1,2",
    }  # fmt: skip
    empty = broker.pop_command(queueId=0)
    assert empty is not None
    assert (empty.code, empty.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert empty.ext["restNum"] == "0"
    assert (empty.ext["startOffsetInfo"], empty.ext["msgOffsetInfo"]) == ("", "")


def test_any_number_of_consumers_share_one_queue_message_by_message() -> None:
    broker = Popping(queues=1)
    sent = broker.fill(100, queues=1)
    parts = [broker.pop(maxMsgNums=7) for _ in range(15)]
    assert [body for part in parts for body in bodies(part)] == sent


def test_acknowledged_messages_never_come_back(broker: Popping) -> None:
    broker.fill(6)
    for each in broker.pop():
        assert broker.ack(each).code == 0
    for _ in range(5):
        broker.clock.advance(AFTER_S)
        assert broker.pop() == []


def test_what_is_not_acknowledged_comes_back_once_in_time_and_counted(broker: Popping) -> None:
    broker.fill(4)
    lent = broker.pop()
    for each in lent[:3]:
        broker.ack(each)
    broker.clock.advance(INVISIBLE_MS / 1000 - 0.01)
    assert broker.pop() == []  # never early
    broker.clock.advance(0.01 + 3 * SLOT_MS / 1000)
    (again,) = broker.pop()
    assert again.body == lent[3].body
    assert (again.message.reconsume_times, again.topic, again.mark) == (1, RETRY, "1")
    assert again.message.properties["1ST_POP_TIME"] == str(lent[3].popped_ms)
    assert broker.pop() == []
    broker.ack(again)
    broker.clock.advance(60)
    assert broker.pop() == []


def test_it_comes_back_again_and_again_until_acknowledged(broker: Popping) -> None:
    broker.fill(1)
    broker.state.groups.put(SubscriptionGroupConfig(name="g", retry_times_max=20))
    for times in range(20):
        (message,) = broker.pop()
        assert message.message.reconsume_times == times
        assert message.message.properties.get("1ST_POP_TIME", "") in ("", "1700000000000")
        broker.clock.advance(AFTER_S)
    (message,) = broker.pop()
    broker.ack(message)
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []


def test_an_acknowledgement_in_the_last_moment_counts(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    broker.clock.advance(INVISIBLE_MS / 1000)
    broker.ack(message)
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []


def test_too_late_an_acknowledgement_is_taken_and_changes_nothing(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    broker.clock.advance(AFTER_S)
    assert broker.ack(message).code == 0
    assert len(broker.pop()) == 1


def test_batches_of_acknowledgements(broker: Popping) -> None:
    broker.fill(12)
    lent = broker.pop(maxMsgNums=5) + broker.pop()
    assert broker.batch_ack(each for n, each in enumerate(lent) if n % 3).code == 0
    broker.clock.advance(AFTER_S)
    assert sorted(bodies(broker.pop())) == sorted(bodies(lent[::3]))


def test_a_batch_in_long_names(broker: Popping) -> None:
    broker.fill(1)
    body = batch_body(broker.pop())
    for short, name in {
        '"b"': '"bitSet"', '"c"': '"consumerGroup"', '"it"': '"invisibleTime"', '"q"': '"queueId"',
        '"pt"': '"popTime"', '"r"': '"retry"', '"rq"': '"reviveQueueId"', '"t"': '"topic"',
        '"so"': '"startOffset"',
    }.items():  # fmt: skip
        body = body.replace(short.encode(), name.encode())
    answer = broker.call(RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert answer is not None
    assert answer.code == 0
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []


def test_retried_messages_are_acknowledged_in_batches_too(broker: Popping) -> None:
    broker.fill(3)
    broker.pop()
    broker.clock.advance(AFTER_S)
    assert broker.batch_ack(broker.pop()).code == 0
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []


def test_saying_it_twice_does_no_harm(broker: Popping) -> None:
    broker.fill(2)
    one, other = broker.pop()
    for _ in range(3):
        assert broker.ack(one).code == 0
        assert broker.batch_ack([one]).code == 0
    broker.clock.advance(AFTER_S)
    assert bodies(broker.pop()) == [other.body]


def test_groups_do_not_see_each_other(broker: Popping) -> None:
    sent = broker.fill(4)
    for each in broker.pop():
        broker.ack(each)
    assert sorted(bodies(broker.pop(consumerGroup="other"))) == sent
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []
    assert len(broker.pop(consumerGroup="other")) == 4


def test_a_handle_of_one_group_acknowledges_nothing_of_another(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    assert broker.ack(message, group="other").code == 0
    broker.clock.advance(AFTER_S)
    assert len(broker.pop()) == 1


# Invisible times changed.


def test_a_longer_time_keeps_a_message_away(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    broker.clock.advance(5)
    answer = broker.change(message, 30_000)
    assert (answer.code, answer.ext) == (
        0,
        {"popTime": "1700000005000", "invisibleTime": "30000", "reviveQid": "0"},
    )
    broker.clock.advance(29.9)
    assert broker.pop() == []
    broker.clock.advance(1)
    assert len(broker.pop()) == 1


def renewed(message: Any, answer: Any) -> Any:
    """The message under its new handle: its checkpoint starts at itself."""
    return type(message)(
        **{name: getattr(message, name) for name in message.__dataclass_fields__}
        | {
            "first": message.offset,
            "popped_ms": int(answer.ext["popTime"]),
            "invisible_ms": int(answer.ext["invisibleTime"]),
        }
    )


def test_a_shorter_time_brings_it_back_sooner_and_the_new_handle_counts(broker: Popping) -> None:
    broker.fill(3)
    one, two, three = broker.pop()
    new_one = renewed(one, broker.change(one, 1_000))
    new_two = renewed(two, broker.change(two, 1_000))
    broker.ack(new_one)
    broker.ack(two)  # by its old handle: it is not out under it any more
    broker.clock.advance(1.3)
    assert bodies(broker.pop()) == [two.body]
    broker.clock.advance(AFTER_S - 1.3)
    assert bodies(broker.pop()) == [three.body]
    assert new_two.popped_ms > two.popped_ms


def test_a_time_can_be_changed_over_and_over(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    for _ in range(50):  # all of it within one millisecond
        answer = broker.change(message, 20_000)
        assert answer.code == 0
        message = renewed(message, answer)
    broker.clock.advance(15)
    assert broker.pop() == []
    broker.ack(message)
    broker.clock.advance(30)
    assert broker.pop() == []


def test_what_is_not_out_cannot_be_kept(broker: Popping) -> None:
    broker.fill(3)
    acked, changed, late = broker.pop()
    broker.ack(acked)
    broker.change(changed, 60_000)
    broker.clock.advance(AFTER_S)
    for message in (acked, changed, late):
        answer = broker.change(message, 60_000)
        assert answer.code == ResponseCode.NO_MESSAGE
        assert "not out under this handle" in (answer.remark or "")
    assert bodies(broker.pop()) == [late.body]


# Where a group starts.


def test_a_new_group_starts_at_the_first_message_or_at_the_last() -> None:
    broker = Popping(BrokerConfig(starts_at_zero_in_memory=False), queues=1)
    broker.fill(5, queues=1)
    assert bodies(broker.pop(initMode=1)) == [b"m4"]
    assert len(broker.pop(consumerGroup="other", initMode=0)) == 5
    assert broker.pop() == []


def test_a_queue_all_in_memory_is_read_from_its_beginning(broker: Popping) -> None:
    broker.fill(5)
    assert len(broker.pop(initMode=1)) == 5


def test_an_empty_queue_has_no_last_message(broker: Popping) -> None:
    assert broker.pop(initMode=1) == []
    broker.fill(2)
    assert len(broker.pop(initMode=1)) == 2


def test_a_reset_sends_the_group_back_and_what_is_out_stays_out(broker: Popping) -> None:
    broker.fill(4)
    for each in broker.pop():
        broker.ack(each)
    broker.state.offsets.reset("T", "g", {0: 0, 1: 1})
    assert len(broker.pop()) == 3
    assert broker.pop() == []


def test_an_offset_out_of_range_is_set_right(broker: Popping) -> None:
    broker.fill(4)
    broker.state.offsets.commit("T", "g", 0, 999)
    assert len(broker.pop()) == 2  # of the other queue
    broker.send(queue_id=0, body=b"next")
    assert bodies(broker.pop()) == [b"next"]


# Filters.


def test_tags_and_expressions_choose(broker: Popping) -> None:
    for n in range(12):
        properties = f"UNIQ_KEY\x01U{n}\x02TAGS\x01{'ab'[n % 2]}\x02n\x01{n}\x02"
        broker.send(queue_id=n % 2 if n < 6 else 0, body=b"m%d" % n, properties=properties)
    lent = broker.pop(exp="a")
    assert sorted(bodies(lent)) == [b"m0", b"m10", b"m2", b"m4", b"m6", b"m8"]
    assert broker.pop(exp="a") == []
    broker.ack(lent[0])
    broker.clock.advance(AFTER_S)
    again = broker.pop(exp="a")
    assert sorted(bodies(again)) == sorted(bodies(lent[1:]))
    sql = broker.pop(consumerGroup="sql", expType="SQL92", exp="n between 3 and 5 or TAGS = 'x'")
    assert sorted(bodies(sql)) == [b"m3", b"m4", b"m5"]


def test_far_messages_that_match_are_found_in_turns() -> None:
    small = msgspec.structs.replace(Popping().state.store_config, filter_scan_bytes_max=100)
    broker = Popping(store_config=small, queues=1)
    for n in range(200):
        broker.send(body=b"no", properties=f"UNIQ_KEY\x01U{n}\x02TAGS\x01no\x02")
    broker.send(body=b"yes", properties="UNIQ_KEY\x01Y\x02TAGS\x01yes\x02")
    assert broker.pop_command(exp="yes", pollTime=5000) is None
    broker.clock.advance(0.1)
    (answer,) = broker.peer.sent
    assert bodies(popped_of(answer)) == [b"yes"]


def test_a_bad_expression(broker: Popping) -> None:
    for fields in ({"expType": "SQL92", "exp": "a >"}, {"expType": "XYZ", "exp": "a"}):
        answer = broker.pop_command(**fields)
        assert answer is not None
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# Retry topics.


def test_retry_topics_of_the_second_form_and_the_first_beside_it() -> None:
    broker = Popping()
    broker.fill(2)
    broker.pop(maxMsgNums=1)
    broker.clock.advance(AFTER_S)  # into the first form's topic
    broker.configure(retry_topics_v2=True)
    broker.pop(maxMsgNums=1, queueId=1)
    lent = broker.pop()
    while len(lent) < 1:
        lent = broker.pop()
    broker.clock.advance(AFTER_S)
    marks = set()
    for _ in range(8):
        marks |= {each.mark for each in broker.pop()}
        broker.clock.advance(AFTER_S)
    assert marks == {"1", "2"}
    assert broker.state.topics.get("%RETRY%g+T") is not None


def test_the_second_form_alone() -> None:
    broker = Popping(BrokerConfig(retry_topics_v2=True, reads_retry_topics_v1=False))
    broker.fill(1)
    broker.pop()
    broker.clock.advance(AFTER_S)
    (message,) = broker.pop()
    assert (message.mark, message.topic) == ("2", "%RETRY%g+T")
    broker.batch_ack([message])
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []


def test_retries_are_shown_under_their_own_topic_when_asked_for() -> None:
    broker = Popping(BrokerConfig(shows_retry_topics=True))
    broker.fill(1)
    broker.pop()
    broker.clock.advance(AFTER_S)
    answer = broker.pop_command()
    assert answer is not None
    assert answer.ext["msgOffsetInfo"] == "1 0 0"
    assert answer.body == broker.state.store.read(RETRY, 0, 0, count_max=1).body


def test_some_pops_look_at_retries_first() -> None:
    broker = Popping(queues=1)
    broker.fill(30, queues=1)
    broker.pop()
    broker.clock.advance(AFTER_S)
    broker.fill(100, queues=1)
    marks = [broker.pop(maxMsgNums=1)[0].mark for _ in range(100)]
    assert marks.count("1") == 20


def test_a_very_long_retry_topic() -> None:
    broker = Popping()
    topic, group = "t" * 127, "c" * 120
    broker.topic(topic, 1)
    broker.send(topic=topic, body=b"x")
    (message,) = broker.pop(topic=topic, consumerGroup=group)
    broker.clock.advance(AFTER_S)
    (again,) = broker.pop(topic=topic, consumerGroup=group)
    assert (again.topic, again.body) == (f"%RETRY%{group}_{topic}", message.body)


# Refusals.


def group(**fields: Any) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(name="g", **fields)


REFUSED: dict[str, tuple[dict[str, Any], ResponseCode]] = {
    "more than 32": ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
    "none": ({"maxMsgNums": 0}, ResponseCode.INVALID_PARAMETER),
    "no such topic": ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
    "no such queue": ({"queueId": 2}, ResponseCode.INVALID_PARAMETER),
    "no group's name": ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "invisible before now": ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER),
    "invisible for years": ({"invisibleTime": 2**60}, ResponseCode.INVALID_PARAMETER),
    "no number": ({"maxMsgNums": "many"}, ResponseCode.SYSTEM_ERROR),
    "long ago": ({"bornTime": 1, "pollTime": 15_000}, ResponseCode.POLLING_TIMEOUT),
}


@pytest.mark.parametrize(("fields", "code"), REFUSED.values(), ids=REFUSED)
def test_pops_that_are_refused(broker: Popping, fields: dict[str, Any], code: ResponseCode) -> None:
    broker.fill(2)
    answer = broker.pop_command(**fields)
    assert answer is not None
    assert (answer.code, bool(answer.remark)) == (code, True)
    assert len(broker.pop()) == 2  # nothing was lent


def test_rights(broker: Popping) -> None:
    broker.fill(2)
    denied = ResponseCode.NO_PERMISSION
    broker.configure(permission=2)
    assert broker.pop_command().code == denied  # type: ignore[union-attr]
    broker.configure(permission=6)
    broker.topic("T", 2, permission=2)
    assert broker.pop_command().code == denied  # type: ignore[union-attr]
    broker.topic("T", 2)
    broker.state.groups.put(group(consume_enabled=False))
    assert broker.pop_command().code == denied  # type: ignore[union-attr]
    broker.state.groups.put(group())
    assert len(broker.pop()) == 2


def test_an_unknown_group_where_none_is_made(broker: Popping) -> None:
    broker.configure(auto_create_groups=False)
    answer = broker.pop_command(consumerGroup="new")
    assert answer is not None
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


ACK_REFUSED: dict[str, tuple[dict[str, Any], ResponseCode]] = {
    "no such topic": ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
    "no such queue": ({"queueId": 2}, ResponseCode.MESSAGE_ILLEGAL),
    "queue -1": ({"queueId": -1}, ResponseCode.MESSAGE_ILLEGAL),
    "beyond the queue": ({"offset": 99}, ResponseCode.NO_MESSAGE),
    "before it": ({"offset": -1}, ResponseCode.NO_MESSAGE),
    "no handle": ({"extraInfo": "x"}, ResponseCode.SYSTEM_ERROR),
}


@pytest.mark.parametrize(("fields", "code"), ACK_REFUSED.values(), ids=ACK_REFUSED)
@pytest.mark.parametrize(
    "request_code", [RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
)
def test_acknowledgements_and_changes_that_are_refused(
    broker: Popping, request_code: int, fields: dict[str, Any], code: ResponseCode
) -> None:
    broker.fill(2)
    message = broker.pop()[0]
    given = ack_fields(message) | {"invisibleTime": 1000} | fields
    answer = broker.call(request_code, given)
    assert answer is not None
    assert (answer.code, bool(answer.remark)) == (code, True)


BATCHES: dict[str, tuple[bytes, ResponseCode]] = {
    "nothing": (b"", ResponseCode.NO_MESSAGE),
    "no items": (b'{"acks":[],"brokerName":"b"}', ResponseCode.NO_MESSAGE),
    "not JSON": (b"{", ResponseCode.SYSTEM_ERROR),
    "not an object": (b"[1]", ResponseCode.SYSTEM_ERROR),
    "no topic": (b'{"acks":[{"c":"g","b":"AQ=="}]}', ResponseCode.SYSTEM_ERROR),
    "bits of nonsense": (
        b'{"acks":[{"c":"g","t":"T","b":"!","so":0,"q":0}]}',
        ResponseCode.SYSTEM_ERROR,
    ),
    "a mark nobody knows": (
        b'{"acks":[{"c":"g","t":"T","b":"AQ==","r":"7"}]}',
        ResponseCode.SYSTEM_ERROR,
    ),
    "a topic that is gone": (b'{"acks":[{"c":"g","t":"None","b":"AQ=="}]}', ResponseCode.SUCCESS),
    "another queue": (
        b'{"acks":[{"c":"g","t":"T","b":"AQ==","q":99,"so":5}]}',
        ResponseCode.SUCCESS,
    ),
    "far from its start": (
        b'{"acks":[{"c":"g","t":"T","b":"AAAAAAAAAAAAAAAAAAAAAAAAAAE=","so":0}]}',
        ResponseCode.SUCCESS,
    ),
}


@pytest.mark.parametrize(("body", "code"), BATCHES.values(), ids=BATCHES)
def test_odd_batches(broker: Popping, body: bytes, code: ResponseCode) -> None:
    broker.fill(2)
    broker.pop()
    answer = broker.call(RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert answer is not None
    assert answer.code == code, answer
    broker.clock.advance(AFTER_S)
    assert len(broker.pop()) == 2


def test_one_way_acknowledgements_are_carried_out(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    assert broker.call(RequestCode.ACK_MESSAGE, ack_fields(message), flag=2) is None
    broker.clock.advance(AFTER_S)
    assert broker.pop() == []


# Peeks.


def test_peeking_takes_nothing(broker: Popping) -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 3}
    answer = broker.call(RequestCode.PEEK_MESSAGE, fields)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    broker.fill(4)
    for _ in range(2):
        answer = broker.call(RequestCode.PEEK_MESSAGE, fields)
        assert answer is not None
        assert (answer.code, answer.ext["restNum"]) == (0, "4")
        assert len(answer.body) > 3 * 100
    assert len(broker.pop()) == 4


# Topics and groups that go.


def test_what_was_popped_of_a_deleted_topic_is_gone_with_it(broker: Popping) -> None:
    broker.fill(4)
    broker.pop()
    answer = broker.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert answer is None or answer.code == 0
    broker.topic("T", 2)
    broker.fill(4)  # made anew: the same offsets, other messages
    assert len(broker.state.pop.checkpoints) == 0
    broker.clock.advance(AFTER_S)
    assert len(broker.pop()) == 4
    assert broker.pop() == []


def test_the_retry_topic_goes_with_its_topic(broker: Popping) -> None:
    broker.fill(2)
    broker.pop()
    broker.clock.advance(AFTER_S)
    assert broker.state.topics.get(RETRY) is not None
    broker.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert broker.state.topics.get(RETRY) is None
    broker.topic("T", 2)
    assert broker.pop() == []


def test_a_topic_made_anew_after_a_kill_is_not_given_back_what_it_never_had(
    broker: Popping,
) -> None:
    broker.fill(4)
    broker.pop()
    log_offset = max(each.log_offset for each in broker.state.pop.checkpoints)
    broker.state.store.delete_topic("T")  # and the kill comes before anybody hears of it
    after = broker.killed()
    for n in range(4):
        after.send(queue_id=n % 2, body=b"new")
    assert log_offset < after.stored("T")[0].log_offset
    after.clock.advance(AFTER_S)
    assert after.stored(RETRY) == []


def test_nothing_is_given_back_to_a_deleted_group(broker: Popping) -> None:
    broker.fill(2)
    broker.pop()
    broker.state.groups.delete("g")
    broker.clock.advance(AFTER_S)
    assert len(broker.state.pop.checkpoints) == 0
    assert broker.state.topics.get(RETRY) is None


# Clocks that are set.


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_changes_no_invisible_time(broker: Popping, step_ms: int) -> None:
    broker.fill(4)
    one, two = broker.pop(maxMsgNums=2, queueId=0)
    broker.clock.step_wall(step_ms)
    broker.clock.advance(INVISIBLE_MS / 1000 - 0.01)
    assert broker.pop(queueId=0) == []
    assert broker.change(one, 5_000).code == 0
    broker.clock.advance(0.5)
    assert bodies(broker.pop(queueId=0)) == [two.body]
    broker.clock.advance(5)
    assert bodies(broker.pop(queueId=0)) == [one.body]


def test_a_clock_set_back_while_the_broker_was_down(broker: Popping) -> None:
    broker.fill(1)
    broker.pop()
    broker.clock.step_wall(-3_600_000)
    after = broker.killed()
    after.clock.advance(INVISIBLE_MS / 1000 - 0.01)
    assert after.pop() == []
    after.clock.advance(0.5)
    assert len(after.pop()) == 1


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_blocks_no_queue_for_longer(broker: Popping, step_ms: int) -> None:
    broker.fill(4)
    lent = broker.pop(maxMsgNums=2, queueId=0, order="true")
    broker.clock.step_wall(step_ms)
    broker.clock.advance(INVISIBLE_MS / 1000 - 0.01)
    assert broker.pop(queueId=0, order="true") == []
    broker.clock.advance(0.01)
    again = broker.pop(queueId=0, order="true")
    assert bodies(again) == bodies(lent)
    broker.clock.step_wall(-step_ms)
    for each in again:
        assert broker.ack(each).code == 0
    broker.clock.advance(60)
    assert broker.pop(queueId=0, order="true") == []


def test_in_order_a_clock_set_back_while_the_broker_was_down(broker: Popping) -> None:
    broker.fill(2)
    broker.pop(maxMsgNums=1, queueId=0, order="true")
    broker.clock.step_wall(-3_600_000)
    after = broker.killed()
    after.clock.advance(INVISIBLE_MS / 1000 - 0.01)
    assert after.pop(queueId=0, order="true") == []
    after.clock.advance(0.02)
    assert len(after.pop(queueId=0, order="true")) == 1
