"""What a send's arguments mean, and what is refused before anything is sent."""

from datetime import UTC, datetime, timedelta

import pytest

from ariane.client import Message
from ariane.client.messages import BODY_BYTES_MAX, body_of, check, message_of, properties_of
from ariane.errors import InvalidMessage
from ariane.protocol.message import decode_properties

SOON = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)

REFUSED = {
    "no topic": (Message("", b"x"), "topic name is empty"),
    "a topic that is a path": (Message("../etc", b"x"), "may only hold"),
    "no body": (Message("t", b""), "empty"),
    "no text": (Message("t", ""), "empty"),
    "a body too long": (Message("t", bytes(BODY_BYTES_MAX + 1)), "split it"),
    "a text too long": (Message("t", "ä" * (BODY_BYTES_MAX // 2 + 1)), "split it"),
    "a body that is a number": (Message("t", 7), "bytes or text, not int"),  # type: ignore[arg-type]
    "a key that is a number": (Message("t", b"x", keys=7), "keys are text"),  # type: ignore[arg-type]
    "keys that are numbers": (Message("t", b"x", keys=[7]), "not text"),  # type: ignore[list-item]
    "a tag that is a number": (Message("t", b"x", tags=7), "not text"),  # type: ignore[arg-type]
    "a key with a blank": (Message("t", b"x", keys=["a b"]), "blank"),
    "an empty key": (Message("t", b"x", keys=[""]), "empty"),
    "tags as a property": (Message("t", b"x", properties={"TAGS": "x"}), "tags="),
    "a delay as a property": (Message("t", b"x", properties={"DELAY": "3"}), "delay_level="),
    "a name of RocketMQ's": (Message("t", b"x", properties={"UNIQ_KEY": "x"}), "belongs to"),
    "a separator in a value": (Message("t", b"x", properties={"a": "x\x02y"}), "separator"),
    "a separator in the tag": (Message("t", b"x", tags="x\x01"), "cannot be seen"),
    "a blank in the tag": (Message("t", b"x", tags="a b"), "holds a blank"),
    "two tags": (Message("t", b"x", tags="a||b"), "a message has one tag"),
    "a long tag": (Message("t", b"x", tags="x" * 129), "129 characters; a tag may have 128"),
    "a tag that is no text": (Message("t", b"x", tags=1), "tags=1 is not text"),  # type: ignore[arg-type]
    "a separator in the sharding key": (Message("t", b"x", sharding_key="x\x01"), "separator"),
    "an empty value": (Message("t", b"x", properties={"a": ""}), "a name and a value"),
    "a number as a value": (Message("t", b"x", properties={"a": 1}), "not text"),  # type: ignore[dict-item]
    "two delays": (Message("t", b"x", delay=1, delay_level=3), "one of"),
    "a delay and a time": (Message("t", b"x", delay=1, deliver_at=SOON), "one of"),
    "a delay into the past": (Message("t", b"x", delay=-1), "0 or more"),
    "no delay at all": (Message("t", b"x", delay=float("nan")), "0 or more"),
    "a level below the first": (Message("t", b"x", delay_level=-1), "begin at 1"),
}


@pytest.mark.parametrize(("message", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_no_broker_would_take_is_refused_here(message: Message, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        check(message)


DRESSED = {
    "nothing": (Message("t", b"x"), {}),
    "tags and keys": (
        Message("t", b"x", tags="A", keys=["k1", "k2"], properties={"a": "b"}),
        {"a": "b", "KEYS": "k1 k2", "TAGS": "A"},
    ),
    "one key": (Message("t", b"x", keys="k1"), {"KEYS": "k1"}),
    "keys as one text": (Message("t", b"x", keys="k1  k2"), {"KEYS": "k1 k2"}),
    "a sharding key": (Message("t", b"x", sharding_key="user-1"), {"__SHARDINGKEY": "user-1"}),
    "a delay level": (Message("t", b"x", delay_level=3), {"DELAY": "3"}),
    "seconds": (Message("t", b"x", delay=1.5), {"TIMER_DELAY_MS": "1500"}),
    "no time": (Message("t", b"x", delay=0), {"TIMER_DELAY_MS": "0"}),
    "a timedelta": (
        Message("t", b"x", delay=timedelta(hours=1)),
        {"TIMER_DELAY_MS": "3600000"},
    ),
    "a moment": (Message("t", b"x", deliver_at=SOON), {"TIMER_DELIVER_MS": "1893499200250"}),
    "a local moment": (
        Message("t", b"x", deliver_at=SOON.astimezone().replace(tzinfo=None)),
        {"TIMER_DELIVER_MS": "1893499200250"},
    ),
}


@pytest.mark.parametrize(("message", "properties"), DRESSED.values(), ids=DRESSED)
def test_fields_become_rocketmqs_properties(message: Message, properties: dict[str, str]) -> None:
    check(message)
    assert decode_properties(properties_of(message)) == properties
    assert message.is_delayed == any("DEL" in name for name in properties)


def test_a_send_takes_a_message_or_its_parts() -> None:
    message = Message("t", b"x", tags="A")
    assert message_of(message, None, {}) is message
    assert message_of("t", b"x", {"tags": "A"}) == message
    assert message_of(message, None, {"tags": "B", "delay": 3}) == Message(
        "t", b"x", tags="B", delay=3
    )
    with pytest.raises(InvalidMessage, match="needs a body"):
        message_of("t", None, {})
    with pytest.raises(InvalidMessage, match="not a Message and a body"):
        message_of(message, b"y", {})
    with pytest.raises(TypeError, match="tag"):
        message_of("t", b"x", {"tag": "A"})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize("body", ["ä", "ä".encode(), bytearray("ä".encode())])
def test_bodies_are_bytes_or_text(body: bytes | str) -> None:
    message = Message("t", body)
    check(message)
    assert body_of(message) == b"\xc3\xa4"
    assert body_of(Message("t", memoryview(b"xyz")[1:])) == b"yz"


def test_a_body_that_is_not_unicode_text_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="send bytes"):
        body_of(Message("t", "\udcff"))
