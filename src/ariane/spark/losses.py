"""When messages that a query wants are not there: what is an error, and what is stepped over.

Messages below a queue's first offset have gone by retention, and a queue may be removed: the user
decides by `failOnDataLoss`. An offset above a queue's end means that this is another queue than the
one that was read before, or one that has lost its end: going on would mix two histories, so that
is always an error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ariane.errors import DataLoss
from ariane.spark.bytes.contract import QueueBounds, QueueRange
from ariane.spark.offsets import Queue

log = logging.getLogger("ariane.spark")


@dataclass(frozen=True, slots=True)
class LossRules:
    """What the user wants done about messages that are gone."""

    fails: bool

    def range_of(self, queue: Queue, start: int, end: int, bounds: QueueBounds) -> QueueRange:
        """What can be read of [start, end); never anything outside of it."""
        check_end(queue, max(start, end), bounds)
        if start < bounds.first and start < end:
            lost = min(bounds.first, end) - start
            if self.fails:
                raise _loss(
                    queue,
                    start,
                    bounds.first,
                    f"{lost} messages are gone, removed by retention before they were read; "
                    "set failOnDataLoss=false to go on without them",
                )
            log.warning(
                "messages lost %s wanted=%d available=%d count=%d", queue, start, bounds.first, lost
            )
            start = min(bounds.first, end)
        return QueueRange(queue.topic, queue.broker, queue.queue_id, start, end)

    def removed(self, queue: Queue, wanted: int, why: str = "the queue was removed") -> None:
        """A queue that was read is not there any more."""
        if self.fails:
            raise _loss(
                queue, wanted, 0, f"{why}; set failOnDataLoss=false to go on without the queue"
            )
        log.warning("queue gone %s wanted=%d: %s", queue, wanted, why)

    def replaced(self, queue: Queue, wanted: int, first: int) -> None:
        """The queue is not the one that was read: what is in it came after what was read."""
        why = "the topic was deleted and created again, and has grown past it since"
        if self.fails:
            raise _loss(
                queue,
                wanted,
                first,
                f"{why}. Start the query anew, with a new checkpoint; or set failOnDataLoss=false "
                f"to go on at {wanted}",
            )
        log.warning("queue replaced %s wanted=%d available=%d: %s", queue, wanted, first, why)


def check_end(queue: Queue, wanted: int, bounds: QueueBounds) -> None:
    """Raise DataLoss for an offset that the queue has not reached yet, or not again."""
    if wanted > bounds.end:
        raise _loss(
            queue,
            wanted,
            bounds.end,
            f"the queue ends at {bounds.end}, before an offset that it had reached or was said to "
            "reach: was the topic deleted and created again, or did the broker lose its end? Start "
            "the query anew, with a new checkpoint",
        )


def _loss(queue: Queue, wanted: int, available: int, reason: str) -> DataLoss:
    return DataLoss(
        topic=queue.topic,
        broker=queue.broker,
        queue_id=queue.queue_id,
        wanted=wanted,
        available=available,
        reason=reason,
    )
