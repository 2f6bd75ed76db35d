"""The handle by which a message that waits for its time is taken back.

URL-safe base64 of `v1 topic broker-name deliver-time message-id`, so that whoever holds it knows
which broker to ask.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from ariane.errors import ProtocolError

_VERSION: Final = "v1"


class RecallHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Which message, where, and when it is due."""

    topic: str
    broker_name: str
    deliver_at_ms: int
    message_id: str  # the unique key

    def encode(self) -> str:
        """The handle as text."""
        words = (_VERSION, self.topic, self.broker_name, str(self.deliver_at_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Read a handle; raises ProtocolError when it is not one."""
    try:
        padded = text + "=" * (-len(text) % 4)
        version, topic, broker_name, deliver_at_ms, message_id = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
        )
        handle = RecallHandle(
            topic=topic,
            broker_name=broker_name,
            deliver_at_ms=int(deliver_at_ms),
            message_id=message_id,
        )
    except (ValueError, binascii.Error) as error:
        raise ProtocolError(f"{text!r} is not a recall handle") from error
    if version != _VERSION:
        raise ProtocolError(f"a recall handle of version {version!r}; {_VERSION} is known")
    return handle
