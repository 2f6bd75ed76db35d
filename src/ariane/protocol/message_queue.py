"""One queue of one topic on one broker, as it appears in bodies and as a key in their maps."""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.headers import Int32


class MessageQueue(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Where messages of a topic are; equal when all three parts are."""

    broker_name: str = field(name="brokerName")
    queue_id: Int32 = field(name="queueId")
    topic: str
