"""The header of CONSUMER_SEND_MSG_BACK (36)."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class SendBackHeader(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36): deliver the record at this place to the group again, later."""

    log_offset: Int64 = field(name="offset")
    group: str
    delay_level: Int32 = field(name="delayLevel")  # 0: by the number of tries; below: dead letter
    origin_message_id: str | None = field(name="originMsgId", default=None)
    origin_topic: str | None = field(name="originTopic", default=None)
    unit_mode: bool = field(name="unitMode", default=False)
    reconsume_times_max: Int32 | None = field(name="maxReconsumeTimes", default=None)
    broker_name: str | None = field(name="bname", default=None)
