"""Messages that could not be consumed: where they go, when they come back, who they are then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ariane.broker.retry import Return, retries_max
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from ariane.protocol.command import Command
from ariane.protocol.message import StoredMessage
from ariane.store.messages import NewMessage
from ariane.store.watermarks import SYNC_FLUSH
from ariane.topics import HALF_TOPIC, OPERATION_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.unit.broker.rig import Rig, send_fields
from tests.unit.broker.test_schedule import started

GROUP = "readers"
RETRY = "%RETRY%readers"
DEAD = "%DLQ%readers"


@pytest.fixture
def rig() -> Rig:
    return started()


def send_back(rig: Rig, message: StoredMessage | int, level: int = 0, **fields: Any) -> Command:
    log_offset = message if isinstance(message, int) else message.log_offset
    ext = {"offset": log_offset, "group": GROUP, "delayLevel": level, "unitMode": "false"} | fields
    answer = rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
    assert answer is not None
    return answer


def sent(rig: Rig, **fields: Any) -> StoredMessage:
    assert rig.send(**fields).code == ResponseCode.SUCCESS
    return rig.stored(fields.get("topic", "T"), fields.get("queue_id", 0))[-1]


# The pure part.


@pytest.mark.parametrize(
    ("level", "tries", "maximum", "topic", "delay"),
    [
        (0, 0, 16, RETRY, "3"),  # 10 s
        (0, 1, 16, RETRY, "4"),  # 30 s
        (0, 15, 16, RETRY, "18"),  # 2 h
        (0, 16, 16, DEAD, "0"),
        (0, 17, 16, DEAD, "0"),
        (0, 40, 99, RETRY, "43"),  # clamped where it is stored
        (5, 7, 16, RETRY, "5"),
        (5, 16, 16, DEAD, "0"),
        (-1, 0, 16, DEAD, "0"),
        (0, 0, 0, DEAD, "0"),
        (0, 0, -1, DEAD, "0"),
    ],
)
def test_where_and_when(level: int, tries: int, maximum: int, topic: str, delay: str) -> None:
    record = StoredMessage(
        topic="T", queue_id=1, queue_offset=2, log_offset=3, size=4, flag=5, system_flag=1,
        body_crc32=7, born_at_ms=8, born_host=("10.0.0.1", 9), stored_at_ms=10,
        store_host=("127.0.0.1", 10911), reconsume_times=tries, prepared_offset=0,
        stored_body=b"x", properties={},
    )  # fmt: skip
    copy = Return(GROUP, level, maximum).copy_of(record, b"A\x01b\x02", 0)
    assert (copy.topic, copy.reconsume_times) == (topic, tries + 1)
    assert copy.properties.decode() == (
        f"A\x01b\x02DELAY\x01{delay}\x02WAIT\x01false\x02RETRY_TOPIC\x01T\x02"
        "ORIGIN_MESSAGE_ID\x017F00000100002A9F0000000000000003\x02"
    )


def test_old_clients_do_not_say_how_often() -> None:
    assert retries_max(3, 121, 16) == 3
    assert retries_max(3, 120, 16) == 16
    assert retries_max(None, 479, 16) == 16


# Sent back.


def test_a_message_sent_back_comes_again_and_is_the_same(rig: Rig) -> None:
    properties = "KEYS\x01k\x02TAGS\x01red\x02UNIQ_KEY\x01U\x02"
    original = sent(rig, queue_id=2, body=b"\x00z", properties=properties, system_flag=1)
    assert send_back(rig, original).code == ResponseCode.SUCCESS
    rig.clock.advance(9.9)
    assert rig.stored(RETRY) == []
    rig.clock.advance(0.2)
    (again,) = rig.stored(RETRY)
    same = ("stored_body", "flag", "system_flag", "born_at_ms", "born_host", "body_crc32")
    assert {name: getattr(again, name) for name in same} == {
        name: getattr(original, name) for name in same
    }
    assert again.reconsume_times == 1
    assert again.properties == original.properties | {
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": original.offset_message_id,
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
        "WAIT": "false",
    }


def test_seventeen_times_then_it_is_a_dead_letter(rig: Rig) -> None:
    original = message = sent(rig)
    for tries in range(16):
        assert send_back(rig, message, 1).code == ResponseCode.SUCCESS
        rig.clock.advance(1.1)
        message = rig.stored(RETRY)[-1]
        assert message.reconsume_times == tries + 1
    assert rig.state.topics.get(DEAD) is None
    assert send_back(rig, message, 1).code == ResponseCode.SUCCESS
    (dead,) = rig.stored(DEAD)
    assert dead.reconsume_times == 17
    assert dead.properties["RETRY_TOPIC"] == "T"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert dead.properties["UNIQ_KEY"] == original.properties["UNIQ_KEY"]
    topic = rig.state.topics.existing(DEAD)
    assert (topic.read_queue_count, topic.write_queue_count, topic.permission) == (1, 1, 2)
    rig.clock.advance(8000)
    assert len(rig.stored(DEAD)) == 1
    assert len(rig.stored(RETRY)) == 16


def test_dead_letters_are_read_by_who_asks_for_them(rig: Rig) -> None:
    send_back(rig, sent(rig), -1)
    answer = rig.pull(DEAD)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    rig.topic(DEAD, 1, permission=1)
    refused = rig.pull(DEAD)
    assert refused is not None
    assert refused.code == ResponseCode.NO_PERMISSION


def test_the_client_s_maximum_wins_over_the_group_s(rig: Rig) -> None:
    rig.state.groups.put(SubscriptionGroupConfig(name=GROUP, retry_times_max=2))
    message = sent(rig, reconsume_times=2)
    send_back(rig, message, maxReconsumeTimes=3)
    assert rig.stored(DEAD) == []
    send_back(rig, message)
    assert len(rig.stored(DEAD)) == 1


def test_a_message_that_was_timed_is_not_timed_again_as_a_dead_letter(rig: Rig) -> None:
    message = sent(rig, properties="TIMER_OUT_MS\x015\x02UNIQ_KEY\x01U\x02")
    send_back(rig, message, -1)
    assert len(rig.stored(DEAD)) == 1
    send_back(rig, message, 1)
    rig.clock.advance(1.1)
    assert len(rig.stored(RETRY)) == 1


def test_topics_are_told_to_name_servers_at_once(rig: Rig) -> None:
    told: list[str] = []
    rig.state.topics.on_change.append(told.append)
    message = sent(rig)
    send_back(rig, message)
    send_back(rig, message, -1)
    assert told == [RETRY, DEAD]


def test_a_group_spreads_its_retries_over_its_queues(rig: Rig) -> None:
    rig.state.groups.put(SubscriptionGroupConfig(name=GROUP, retry_queue_count=3))
    message = sent(rig)
    for _ in range(30):
        send_back(rig, message, 1)
    rig.clock.advance(1.1)
    assert all(rig.stored(RETRY, queue_id) for queue_id in range(3))


def test_a_group_without_retries_drops_them(rig: Rig) -> None:
    rig.state.groups.put(SubscriptionGroupConfig(name=GROUP, retry_queue_count=0))
    message = sent(rig)
    written = rig.state.store.written
    assert send_back(rig, message).code == ResponseCode.SUCCESS
    assert rig.state.store.written == written
    assert rig.state.topics.get(RETRY) is None


def test_what_is_sent_back_is_counted(rig: Rig) -> None:
    message = sent(rig)
    send_back(rig, message)
    key = {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "T@readers"}
    rig.state.stats.start(rig.timers)
    rig.clock.advance(11)
    answer = rig.call(RequestCode.VIEW_BROKER_STATS_DATA, key)
    assert answer is not None
    assert json.loads(answer.body)["statsMinute"]["sum"] == 1
    rig.state.stats.forget_topic("T")
    answer = rig.call(RequestCode.VIEW_BROKER_STATS_DATA, key)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_the_answer_waits_for_the_disk_where_sends_do(rig: Rig) -> None:
    message = sent(rig, properties="WAIT\x01false\x02UNIQ_KEY\x01U\x02")
    ext = {"offset": message.log_offset, "group": GROUP, "delayLevel": 0}
    rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext)  # makes the topic
    rig.state.store.marks.policy = SYNC_FLUSH
    rig.disk.plant("sync", OSError(5, "input/output error"))
    answer = rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
    answers = rig.peer.sent if answer is None else [answer]
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE]


REFUSED: dict[str, tuple[dict[str, Any], ResponseCode]] = {
    "no such record": ({"offset": 7}, ResponseCode.SYSTEM_ERROR),
    "before the log": ({"offset": -1}, ResponseCode.SYSTEM_ERROR),
    "behind the log": ({"offset": 1 << 40}, ResponseCode.SYSTEM_ERROR),
    "no such group": ({"group": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "no group": ({"group": ""}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "no number": ({"delayLevel": "x"}, ResponseCode.SYSTEM_ERROR),
}


@pytest.mark.parametrize(("fields", "code"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_sent_back(rig: Rig, fields: dict[str, Any], code: ResponseCode) -> None:
    message = sent(rig)
    written = rig.state.store.written
    answer = send_back(rig, message, **fields)
    assert answer.code == code
    assert answer.remark
    assert rig.state.store.written == written
    assert rig.state.topics.get(RETRY) is None


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_TOPIC, OPERATION_TOPIC, TIMER_TOPIC])
def test_nobody_gets_at_hidden_messages_this_way(rig: Rig, topic: str) -> None:
    placed = rig.state.store.append(
        NewMessage(
            topic=topic,
            queue_id=0,
            body=b"secret",
            properties=b"",
            born_host=("127.0.0.1", 1),
            born_at_ms=1,
        )
    )
    assert send_back(rig, placed.log_offset, -1).code == ResponseCode.SYSTEM_ERROR
    assert rig.stored(DEAD) == []


def test_topics_and_brokers_that_take_nothing(rig: Rig) -> None:
    message = sent(rig)
    rig.topic(RETRY, 1, permission=4)
    assert send_back(rig, message).code == ResponseCode.NO_PERMISSION
    rig.topic(RETRY, 1)
    rig.configure(permission=4)
    assert send_back(rig, message).code == ResponseCode.NO_PERMISSION


def test_without_leave_to_make_groups_only_known_ones_send_back(rig: Rig) -> None:
    rig.configure(auto_create_groups=False)
    message = sent(rig)
    assert send_back(rig, message).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    rig.state.groups.put(SubscriptionGroupConfig(name=GROUP))
    assert send_back(rig, message).code == ResponseCode.SUCCESS


# Sent to the retry topic by clients.


def retry_send(rig: Rig, tries: int, **fields: Any) -> Command:
    properties = "UNIQ_KEY\x01U\x02RETRY_TOPIC\x01T\x02DELAY\x011\x02"
    ext = send_fields(topic=RETRY, properties=properties, reconsume_times=tries) | fields
    answer = rig.call(RequestCode.SEND_MESSAGE_V2, ext, b"again")
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("tries", "fields", "is_dead"),
    [
        (1, {}, False),
        (16, {}, False),
        (17, {}, True),
        (3, {"l": 2}, True),
        (2, {"l": 2}, False),
        (17, {"l": 20}, False),
    ],
)
def test_too_many_tries_make_a_dead_letter(
    rig: Rig, tries: int, fields: dict[str, Any], is_dead: bool
) -> None:
    assert retry_send(rig, tries, **fields).code == ResponseCode.SUCCESS
    rig.clock.advance(1.1)
    (message,) = rig.stored(DEAD if is_dead else RETRY)
    assert message.reconsume_times == tries
    assert message.properties["RETRY_TOPIC"] == "T"
    assert message.properties["DELAY"] == ("-1" if is_dead else "1")
    assert (rig.state.topics.get(DEAD) is not None) == is_dead


def test_a_group_that_keeps_order_sends_only_what_it_gave_up_on(rig: Rig) -> None:
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    rig.state.locks.lock(GROUP, "client", [queue])
    rig.state.locks.lock("others", "client", [queue])
    retry_send(rig, 1)
    assert len(rig.stored(DEAD)) == 1
    rig.clock.advance(60)  # the lease has ended
    retry_send(rig, 1)
    assert len(rig.stored(DEAD)) == 1


def test_a_retry_of_a_committed_message_is_no_transaction(rig: Rig) -> None:
    properties = "UNIQ_KEY\x01U\x02TRAN_MSG\x01true\x02DELAY\x011\x02PGROUP\x01p\x02"
    rig.send(RETRY, 0, b"again", properties, reconsume_times=1)
    rig.clock.advance(1.1)
    assert len(rig.stored(RETRY)) == 1


def test_retries_are_never_learnt_by_the_lane(rig: Rig) -> None:
    retry_send(rig, 1)
    assert RETRY.encode() not in rig.state.lane._lane.topics


def test_a_send_to_the_retry_topic_of_an_unknown_group(rig: Rig) -> None:
    rig.configure(auto_create_groups=False)
    assert retry_send(rig, 1).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_message_that_is_not_utf8_is_sent_back_byte_for_byte(rig: Rig) -> None:
    rig.topic("T")
    rig.send_raw(b"x", b"TAGS\x01\xd6\xd0\x02")  # GBK, from a producer in C++
    assert send_back(rig, rig.stored()[0]).code == ResponseCode.SUCCESS
    rig.clock.advance(10.1)
    (again,) = rig.stored(RETRY)
    assert (again.stored_body, again.tags) == (b"x", "\ufffd\ufffd")
    record = rig.state.store.record_at(again.log_offset)
    assert record is not None and b"TAGS\x01\xd6\xd0\x02" in record
