"""Finding messages: by queue offset, by time, by key. Pure reads of what the kernel has mapped."""

from __future__ import annotations

from typing import Final, TypedDict

from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags, read
from ariane.store import filters
from ariane.store.indexes import Indexes
from ariane.store.messages import Boundary, Found, FoundStatus, QueryFound

QUERY_BYTES_MAX: Final = 15 << 20  # clients refuse a frame of more than 16 MiB


class ReadLimits(TypedDict):
    """Where a read stops, beside what its caller asks for."""

    memory_count_max: int
    memory_bytes_max: int
    disk_count_max: int
    disk_bytes_max: int
    memory_window: int
    scan_count_max: int


def find(
    log: Log,
    queue: Queue | None,
    first: int,
    *,
    count_max: int,
    bytes_max: int,
    tag_codes: frozenset[int] | None,
    limits: ReadLimits,
    expression: filters.Filter | None = None,
) -> Found:
    """Messages of a queue from `first` on, or what stands in the way."""
    if queue is None or not queue.has_entries:
        return Found(FoundStatus.NO_MATCHED_LOGIC_QUEUE, b"", 0, 0, 0, 0)
    low, high = queue.min_offset, log.visible_end(queue)
    if high == 0:
        return Found(FoundStatus.NO_MESSAGE_IN_QUEUE, b"", 0, 0, low, high)
    if first < low:
        return Found(FoundStatus.OFFSET_TOO_SMALL, b"", 0, low, low, high)
    if first == high:
        return Found(FoundStatus.OFFSET_OVERFLOW_ONE, b"", 0, first, low, high)
    if first > high:
        return Found(FoundStatus.OFFSET_OVERFLOW_BADLY, b"", 0, high, low, high)
    tags = None if tag_codes is None else Tags(tag_codes)
    if expression is None:
        body, count, next_offset = read(
            log, queue, first, tags, count_max=count_max, bytes_max=bytes_max, **limits
        )
    else:
        body, count, next_offset = filters.read(
            log, queue, first, expression, count_max=count_max, bytes_max=bytes_max, **limits
        )
    if count:
        status = FoundStatus.FOUND
    elif next_offset == first:
        status, next_offset = FoundStatus.OFFSET_FOUND_NULL, high
    elif tags is None and expression is None:
        status = FoundStatus.MESSAGE_WAS_REMOVING
    else:
        status = FoundStatus.NO_MATCHED_MESSAGE
    return Found(status, body, count, next_offset, low, high)


def store_ms_at(log: Log, queue: Queue | None, queue_offset: int) -> int:
    """When the message at a queue offset was stored; -1 when there is none to be seen."""
    if queue is None or not queue.min_offset <= queue_offset < log.visible_end(queue):
        return -1
    entry = queue.entry(queue_offset)
    return (log.store_ms_of(entry[0]) or -1) if entry else -1


def offset_at(log: Log, queue: Queue | None, timestamp_ms: int, boundary: Boundary) -> int:
    """The queue offset that belongs to a moment; store times never decrease along a queue."""
    if queue is None:
        return 0
    low, high = queue.min_offset, log.visible_end(queue)
    if low == high:
        return high if boundary is Boundary.LOWER else max(high - 1, 0)
    is_upper = boundary is Boundary.UPPER
    begin, end = low, high
    while begin < end:
        middle = (begin + end) // 2
        at_ms = store_ms_at(log, queue, middle)
        if at_ms < timestamp_ms or (is_upper and at_ms == timestamp_ms):
            begin = middle + 1
        else:
            end = middle
    if not is_upper:
        return begin
    return begin - 1 if begin > low else 0


def query(
    log: Log,
    indexes: Indexes,
    topic: str,
    key: str,
    *,
    count_max: int,
    begin_ms: int,
    end_ms: int,
) -> QueryFound:
    """Records whose key has the hash of `topic#key`, newest first; callers compare the key.

    Those that would not fit into one frame are left out, but never the newest.
    """
    offsets = indexes.query(
        topic.encode(), key.encode(), begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
    )
    records: list[bytes] = []
    size = 0
    for log_offset in dict.fromkeys(offsets):
        record = log.record(log_offset, log.visible)
        if record is None:
            continue
        size += len(record)
        if records and size > QUERY_BYTES_MAX:
            break
        records.append(record)
    newest = indexes.current
    return QueryFound(
        b"".join(records),
        len(records),
        newest.end_ms if newest else 0,
        newest.end_offset if newest else 0,
    )
