"""From positions to offsets, and from ranges of offsets to partitions of a Spark job."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import ROWS_PER_BATCH, QueueBounds, QueueRange
from ariane.spark.offsets import Queue
from ariane.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Edge,
    Moment,
    NoMatch,
    OffsetsGiven,
    Position,
    Splits,
    TimesGiven,
)

Layout = Mapping[Queue, QueueBounds]  # the queues there are, and what can be read of each

SHARED_ROWS: Final = ROWS_PER_BATCH  # ranges are put together until a task has this much to do


def times_of(position: Position, layout: Layout) -> dict[Queue, int]:
    """The moments (ms) to look up for a position; none when it is not one in time."""
    if isinstance(position, Moment):
        return dict.fromkeys(layout, position.ms)
    if isinstance(position, TimesGiven):
        _check_queues(position.times, layout, position.option)
        return dict(position.times)
    return {}


def starts_of(
    position: Position, layout: Layout, at_times: Mapping[Queue, int], no_match: NoMatch
) -> dict[Queue, int]:
    """Where to begin in every queue; `at_times` holds what was found for `times_of`."""
    for queue, found in at_times.items():
        if found >= layout[queue].end and no_match is NoMatch.ERROR:
            raise ConfigError(
                f"{queue}: no message was stored at the starting time or later; choose an earlier "
                "one, or set startingOffsetsByTimestampStrategy=latest to begin at the end"
            )
    return _resolved(position, layout, at_times)


def ends_of(position: Position, layout: Layout, at_times: Mapping[Queue, int]) -> dict[Queue, int]:
    """Where to end in every queue; at its end when nothing is as young as the ending time."""
    return _resolved(position, layout, at_times)


def _resolved(
    position: Position, layout: Layout, at_times: Mapping[Queue, int]
) -> dict[Queue, int]:
    match position:
        case Edge.EARLIEST:
            return {queue: bounds.first for queue, bounds in layout.items()}
        case Edge.LATEST:
            return {queue: bounds.end for queue, bounds in layout.items()}
        case OffsetsGiven(offsets, option):
            _check_queues(offsets, layout, option, "; -2 is the earliest and -1 the latest")
            return {queue: _offset(offset, layout[queue]) for queue, offset in offsets.items()}
        case _:
            return {queue: min(at_times[queue], layout[queue].end) for queue in layout}


def _offset(given: int, bounds: QueueBounds) -> int:
    return {EARLIEST_OFFSET: bounds.first, LATEST_OFFSET: bounds.end}.get(given, given)


def _check_queues(given: Mapping[Queue, int], layout: Layout, option: str, hint: str = "") -> None:
    """A map must name exactly the queues that exist: to guess for the others would lose rows."""
    missing = sorted(layout.keys() - given.keys())
    extra = sorted(given.keys() - layout.keys())
    if missing or extra:
        parts = [
            f"{word}: {'; '.join(str(queue) for queue in queues)}"
            for word, queues in (("missing", missing), ("not there", extra))
            if queues
        ]
        raise ConfigError(
            f"{option} must name exactly the queues that are read ({', '.join(parts)}){hint}"
        )


def check_order(starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> None:
    """Raise ConfigError for a queue that would end before it starts."""
    for queue, start in starts.items():
        if start > ends[queue]:
            raise ConfigError(
                f"{queue}: the query would start at {start} and end at {ends[queue]}; "
                "give an end that is not before the start"
            )


def divide(
    ranges: Iterable[QueueRange], splits: Splits, record_bytes: Mapping[Queue, float]
) -> list[list[QueueRange]]:
    """Partitions, each of one or more ranges; ranges of a queue never overlap.

    Without options a queue is one partition, but little ones share: a task has its price.
    """
    whole = [one for one in ranges if one.end > one.start]
    counts = [_pieces(one, splits, record_bytes) for one in whole]
    _reach(counts, whole, splits.min_partitions or 0)
    pieces = [piece for one, count in zip(whole, counts, strict=True) for piece in _cut(one, count)]
    return _together(pieces, splits, record_bytes)


def queue_of(one: QueueRange) -> Queue:
    """The queue that a range lies in."""
    return Queue(one.topic, one.broker, one.queue_id)


def _pieces(one: QueueRange, splits: Splits, record_bytes: Mapping[Queue, float]) -> int:
    rows = one.end - one.start
    count = 1
    if splits.max_records is not None:
        count = -(-rows // splits.max_records)
    if splits.max_bytes is not None:
        rows_max = max(1, int(splits.max_bytes / max(1.0, record_bytes[queue_of(one)])))
        count = max(count, -(-rows // rows_max))
    return count


def _reach(counts: list[int], ranges: Sequence[QueueRange], wanted: int) -> None:
    """Cut the largest pieces again until there are as many as wanted, or of one row each."""
    total = sum(counts)
    sizes = [one.end - one.start for one in ranges]
    heap = [
        (-size / count, index)
        for index, (size, count) in enumerate(zip(sizes, counts, strict=True))
    ]
    heapq.heapify(heap)
    while total < wanted and heap:
        _, index = heapq.heappop(heap)
        if counts[index] < sizes[index]:
            counts[index] += 1
            total += 1
            heapq.heappush(heap, (-sizes[index] / counts[index], index))


def _cut(one: QueueRange, count: int) -> list[QueueRange]:
    rows = one.end - one.start
    edges = [one.start + rows * number // count for number in range(count + 1)]
    return [
        QueueRange(one.topic, one.broker, one.queue_id, first, end)
        for first, end in itertools.pairwise(edges)
    ]


def _together(
    pieces: list[QueueRange], splits: Splits, record_bytes: Mapping[Queue, float]
) -> list[list[QueueRange]]:
    """Neighbours share a partition while it stays small and enough partitions remain."""
    rows_max = min(SHARED_ROWS, splits.max_records or SHARED_ROWS)
    spare = len(pieces) - (splits.min_partitions or 0)  # how many may still be joined to others
    partitions: list[list[QueueRange]] = []
    rows, size = 0, 0.0
    for piece in pieces:
        more = piece.end - piece.start
        more_size = more * record_bytes[queue_of(piece)] if splits.max_bytes is not None else 0.0
        fits = rows + more <= rows_max and size + more_size <= (splits.max_bytes or 0)
        if partitions and fits and spare > 0:
            partitions[-1].append(piece)
            spare -= 1
            rows, size = rows + more, size + more_size
        else:
            partitions.append([piece])
            rows, size = more, more_size
    return partitions
