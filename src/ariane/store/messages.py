"""What goes into the store and what comes out of it, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(slots=True, frozen=True, kw_only=True)
class NewMessage:
    """One message to be placed. Its tag and keys are read from `properties` (encoded text)."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_host: tuple[str, int]
    born_at_ms: int
    flag: int = 0
    system_flag: int = 0  # the bits for IPv6 hosts are set by the store
    reconsume_times: int = 0
    prepared_offset: int = 0


class BatchEntry(NamedTuple):
    """One message of a batch; everything else comes from the batch."""

    flag: int
    body: bytes
    properties: bytes


@dataclass(slots=True, frozen=True, kw_only=True)
class NewBatch:
    """Messages that are placed together, in one segment, or not at all."""

    topic: str
    queue_id: int
    entries: Sequence[BatchEntry]
    born_host: tuple[str, int]
    born_at_ms: int
    system_flag: int = 0
    reconsume_times: int = 0


class Placed(NamedTuple):
    """Where a message went."""

    log_offset: int
    size: int
    queue_offset: int
    end_offset: int  # the message is durable once `flushed` reaches this
    store_ms: int
    message_id: str


class PlacedBatch(NamedTuple):
    """Where the messages of a batch went; the queue offset is the first one's."""

    log_offset: int
    size: int
    queue_offset: int
    end_offset: int
    store_ms: int
    message_ids: list[str]


@dataclass(slots=True, frozen=True, kw_only=True)
class StagedRows:
    """Rows of a chunk in the log that are to be placed, and how many of them at once."""

    topic: str
    queue_id: int
    chunk_offset: int  # the log offset of the chunk
    position: int  # of the first row in the chunk's body
    count_max: int
    bytes_max: int


class PlacedRows(NamedTuple):
    """Rows that were placed behind the note of it."""

    note: Placed
    row_count: int
    size: int
    queue_offset: int
    position: int  # of the next row in the chunk's body


class FoundStatus(Enum):
    """Outcomes of a read, by RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class Found(NamedTuple):
    """What a read found: records back to back, and where to go on."""

    status: FoundStatus
    body: bytes
    message_count: int
    next_offset: int
    min_offset: int
    max_offset: int


class QueryFound(NamedTuple):
    """Records whose key has the hash asked for, newest first, and how far the index reaches."""

    body: bytes
    message_count: int
    updated_ms: int
    log_offset: int


class Boundary(Enum):
    """Which neighbour a time stands for when no message has exactly that time."""

    LOWER = "LOWER"  # the first message at or after it
    UPPER = "UPPER"  # the last message at or before it
