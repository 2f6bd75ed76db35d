"""Timed messages and recalls, from the request to the delivery."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from ariane.broker.runtime_info import runtime_info
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.protocol.command import Command
from ariane.topics import TIMER_TOPIC
from tests.unit.broker.rig import SMALL_STORE, Rig, pull_fields, send_fields

BASE_MS = 1_700_000_000_000
REFUSED = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or"
    " if set del msg, the delay time should be bigger than the current time"
)


def rig_with(**settings: Any) -> Rig:
    store_config = msgspec.structs.replace(SMALL_STORE, **settings)
    rig = Rig(BrokerConfig(recall_enabled=True), store_config)
    rig.topic("T")
    rig.state.timer.start(rig.timers)
    return rig


@pytest.fixture
def rig() -> Rig:
    return rig_with()


def text(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def send(rig: Rig, body: bytes = b"hello", key: str = "K1", **properties: object) -> Command:
    return rig.send(queue_id=1, body=body, properties=text(UNIQ_KEY=key, **properties))


def came(rig: Rig) -> list[bytes]:
    return [record.body for record in rig.stored("T", 1)]


@pytest.mark.parametrize(
    ("asked", "slot_ms", "due_s"),
    [
        ({"TIMER_DELAY_SEC": 2}, 1000, 2),
        ({"TIMER_DELAY_MS": 2500}, 2000, 2.5),
        ({"TIMER_DELIVER_MS": BASE_MS + 3001}, 3000, 3.001),
        ({"TIMER_DELIVER_MS": BASE_MS + 9000, "TIMER_DELAY_MS": 500}, 0, 0.5),
        ({"TIMER_DELAY_MS": 9000, "TIMER_DELAY_SEC": 1}, 0, 1),
        ({"TIMER_DELAY_SEC": 259_200}, 259_199_000, 259_200),
        ({"TIMER_DELAY_SEC": "+2"}, 1000, 2),
    ],
)
def test_a_timed_message_waits_in_the_timer_topic(
    rig: Rig, asked: dict[str, object], slot_ms: int, due_s: float
) -> None:
    answer = send(rig, **asked)
    assert answer.code == ResponseCode.SUCCESS
    (waiting,) = rig.stored(TIMER_TOPIC)
    assert waiting.properties == {
        "UNIQ_KEY": "K1",
        **{name: str(value) for name, value in asked.items()},
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "TIMER_OUT_MS": str(BASE_MS + slot_ms),
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
    }
    assert answer.ext["msgId"] == waiting.offset_message_id
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("1", "0")
    handle = base64.urlsafe_b64decode(answer.ext["recallHandle"]).decode()
    assert handle == f"v1 T broker-a {BASE_MS + slot_ms + 1} K1"
    if due_s < 100:
        rig.clock.advance(due_s - 0.001)
        assert came(rig) == []
        rig.clock.advance(0.01)
        assert came(rig) == [b"hello"]


@pytest.mark.parametrize(
    "asked",
    [
        {"TIMER_DELIVER_MS": BASE_MS},
        {"TIMER_DELIVER_MS": 1},
        {"TIMER_DELIVER_MS": -5},
        {"TIMER_DELAY_MS": 0},
        {"TIMER_DELAY_SEC": -1},
        {"TIMER_DELAY_MS": 2000, "TIMER_OUT_MS": 7},  # it has been timed before
    ],
)
def test_what_is_due_is_delivered_at_once(rig: Rig, asked: dict[str, object]) -> None:
    answer = send(rig, **asked)
    assert came(rig) == [b"hello"]
    assert "recallHandle" not in answer.ext
    assert rig.stored(TIMER_TOPIC) == []


@pytest.mark.parametrize(
    "asked",
    [
        {"TIMER_DELAY_SEC": 259_201},
        {"TIMER_DELIVER_MS": BASE_MS + 259_200_001},
        {"TIMER_DELIVER_MS": 253_402_300_799_000},
        {"TIMER_DELIVER_MS": 10**30},
        {"TIMER_DELAY_MS": "soon"},
        {"TIMER_DELAY_MS": " 5"},
        {"TIMER_DELAY_MS": "1_000"},
        {"TIMER_DELAY_MS": "\u0665"},
        {"TIMER_DELIVER_MS": 1, "TIMER_DEL_UNIQKEY": "K0"},
    ],
)
def test_times_that_cannot_be_are_refused_as_apache_does(
    rig: Rig, asked: dict[str, object]
) -> None:
    answer = send(rig, **asked)
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, REFUSED)
    assert rig.stored(TIMER_TOPIC) == [] == came(rig)


def test_a_level_wins_over_a_time(rig: Rig) -> None:
    send(rig, TIMER_DELAY_MS=5000, DELAY=1)
    assert rig.stored(TIMER_TOPIC) == []


def test_a_batch_cannot_be_timed(rig: Rig) -> None:
    fields = send_fields(properties=text(TIMER_DELAY_MS=5000), is_batch=True)
    answer = rig.call(RequestCode.SEND_BATCH_MESSAGE, fields, b"")
    assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_other_settings_are_obeyed() -> None:
    rig = rig_with(timer_delay_max_s=5, timer_precision_ms=100)
    assert send(rig, TIMER_DELAY_MS=5001).code == ResponseCode.MESSAGE_ILLEGAL
    send(rig, TIMER_DELAY_MS=4999)
    assert rig.stored(TIMER_TOPIC)[0].properties["TIMER_OUT_MS"] == str(BASE_MS + 4900)
    answer = send(rig_with(timer_enabled=False), TIMER_DELAY_MS=5000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "accurate timer message is not enabled, timerWheelEnable is false"


def test_a_slot_takes_so_many_and_no_more() -> None:
    rig = rig_with(timer_slot_messages_max=2)
    for _ in range(2):
        assert send(rig, TIMER_DELAY_MS=5000).code == ResponseCode.SUCCESS
    rig.clock.advance(0.01)
    answer = send(rig, TIMER_DELAY_MS=4990)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "flow control" in str(answer.remark)
    assert send(rig, TIMER_DELAY_MS=9000).code == ResponseCode.SUCCESS


def test_properties_of_an_earlier_life_are_replaced(rig: Rig) -> None:
    send(rig, TIMER_DELAY_MS=500, REAL_TOPIC="Old", REAL_QID=7)
    (waiting,) = rig.stored(TIMER_TOPIC)
    assert waiting.properties["REAL_TOPIC"] == "T" and waiting.properties["REAL_QID"] == "1"
    rig.clock.advance(1)
    assert came(rig) == [b"hello"]


def test_a_held_pull_is_answered_when_a_timed_message_comes(rig: Rig) -> None:
    rig.subscribe("readers", "T")
    send(rig, TIMER_DELAY_MS=1500)
    assert rig.call(RequestCode.PULL_MESSAGE, pull_fields("T", 1, 0, sysFlag=2 | 4)) is None
    rig.clock.advance(1.4)
    rig.peer.sent.clear()  # the group has been told of its member
    rig.clock.advance(0.11)
    (answer,) = rig.peer.sent
    assert answer.code == ResponseCode.SUCCESS and b"hello" in answer.body


def test_a_short_delay_does_not_wait_for_the_next_look(rig: Rig) -> None:
    rig.clock.advance(0.05)
    send(rig, TIMER_DELAY_MS=7)
    rig.clock.advance(0.013)
    assert came(rig) == [b"hello"]


def test_deliveries_are_counted(rig: Rig) -> None:
    for _ in range(3):
        send(rig, TIMER_DELAY_MS=1500)
    rig.clock.advance(0.5)
    assert runtime_info(rig.state)["timerCongestNum"] == "3"
    rig.clock.advance(5)
    assert rig.state.stats.put_to("T").messages == 3
    info = runtime_info(rig.state)
    assert info["timerCongestNum"] == info["timerOffsetBehind"] == info["timerReadBehind"] == "0"
    assert float(info["timerDequeueTps"]) == pytest.approx(0.6, abs=0.2)


@pytest.mark.provokes("the timer wheel failed to turn")
def test_the_wheel_turns_on_after_a_failure(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(rig, TIMER_DELAY_MS=500)
    with monkeypatch.context() as patched:
        patched.setattr(type(rig.state.stats), "put_to", None)
        rig.clock.advance(0.6)
    assert "failed to turn" in caplog.text
    send(rig, TIMER_DELAY_MS=500)
    rig.clock.advance(1)
    assert len(came(rig)) == 2
    rig.state.timer.stop()
    send(rig, TIMER_DELAY_MS=500)
    rig.clock.advance(1)
    assert len(came(rig)) == 2


# Recalls.


def recall(rig: Rig, handle: str, topic: str = "T", **fields: object) -> Command:
    ext = {"producerGroup": "producers", "topic": topic, "recallHandle": handle} | fields
    answer = rig.call(RequestCode.RECALL_MESSAGE, ext)
    assert answer is not None
    return answer


def handle_of(*words: object) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, words)).encode()).decode()


def test_a_message_is_recalled_before_its_slot_comes(rig: Rig) -> None:
    handle = send(rig, b"first", "K1", TIMER_DELAY_MS=5300).ext["recallHandle"]
    send(rig, b"second", "K2", TIMER_DELAY_MS=5300)
    rig.clock.advance(4.9)
    answer = recall(rig, handle)
    assert (answer.code, answer.ext) == (0, {"msgId": "K1", "MSG_REGION": "DefaultRegion"})
    rig.clock.advance(10)
    assert came(rig) == [b"second"]


def test_a_recall_is_a_message_as_apaches(rig: Rig) -> None:
    recall(rig, send(rig, TIMER_DELAY_MS=5300).ext["recallHandle"])
    marker = rig.stored(TIMER_TOPIC)[1]
    assert (marker.body, marker.queue_id) == (b"0", 0)
    assert marker.properties == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": "K1",
        "UNIQ_KEY": "K1",
        "TIMER_DELIVER_MS": str(BASE_MS + 5001),
        "BORN_TIMESTAMP": str(BASE_MS),
        "PGROUP": "producers",
        "TIMER_OUT_MS": str(BASE_MS + 5000),
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
    }


def test_a_recall_without_padding_or_group_works(rig: Rig) -> None:
    handle = send(rig, TIMER_DELAY_MS=5300).ext["recallHandle"].rstrip("=")
    ext = {"topic": "T", "recallHandle": handle}
    answer = rig.call(RequestCode.RECALL_MESSAGE, ext)
    assert answer is not None and answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("handle", "topic", "code", "remark"),
    [
        (handle_of("v1", "T", "broker-a", BASE_MS + 5000, "K1"), "Nowhere", 17, "not exist"),
        (handle_of("v1", "T", "broker-a", BASE_MS + 5000, "K1"), "T2", 604, "topic not match"),
        (handle_of("v1", "T", "broker-b", BASE_MS + 5000, "K1"), "T", 604, "not available"),
        (handle_of("v1", "T", "broker-a", BASE_MS, "K1"), "T", 604, "timestamp invalid"),
        (handle_of("v1", "T", "broker-a", BASE_MS + 259_200_000, "K1"), "T", 604, "timestamp"),
        (handle_of("v1", "T", "broker-a", "soon", "K1"), "T", 604, "handle is invalid"),
        (handle_of("v2", "T", "broker-a", BASE_MS + 5000, "K1"), "T", 604, "handle is invalid"),
        (handle_of("v1", "T", "broker-a"), "T", 604, "handle is invalid"),
        ("%%%", "T", 604, "handle is invalid"),
        ("", "T", 604, "handle is invalid"),
    ],
)
def test_recalls_that_cannot_be_are_refused(
    rig: Rig, handle: str, topic: str, code: int, remark: str
) -> None:
    rig.topic("T2")
    answer = recall(rig, handle, topic)
    assert answer.code == code and remark in str(answer.remark)
    assert rig.stored(TIMER_TOPIC) == []


def test_recalls_have_to_be_allowed(rig: Rig) -> None:
    handle = send(rig, TIMER_DELAY_MS=5300).ext["recallHandle"]
    rig.configure(permission=4)
    assert recall(rig, handle).code == ResponseCode.SERVICE_NOT_AVAILABLE
    rig.configure(recall_enabled=False)
    answer = recall(rig, handle)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "recall failed, operation is forbidden"


def test_what_waits_for_a_retry_has_no_handle(rig: Rig) -> None:
    rig.topic("%RETRY%g")
    answer = rig.send("%RETRY%g", properties=text(UNIQ_KEY="K1", TIMER_DELAY_MS=5000))
    assert answer.code == ResponseCode.SUCCESS and "recallHandle" not in answer.ext
