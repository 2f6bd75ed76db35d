"""Headers of producing: SEND_MESSAGE (10), its V2 (310) and batches (320)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64, decode_header


class SendHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE (10), and SEND_BATCH_MESSAGE from clients that spell names out."""

    group: str = field(name="producerGroup", default="")
    topic: str
    default_topic: str = field(name="defaultTopic", default="")  # Apache's broker does without, too
    default_queue_count: Int32 = field(name="defaultTopicQueueNums", default=0)
    queue_id: Int32 = field(name="queueId")  # negative: the broker chooses
    system_flag: Int32 = field(name="sysFlag")
    born_at_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = field(name="reconsumeTimes", default=None)
    unit_mode: bool | None = field(name="unitMode", default=None)
    is_batch: bool | None = field(name="batch", default=None)
    reconsume_times_max: Int32 | None = field(name="maxReconsumeTimes", default=None)
    broker_name: str | None = field(name="bname", default=None)


class SendHeaderV2(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE_V2 (310) and batches (320). One-letter wire names save bytes and stop here."""

    group: str = field(name="a", default="")
    topic: str = field(name="b")
    default_topic: str = field(name="c", default="")
    default_queue_count: Int32 = field(name="d", default=0)
    queue_id: Int32 = field(name="e")
    system_flag: Int32 = field(name="f")
    born_at_ms: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    reconsume_times_max: Int32 | None = field(name="l", default=None)
    is_batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)


class SendReply(Header, frozen=True, kw_only=True):
    """The answer to a send, in the order Apache writes it. Java fails without any field at all."""

    queue_id: Int32 = field(name="queueId")
    transaction_id: str | None = field(name="transactionId", default=None)
    message_id: str = field(name="msgId")  # the offset id, or one per batch entry, comma-joined
    trace_on: str | None = field(name="TRACE_ON", default=None)
    region: str | None = field(name="MSG_REGION", default=None)
    batch_unique_id: str | None = field(name="batchUniqId", default=None)
    recall_handle: str | None = field(name="recallHandle", default=None)
    queue_offset: Int64 = field(name="queueOffset")


def decode_send_header(ext: Mapping[str, str]) -> SendHeader | SendHeaderV2:
    """Read either spelling: any send code may come with long or one-letter names."""
    is_short = "a" in ext or "b" in ext
    return decode_header(SendHeaderV2, ext) if is_short else decode_header(SendHeader, ext)
