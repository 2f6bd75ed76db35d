"""Checks before sending, and how a message is dressed."""

import zlib

import pytest

from ariane.client import Message
from ariane.client.messages import BODY_BYTES_MAX, check, compressed, dressed_properties
from ariane.errors import InvalidMessage

REFUSED = {
    "no topic": (Message("", b""), "empty"),
    "a topic that is a path": (Message("../etc", b""), "may only hold"),
    "a body too long": (Message("t", bytes(BODY_BYTES_MAX + 1)), "split it"),
    "a key with a blank": (Message("t", b"", keys=["a b"]), "blank"),
    "an empty key": (Message("t", b"", keys=[""]), "empty"),
    "tags as a property": (Message("t", b"", properties={"TAGS": "x"}), "tags="),
    "a name of RocketMQ's": (Message("t", b"", properties={"UNIQ_KEY": "x"}), "belongs to"),
    "a separator in a value": (Message("t", b"", properties={"a": "x\x02y"}), "separator"),
    "a separator in the tags": (Message("t", b"", tags="x\x01"), "separator"),
    "an empty value": (Message("t", b"", properties={"a": ""}), "a name and a value"),
}


@pytest.mark.parametrize(("message", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_no_broker_would_take_is_refused_here(message: Message, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        check(message)


def test_properties_carry_tags_keys_and_the_unique_key() -> None:
    message = Message("t", b"x", tags="A", keys=["k1", "k2"], properties={"a": "b"}, wait=False)
    check(message)
    assert dressed_properties(message, "ID") == {
        "a": "b",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "UNIQ_KEY": "ID",
        "WAIT": "false",
    }


def test_only_long_bodies_that_shrink_are_compressed() -> None:
    assert compressed(b"x" * 4095) == (b"x" * 4095, 0)
    packed, system_flag = compressed(b"x" * 4096)
    assert system_flag == 0x301
    assert zlib.decompress(packed) == b"x" * 4096
    noise = zlib.compress(bytes(range(256)) * 4096)[:4096] * 1
    assert compressed(noise)[1] in (0, 0x301)
    assert len(compressed(noise)[0]) <= len(noise)
