"""Directly from a store's files, on a local or a shared disk, while its broker runs or not.

Queue entries lead to records in the mapped log, and the kernel copies columns from there. What
retention takes away meanwhile is a loss, never garbage: what is mapped stays as it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ariane.errors import AccessImpossible, DataLoss
from ariane.spark._columns import STOP_FULL, STOP_LOG_MISSING
from ariane.spark.bytes.contract import (
    AccessOptions,
    AccessWay,
    QueueBounds,
    QueueRange,
    StoreMetadata,
)
from ariane.spark.bytes.leases import Lease, Leases
from ariane.spark.bytes.store_files import (
    ENTRY,
    NO_NAME,
    QueueFiles,
    StoreFiles,
    store_paths_of,
)
from ariane.spark.losses import LossRules
from ariane.spark.offsets import Queue

if TYPE_CHECKING:
    import pyarrow as pa

    from ariane.spark.columns import Batches

AHEAD_ROWS: Final = 20_000  # brought in from the disk before they are needed
AHEAD_BYTES_MAX: Final = 64 << 20  # a stretch of the log this long may lie between them
LEASED_ROWS_MIN: Final = 20_000  # a reader of fewer is done before a lease is granted
PROVEN_S: Final = 30.0  # for which a store counts as the broker's once it was shown to be
TORN_ATTEMPTS: Final = 5  # at an entry whose record is not there: a shared disk may lag
TORN_PAUSE_S: Final = 0.05

log = logging.getLogger("ariane.spark")


class Elsewhere(AccessImpossible):
    """These files do not have the range; others, or the broker, may."""


def store_metadata(options: AccessOptions) -> list[StoreMetadata]:
    """What the stores of `store_path` hold; raises AccessImpossible when one cannot be read."""
    return [StoreFiles(path, name or NO_NAME) for name, path in store_paths_of(options).items()]


class DirectReader:
    """Reads stores that this process can reach; their maps are kept for the next range."""

    def __init__(self, leases: Leases, pause: Callable[[float], Any] | None = None) -> None:
        self._leases = leases
        self._pause = pause or threading.Event().wait
        self._stores: dict[tuple[str | None, str], StoreFiles] = {}
        self._proven_s: dict[AccessOptions, dict[str, float]] = {}  # by broker, when last

    def read(
        self, queues: QueueRange, batches: Batches, options: AccessOptions, losses: LossRules
    ) -> Iterator[pa.RecordBatch]:
        """Batches that the range fills; raises AccessImpossible before the first row or never."""
        store = self._store(options, queues.broker)
        files = store.queue(queues.topic, queues.queue_id)
        gatherer = batches.gatherer
        if gatherer.is_done():
            return
        bounds = files.bounds()
        is_here = bounds.first <= gatherer.next_offset and queues.end <= bounds.end
        if not is_here and options.access is AccessWay.AUTO and options.name_servers:
            raise Elsewhere(f"the files have offsets {bounds.first} to {bounds.end} of {queues}")
        self._skip_lost(queues, batches, bounds, losses)
        lease = self._lease(queues, files, gatherer.next_offset, options)
        try:
            reading = _Reading(queues, store, files, lease)
            yield from self._rows(reading, batches, losses)
        finally:
            lease.end()

    def _rows(
        self, reading: _Reading, batches: Batches, losses: LossRules
    ) -> Iterator[pa.RecordBatch]:
        gatherer = batches.gatherer
        queues, store = reading.queues, reading.store
        topic = queues.topic.encode()
        ahead = torn = 0
        while not gatherer.is_done():
            position = gatherer.next_offset
            if position >= ahead:
                ahead = _read_ahead(reading, position)
            entries = reading.files.entries(position)
            gatherer.follow(store.log.view, entries, topic, queues.queue_id)
            torn = torn if gatherer.next_offset == position else 0
            if gatherer.is_full():
                yield batches.batch()
                reading.lease.renew(_log_offset(reading.files, gatherer.next_offset))
            elif gatherer.is_done():
                break
            elif gatherer.stop == STOP_LOG_MISSING and store.log.map_at(gatherer.stopped_at):
                continue
            elif gatherer.stop != STOP_FULL or not entries:
                # Gone, torn, or another queue by now: look at what there is.
                reading.files = store.queue(queues.topic, queues.queue_id)
                before = gatherer.next_offset
                self._skip_lost(queues, batches, reading.files.bounds(), losses)
                if gatherer.next_offset == before:
                    torn += 1
                    if torn > TORN_ATTEMPTS:
                        self._skip_damaged(queues, batches, losses)
                    else:
                        self._pause(TORN_PAUSE_S)

    def _skip_lost(
        self, queues: QueueRange, batches: Batches, bounds: QueueBounds, losses: LossRules
    ) -> None:
        queue = Queue(queues.topic, queues.broker, queues.queue_id)
        left = losses.range_of(queue, batches.gatherer.next_offset, queues.end, bounds)
        batches.gatherer.skip_to(left.start)

    def _skip_damaged(self, queues: QueueRange, batches: Batches, losses: LossRules) -> None:
        offset = batches.gatherer.next_offset
        if losses.fails:
            raise DataLoss(
                topic=queues.topic,
                broker=queues.broker,
                queue_id=queues.queue_id,
                wanted=offset,
                available=offset + 1,
                reason="its record in the log is damaged or belongs to another queue; check the "
                "store with `ariane store check`, or set failOnDataLoss=false to go on without it",
            )
        log.warning("message damaged, stepped over %s offset=%d", queues, offset)
        batches.gatherer.skip_to(offset + 1)

    def _store(self, options: AccessOptions, broker: str) -> StoreFiles:
        key = (options.store_path, broker)
        store = self._stores.get(key)
        if store is None:
            paths = store_paths_of(options)
            path = paths.get(broker) or paths.get("")
            if path is None:
                raise AccessImpossible(
                    f"no store directory is given for broker {broker!r}; set storePath, as in "
                    f"storePath={broker}=/path/to/its/store"
                )
            store = self._stores[key] = StoreFiles(path, broker)
        return store

    def _lease(
        self, queues: QueueRange, files: QueueFiles, first: int, options: AccessOptions
    ) -> Lease:
        """A lease for what takes a while; for less, as often as it proves that this is the log."""
        proven_s = self._proven_s.setdefault(options, {})
        now_s = self._leases.now_s()
        is_short = queues.end - first < LEASED_ROWS_MIN
        if is_short and now_s - proven_s.get(queues.broker, -PROVEN_S) < PROVEN_S:
            return Lease(None)
        lease = self._leases.new(queues, options)
        found = files.record_at(first)
        if found is not None:
            lease.begin(*found)
            proven_s[queues.broker] = now_s
        return lease


@dataclass(slots=True)
class _Reading:
    """One range under way."""

    queues: QueueRange
    store: StoreFiles
    files: QueueFiles
    lease: Lease


def _log_offset(files: QueueFiles, queue_offset: int) -> int:
    entry = files.entry(queue_offset)
    return 0 if entry is None else entry[0]


def _read_ahead(reading: _Reading, position: int) -> int:
    """Begin to bring in what is read next; returns the offset to do so again at."""
    entries = reading.files.entries(position)
    count = min(len(entries) // ENTRY.size, reading.queues.end - position, AHEAD_ROWS)
    if count > 1:
        first = ENTRY.unpack_from(entries)[0]
        last, size, _ = ENTRY.unpack_from(entries, (count - 1) * ENTRY.size)
        if 0 < last + size - first <= AHEAD_BYTES_MAX:
            reading.store.log.read_soon(first, last + size)
    return position + max(count // 2, 1)
