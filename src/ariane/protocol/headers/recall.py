"""Headers of taking back a message that still waits for its time."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header


class RecallHeader(Header, frozen=True, kw_only=True):
    """RECALL_MESSAGE (370); the handle is the one that the answer to the send carried."""

    group: str | None = field(name="producerGroup", default=None)
    topic: str
    recall_handle: str = field(name="recallHandle", default="")
    broker_name: str | None = field(name="bname", default=None)


class RecallReply(Header, frozen=True, kw_only=True):
    """Which message was taken back."""

    message_id: str = field(name="msgId")
    region: str | None = field(name="MSG_REGION", default=None)
