"""Headers of transactions: how one ends, how a broker asks after it, how one is tried anew."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class EndTransactionHeader(Header, frozen=True, kw_only=True):
    """END_TRANSACTION (37), one-way from most clients."""

    topic: str | None = None
    group: str = field(name="producerGroup")
    queue_offset: Int64 = field(name="tranStateTableOffset")  # of the half message
    log_offset: Int64 = field(name="commitLogOffset")  # of the half message
    decision: Int32 = field(name="commitOrRollback")  # the transaction bits of a system flag
    answers_check: bool | None = field(name="fromTransactionCheck", default=None)
    message_id: str = field(name="msgId")
    transaction_id: str | None = field(name="transactionId", default=None)
    broker_name: str | None = field(name="bname", default=None)


class CheckTransactionHeader(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), one-way to a producer, with the half message as its body."""

    topic: str | None = None
    queue_offset: Int64 = field(name="tranStateTableOffset")
    log_offset: Int64 = field(name="commitLogOffset")
    message_id: str | None = field(name="msgId", default=None)  # the unique key
    transaction_id: str | None = field(name="transactionId", default=None)
    offset_message_id: str | None = field(name="offsetMsgId", default=None)
    broker_name: str | None = field(name="bname", default=None)


class ResumeCheckHeader(Header, frozen=True, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323): a message that was given up is to be asked after again."""

    topic: str | None = None
    message_id: str | None = field(name="msgId", default=None)  # the offset id
