"""Which way the bytes come: the one that was asked for, or the fastest that can be had.

What was found out about a broker is remembered while the worker lives, and said once in its log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ariane.clock import Clock, SystemClock
from ariane.errors import AccessImpossible, ConfigError
from ariane.spark.bytes import bulk, wire
from ariane.spark.bytes.brokers import Brokers
from ariane.spark.bytes.contract import (
    ROWS_PER_BATCH,
    AccessOptions,
    AccessWay,
    QueueRange,
    ReadFilter,
)
from ariane.spark.bytes.direct import DirectReader, Elsewhere
from ariane.spark.bytes.leases import Leases
from ariane.spark.bytes.link import Links
from ariane.spark.bytes.remote import Network, read_range
from ariane.spark.columns import Batches
from ariane.spark.losses import LossRules

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("ariane.spark")


class Ways:
    """The ways of one process, and what is known of the brokers."""

    def __init__(self, clock: Clock) -> None:
        links = Links()
        self.network = Network(links, Brokers(links, clock), clock)
        self.direct = DirectReader(Leases(self.network))
        self._impossible: dict[tuple[AccessWay, AccessOptions, str], str] = {}

    def read(
        self, queues: QueueRange, batches: Batches, options: AccessOptions, losses: LossRules
    ) -> Iterator[pa.RecordBatch]:
        """Batches that the range fills, by the first way that can be gone.

        A way that fails half-way is followed by the next from there on.
        """
        batches.gatherer.begin(queues.start, queues.end)
        for way in _order(options):
            key = (way, options, queues.broker)
            if way is not AccessWay.WIRE and options.access is not way and key in self._impossible:
                continue
            try:
                yield from self._by(way, queues, batches, options, losses)
                return
            except AccessImpossible as reason:
                if options.access is way:
                    raise
                if not isinstance(reason, Elsewhere):  # which may be otherwise next time
                    self._impossible[key] = str(reason)
                log.info("reading broker=%s not by %s: %s", queues.broker, way, reason)
        raise AccessImpossible(self._why_not(queues, options))

    def _by(
        self,
        way: AccessWay,
        queues: QueueRange,
        batches: Batches,
        options: AccessOptions,
        losses: LossRules,
    ) -> Iterator[pa.RecordBatch]:
        if way is AccessWay.DIRECT:
            return self.direct.read(queues, batches, options, losses)
        pieces = bulk.pieces if way is AccessWay.BULK else wire.pieces
        return read_range(
            self.network, pieces, queues, batches=batches, options=options, losses=losses
        )

    def _why_not(self, queues: QueueRange, options: AccessOptions) -> str:
        reasons = [
            f"{way}: {reason}"
            for (way, known, broker), reason in self._impossible.items()
            if known == options and broker == queues.broker
        ]
        return f"broker {queues.broker!r} cannot be read; {'; '.join(reasons)}"


def read_batches(
    options: AccessOptions,
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    message_filter: ReadFilter | None = None,
    *,
    fail_on_data_loss: bool = True,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges, as `contract.ReadBatches` says."""
    for queues in ranges:
        if not 0 <= queues.start <= queues.end:
            raise ConfigError(f"a range must not begin after its end: {queues}")
    makers = {
        broker: Batches(
            columns,
            broker=broker,
            rows_per_batch=rows_per_batch,
            message_filter=message_filter,
            check_crc=options.check_crc,
        )
        for broker in {queues.broker for queues in ranges}
    }
    return _read(options, ranges, makers, LossRules(fail_on_data_loss))


def _read(
    options: AccessOptions,
    ranges: Sequence[QueueRange],
    makers: dict[str, Batches],
    losses: LossRules,
) -> Iterator[pa.RecordBatch]:
    current: Batches | None = None
    for queues in ranges:
        batches = makers[queues.broker]
        if current is not None and current is not batches and current.gatherer.row_count:
            yield current.batch()
        current = batches
        yield from WAYS.read(queues, batches, options, losses)
    if current is not None and current.gatherer.row_count:
        yield current.batch()


def _order(options: AccessOptions) -> tuple[AccessWay, ...]:
    if options.access is not AccessWay.AUTO:
        return (options.access,)
    ways = (AccessWay.DIRECT,) if options.store_path else ()
    return (*ways, AccessWay.BULK, AccessWay.WIRE) if options.name_servers else ways


WAYS: Final = Ways(SystemClock())
