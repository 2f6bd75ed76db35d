"""Recall handles: Apache's layout, read back, and what is no handle."""

import base64

import pytest

from ariane.errors import ProtocolError
from ariane.protocol.recall_handle import RecallHandle, decode_recall_handle

HANDLE = RecallHandle(
    topic="orders", broker_name="broker-a", deliver_at_ms=1_700_000_000_000, message_id="7F00"
)


def test_a_handle_is_base64_of_its_words() -> None:
    text = HANDLE.encode()
    assert base64.urlsafe_b64decode(text) == b"v1 orders broker-a 1700000000000 7F00"
    assert decode_recall_handle(text) == HANDLE
    assert decode_recall_handle(text.rstrip("=")) == HANDLE


@pytest.mark.parametrize(
    "words", ["", "v1 a b c d", "v1 a b 1", "v2 a b 1 d", "v1 a b 1 d e", "\xff"]
)
def test_what_is_not_a_handle_is_refused(words: str) -> None:
    with pytest.raises(ProtocolError):
        decode_recall_handle(base64.urlsafe_b64encode(words.encode("latin-1")).decode())
    with pytest.raises(ProtocolError):
        decode_recall_handle("not base64!")
