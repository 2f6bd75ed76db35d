"""Headers of BULK_READ (20101) and READ_LEASE (20102), which are Ariane's own."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class BulkReadHeader(Header, frozen=True, kw_only=True):
    """BULK_READ: the records of one queue from an offset on, as many as fit."""

    topic: str
    queue_id: Int32 = field(name="queueId")
    queue_offset: Int64 = field(name="offset")
    end_offset: Int64 = field(name="endOffset")
    bytes_max: Int32 = field(name="maxBytes")
    subscription: str | None = None  # tags to let through by their codes, as in `A || B`


class BulkReadReply(Header, frozen=True, kw_only=True):
    """Where to go on, and the bounds of the queue."""

    next_offset: Int64 = field(name="nextOffset")
    min_offset: Int64 = field(name="minOffset")
    max_offset: Int64 = field(name="maxOffset")


class ReadLeaseHeader(Header, frozen=True, kw_only=True):
    """READ_LEASE: keep the log from an offset on; 0 seconds ends the lease."""

    lease_id: str = field(name="leaseId")
    log_offset: Int64 = field(name="logOffset")
    seconds: Int32


class ReadLeaseReply(Header, frozen=True, kw_only=True):
    """For how long, and what tells whether the asker sees the same log."""

    seconds: Int32
    store_path: str = field(name="storePath")
    min_log_offset: Int64 = field(name="minLogOffset")
    record_crc: Int64 = field(name="recordCrc")  # CRC-32 of the record there; -1 for none
