"""The header under which a broker pushes a reply to the client that asked for it."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class PushReplyHeader(Header, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), with the reply's body; hosts are written `ip:port`."""

    group: str = field(name="producerGroup")
    topic: str
    default_topic: str = field(name="defaultTopic")
    default_queue_count: Int32 = field(name="defaultTopicQueueNums")
    queue_id: Int32 = field(name="queueId")
    system_flag: Int32 = field(name="sysFlag")
    born_at_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = field(name="reconsumeTimes", default=None)
    unit_mode: bool | None = field(name="unitMode", default=None)
    born_host: str = field(name="bornHost")
    store_host: str = field(name="storeHost")
    stored_at_ms: Int64 = field(name="storeTimestamp")
