"""Topics that declare what kind of messages they take."""

from __future__ import annotations

import pytest

from ariane.broker.dispatch import dispatch
from ariane.broker.message_types import type_of
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.protocol.command import Command
from ariane.protocol.message import BatchEntry, encode_batch
from tests.unit.broker.rig import Rig, send_fields

KINDS = {
    "NORMAL": "UNIQ_KEY\x01U\x02",
    "FIFO": "UNIQ_KEY\x01U\x02__SHARDINGKEY\x01k\x02",
    "DELAY": "UNIQ_KEY\x01U\x02DELAY\x011\x02",
    "PRIORITY": "UNIQ_KEY\x01U\x02_SYS_MSG_PRIORITY_\x011\x02",
    "TRANSACTION": "UNIQ_KEY\x01U\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02",
}


@pytest.fixture
def rig() -> Rig:
    """A broker that refuses what a topic does not declare."""
    return Rig(BrokerConfig(checks_message_types=True))


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "NORMAL"),
        ({"DELAY": "0"}, "NORMAL"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
        ({"__SHARDINGKEY": "x"}, "FIFO"),
        ({"_SYS_MSG_PRIORITY_": "0"}, "PRIORITY"),
        ({"_SYS_MSG_PRIORITY_": "3", "__SHARDINGKEY": "x"}, "FIFO"),
        ({"DELAY": "2", "__SHARDINGKEY": "x"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "2"}, "DELAY"),
        ({"TIMER_DELAY_MS": "2"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "2"}, "DELAY"),
        ({"TRAN_MSG": "true", "DELAY": "2", "__SHARDINGKEY": "x"}, "TRANSACTION"),
    ],
)
def test_the_kind_of_a_message(properties: dict[str, str], kind: str) -> None:
    assert type_of(properties) == kind


@pytest.mark.parametrize("declared", KINDS)
@pytest.mark.parametrize("sent", KINDS)
def test_a_topic_takes_the_kind_it_declares(rig: Rig, declared: str, sent: str) -> None:
    rig.topic("T", attributes={"message.type": declared})
    answer = rig.send(properties=KINDS[sent])
    if declared == sent:
        assert answer.code == ResponseCode.SUCCESS
    else:
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert declared in str(answer.remark)
        assert sent in str(answer.remark)
        assert rig.state.store.written == 0


@pytest.mark.parametrize(
    ("topic", "attributes"),
    [
        ("T", {}),
        ("T", {"message.type": "MIXED"}),
        ("T", {"message.type": "UNSPECIFIED"}),
        ("%RETRY%g", {"message.type": "NORMAL"}),
        ("%DLQ%g", {"message.type": "NORMAL"}),
    ],
)
@pytest.mark.parametrize("sent", KINDS)
def test_other_topics_take_every_kind(
    rig: Rig, topic: str, attributes: dict[str, str], sent: str
) -> None:
    rig.topic(topic, attributes=attributes)
    assert rig.send(topic, properties=KINDS[sent]).code == ResponseCode.SUCCESS


def test_every_message_of_a_batch_is_looked_at(rig: Rig) -> None:
    rig.topic("T", attributes={"message.type": "NORMAL"})
    entries = [BatchEntry(body=b"x", properties=KINDS[kind]) for kind in ("NORMAL", "FIFO")]
    fields = send_fields(is_batch=True)
    answer = rig.call(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(entries))
    assert answer is not None
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.state.store.written == 0
    answer = rig.call(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(entries[:1] * 2))
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("declared", KINDS)
@pytest.mark.parametrize("sent", KINDS)
def test_every_kind_is_taken_unless_a_setting_asks_for_more(declared: str, sent: str) -> None:
    rig = Rig()
    rig.topic("T", attributes={"message.type": declared})
    assert rig.send(properties=KINDS[sent]).code == ResponseCode.SUCCESS
    entries = encode_batch([BatchEntry(body=b"x", properties=KINDS[sent])])
    answer = rig.call(RequestCode.SEND_BATCH_MESSAGE, send_fields(is_batch=True), entries)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


def test_the_setting_is_heeded_from_the_moment_it_changes() -> None:
    rig = Rig()
    rig.topic("T", attributes={"message.type": "FIFO"})
    reader = rig.state.lane.reader_of(rig.peer)  # type: ignore[arg-type]
    ext = {name: str(value) for name, value in send_fields().items()}
    frame = Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=b"x").encode()

    def send() -> int:
        """Send a plain message, by the lane where that is open; the answer's code."""
        reader.get_buffer(-1)[: len(frame)] = frame
        commands = reader.received(len(frame))
        while commands:
            answer = dispatch(rig.state, rig.peer, commands[0])  # type: ignore[arg-type]
            if answer is not None:
                rig.peer.send(answer)
            commands = reader.received(0)
        return rig.peer.sent[-1].code

    def check_types(value: str) -> None:
        body = f"enableTopicMessageTypeCheck={value}".encode()
        assert rig.call(RequestCode.UPDATE_BROKER_CONFIG, {}, body) is None
        assert rig.peer.sent[-1].code == ResponseCode.SUCCESS

    assert [send(), send()] == [ResponseCode.SUCCESS] * 2
    assert rig.state.lane.request_count == 1, "a topic of one type takes the lane too"
    check_types("true")
    assert [send(), send()] == [ResponseCode.MESSAGE_ILLEGAL] * 2
    check_types("false")
    assert [send(), send()] == [ResponseCode.SUCCESS] * 2


def test_a_kind_declared_later_counts_from_then_on(rig: Rig) -> None:
    rig.topic("T")
    assert rig.send().code == ResponseCode.SUCCESS
    rig.topic("T", attributes={"message.type": "FIFO"})
    assert rig.send().code == ResponseCode.MESSAGE_ILLEGAL
    rig.topic("T")
    assert rig.send().code == ResponseCode.SUCCESS


@pytest.mark.parametrize("declared", [*KINDS, "MIXED"])
def test_kinds_are_declared_by_an_attribute(rig: Rig, declared: str) -> None:
    answer = rig.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": "T", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
            "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false",
            "attributes": f"+message.type={declared}",
        },
    )  # fmt: skip
    assert answer is None or answer.code == ResponseCode.SUCCESS
    assert rig.state.topics.existing("T").attributes == {"message.type": declared}
