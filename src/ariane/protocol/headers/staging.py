"""Headers of batches that become visible at once: stage rows, publish them, ask, discard."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32, Int64


class StageHeader(Header, frozen=True, kw_only=True):
    """STAGE_CHUNK (20111), with rows in the encoding of SEND_BATCH_MESSAGE as its body."""

    query_id: str = field(name="queryId")
    batch_id: Int64 = field(name="batchId")
    partition: Int32
    attempt: Int64
    sequence: Int32  # which chunk of this attempt on this broker
    topic: str
    queue_id: Int32 = field(name="queueId")
    row_count: Int32 = field(name="rows")
    crc32: Int32 = field(name="crc32")
    born_at_ms: Int64 = field(name="bornTimestamp", default=0)


class StageReply(Header, frozen=True, kw_only=True):
    """Where a chunk waits."""

    chunk_offset: Int64 = field(name="chunkOffset")  # in the queue of chunks


class PublishHeader(Header, frozen=True, kw_only=True):
    """PUBLISH_BATCH (20112), with a `BatchPlan` as its body."""

    query_id: str = field(name="queryId")
    batch_id: Int64 = field(name="batchId")
    keep_hours: Int32 = field(name="keepHours", default=720)


class BatchHeader(Header, frozen=True, kw_only=True):
    """DISCARD_BATCH (20113) and PUBLISHED_BATCH (20114)."""

    query_id: str = field(name="queryId")
    batch_id: Int64 = field(name="batchId")
    brokers: str = ""  # comma-joined; remembered, to be named to whoever asks later
    keep_hours: Int32 = field(name="keepHours", default=720)


class BatchReply(Header, frozen=True, kw_only=True):
    """What became of a batch; the body is the plan that counts, if there is one and it is kept."""

    state: str  # one of BatchState
    last_batch_id: Int64 = field(name="lastBatchId", default=-1)
    row_count: Int64 = field(name="rows", default=0)  # of this broker
    brokers: str = ""  # every broker that the query has named
    has_grown: bool = field(name="hasGrown", default=False)  # by those that this request named
