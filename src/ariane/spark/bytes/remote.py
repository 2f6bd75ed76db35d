"""Reading a range from a broker: pieces come over a link, rows come out, faults are waited out.

Where to go on after a fault is what the gatherer has not seen yet, so nothing is lost or doubled
however often the connection breaks. A way that brings no more after `retries` new attempts and
`timeout_s` seconds is given up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ariane.clock import Clock
from ariane.errors import (
    BrokerBusy,
    BrokerUnavailable,
    ConnectionLost,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
)
from ariane.spark.bytes.brokers import Brokers
from ariane.spark.bytes.contract import AccessOptions, QueueBounds, QueueRange
from ariane.spark.bytes.link import Link, Links
from ariane.spark.losses import LossRules
from ariane.spark.offsets import Queue

if TYPE_CHECKING:
    import pyarrow as pa

    from ariane.spark.columns import Batches

FIRST_PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
PASSING: Final = (ConnectionLost, RequestTimeout, RouteNotFound, BrokerBusy, BrokerUnavailable)

log = logging.getLogger("ariane.spark")


class Piece(NamedTuple):
    """Records from one answer, and what the broker said of the queue."""

    data: Any  # whole records, back to back
    next_offset: int  # everything below it was looked at
    bounds: QueueBounds
    is_lost: bool = False  # what lies below `next_offset` was there and is gone


class Pieces(Protocol):
    """A way of asking a broker: from an offset on, until the end or until nobody wants more."""

    def __call__(
        self, link: Link, queues: QueueRange, batches: Batches, options: AccessOptions
    ) -> Iterator[Piece]:
        """Answers in the order of their offsets, from the gatherer's next one on."""
        ...


@dataclass(frozen=True, slots=True)
class Network:
    """What readers of one process share."""

    links: Links
    brokers: Brokers
    clock: Clock
    pause: Callable[[float], Any] = threading.Event().wait


def read_range(
    network: Network,
    pieces: Pieces,
    queues: QueueRange,
    *,
    batches: Batches,
    options: AccessOptions,
    losses: LossRules,
) -> Iterator[pa.RecordBatch]:
    """Batches that the range fills; what does not fill one stays with `batches`."""
    gatherer = batches.gatherer
    attempts = 0
    progress = (gatherer.next_offset, network.clock.monotonic_s())
    while not gatherer.is_done():
        try:
            address = network.brokers.address(
                options.name_servers, queues.topic, queues.broker, options.timeout_s
            )
            link = network.links.get(address, options.timeout_s)
            try:
                for piece in pieces(link, queues, batches, options):
                    yield from _rows(piece, queues, batches, losses)
                    if gatherer.is_done():
                        break
            finally:
                network.links.put_back(link)
        except PASSING as error:
            network.brokers.forget()
            if gatherer.next_offset > progress[0]:
                attempts = 0
                progress = (gatherer.next_offset, network.clock.monotonic_s())
            attempts += 1
            waited_s = network.clock.monotonic_s() - progress[1]
            if attempts > options.retries and waited_s >= options.timeout_s:
                raise
            log.info("reading again queue=%s at=%d after %s", _queue_of(queues), progress[0], error)
            network.pause(min(FIRST_PAUSE_S * 2 ** (attempts - 1), PAUSE_MAX_S))


def _rows(
    piece: Piece, queues: QueueRange, batches: Batches, losses: LossRules
) -> Iterator[pa.RecordBatch]:
    gatherer = batches.gatherer
    bounds = piece.bounds
    if piece.is_lost:
        bounds = QueueBounds(max(bounds.first, piece.next_offset), bounds.end)
    if bounds.first > gatherer.next_offset or bounds.end < queues.end:
        left = losses.range_of(_queue_of(queues), gatherer.next_offset, queues.end, bounds)
        gatherer.skip_to(left.start)
    position, end = 0, len(piece.data)
    while position < end:
        position = gatherer.walk(piece.data, position)
        if gatherer.is_full():
            yield batches.batch()
    gatherer.skip_to(piece.next_offset)


def refusal(code: int, remark: str, link: Link) -> RequestFailed:
    """The error for an answer that brings nothing."""
    return RequestFailed.of(code, f"{remark} [{link.address}]")


def _queue_of(queues: QueueRange) -> Queue:
    return Queue(queues.topic, queues.broker, queues.queue_id)
