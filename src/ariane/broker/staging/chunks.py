"""Chunks in the log: how one is stored, and what a plan's reference to it must find.

A chunk is a message of the staging topic's first queue. Its body is a batch of rows for one queue
of one topic; its properties say whose they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ariane.codes import ResponseCode
from ariane.errors import RequestRejected
from ariane.protocol.bodies.staging import ChunkReference
from ariane.protocol.headers.staging import StageHeader
from ariane.protocol.properties import encode_properties, stored_properties_of
from ariane.store import chunks
from ariane.store.messages import NewMessage
from ariane.store.store import Store
from ariane.topics import STAGING_TOPIC

CHUNK_QUEUE: Final = 0
JOURNAL_QUEUE: Final = 1


class ChunkGone(RequestRejected):
    """A plan names what is not, or no more, there; the rows must be staged again."""

    code = ResponseCode.QUERY_NOT_FOUND


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the broker must know of a chunk to publish it."""

    log_offset: int
    topic: str
    queue_id: int
    query: str
    batch: int
    partition: int
    attempt: int
    sequence: int
    row_count: int
    late_count: int  # rows that ask for a time


def staged(
    header: StageHeader, body: bytes, late_count: int, born_host: tuple[str, int], now_ms: int
) -> NewMessage:
    """A chunk as it is stored."""
    properties = {
        "query": header.query_id,
        "batch": str(header.batch_id),
        "partition": str(header.partition),
        "attempt": str(header.attempt),
        "sequence": str(header.sequence),
        "topic": header.topic,
        "queue": str(header.queue_id),
        "rows": str(header.row_count),
        "late": str(late_count),
    }
    return NewMessage(
        topic=STAGING_TOPIC,
        queue_id=CHUNK_QUEUE,
        body=body,
        properties=encode_properties(properties).encode(),
        born_host=born_host,
        born_at_ms=header.born_at_ms or now_ms,
    )


def find(store: Store, reference: ChunkReference, query: str, batch: int) -> Chunk:
    """The chunk a plan refers to; ChunkGone when something else or nothing is there."""
    queue = store.queue(STAGING_TOPIC, CHUNK_QUEUE)
    entry = queue.entry(reference.offset) if 0 <= reference.offset < queue.end else None
    found = None if entry is None else chunks.head(store.log, entry[0])
    if entry is None or found is None:
        raise ChunkGone(
            f"chunk {reference.offset} is not in the log: it was removed with its segment, or lost"
            " in a power cut; run the batch again"
        )
    queue_offset, crc32, text = found
    chunk = _read(entry[0], text)
    if queue_offset != reference.offset or crc32 != reference.crc32 or chunk is None:
        raise ChunkGone(f"chunk {reference.offset} holds other rows than the plan says")
    if (chunk.query, chunk.batch) != (query, batch):
        raise ChunkGone(
            f"chunk {reference.offset} is of batch {chunk.batch} of {chunk.query}, not of batch"
            f" {batch} of {query}"
        )
    if chunk.row_count != reference.row_count:
        raise ChunkGone(
            f"chunk {reference.offset} has {chunk.row_count} rows, not {reference.row_count}"
        )
    return chunk


def _read(log_offset: int, text: bytes) -> Chunk | None:
    found = stored_properties_of(text)
    try:
        return Chunk(
            log_offset=log_offset,
            topic=found["topic"],
            queue_id=int(found["queue"]),
            query=found["query"],
            batch=int(found["batch"]),
            partition=int(found["partition"]),
            attempt=int(found["attempt"]),
            sequence=int(found["sequence"]),
            row_count=int(found["rows"]),
            late_count=int(found["late"]),
        )
    except (KeyError, ValueError):
        return None
