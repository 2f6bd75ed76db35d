"""Every kind of message is read alike."""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest

from ariane import PolledMessage, Readable, ReceivedMessage, StoredMessage, UnreadableBody, sync
from ariane.client.records import decode
from ariane.protocol.message import decode_records
from tests.unit.client.fake import record

KINDS = (PolledMessage, ReceivedMessage, sync.ReceivedMessage, StoredMessage)


@dataclass
class Order:
    id: int
    item: str = "apples"


def read(kind: type[Readable], body: bytes) -> Readable:
    raw = record(body=body, properties={"KEYS": "k1 k2", "__SHARDINGKEY": "user"})
    found = decode_records(raw) if kind is StoredMessage else decode(raw, kind)  # type: ignore[type-var]
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_is_bytes_text_and_json(kind: type[Readable]) -> None:
    message = read(kind, '{"id": 42, "item": "Äpfel"}'.encode())
    assert isinstance(message, Readable)
    assert message.text == '{"id": 42, "item": "Äpfel"}'
    assert message.json() == {"id": 42, "item": "Äpfel"}
    assert message.json(Order) == Order(42, "Äpfel")
    assert message.json(dict[str, int | str])["id"] == 42
    assert (message.keys, message.sharding_key) == (["k1", "k2"], "user")
    assert message.stored_at == datetime.fromtimestamp(message.stored_at_ms / 1000, UTC)
    assert message.born_at == datetime.fromtimestamp(message.born_at_ms / 1000, UTC)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_something_else_says_which_message_and_why(kind: type[Readable]) -> None:
    message = read(kind, b'{"id": "\xff"}')
    with pytest.raises(UnreadableBody, match=f"{message.message_id}.*can't decode"):
        _ = message.text
    with pytest.raises(UnreadableBody, match="not the JSON"):
        message.json()
    with pytest.raises(ValueError, match="Expected `int`, got `str`") as caught:
        read(kind, b'{"id": "42"}').json(Order)
    assert isinstance(caught.value.__cause__, msgspec.ValidationError)
    assert not caught.value.retriable  # type: ignore[attr-defined]


def test_only_what_was_received_can_be_settled() -> None:
    for name in ("ack", "nack", "extend", "is_settled"):
        assert hasattr(ReceivedMessage, name)
        assert hasattr(sync.ReceivedMessage, name)
        assert not hasattr(PolledMessage, name)
        assert not hasattr(StoredMessage, name)
