"""How much of a backlog one batch of a stream takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ariane.spark.offsets import Queue
from ariane.spark.options import Limits

Offsets = Mapping[Queue, int]


def admit(
    starts: Offsets, ends: Offsets, limits: Limits, record_bytes: Mapping[Queue, float]
) -> dict[Queue, int]:
    """Ends that keep to the limits: a batch is shared out among queues by their backlogs.

    `record_bytes` is the mean size of a queue's messages; only a limit of bytes needs it. As in
    Spark's Kafka source, every queue with a backlog takes at least one message.
    """
    admitted = dict(ends)
    backlogs = {queue: end - starts[queue] for queue, end in ends.items() if end > starts[queue]}
    if limits.max_offsets is not None:
        _share_out(admitted, starts, backlogs, limits.max_offsets / max(1, sum(backlogs.values())))
    if limits.max_bytes is not None:
        waiting = sum(backlog * record_bytes[queue] for queue, backlog in backlogs.items())
        _share_out(admitted, starts, backlogs, limits.max_bytes / max(1.0, waiting))
    return admitted


def _share_out(
    admitted: dict[Queue, int], starts: Offsets, backlogs: Mapping[Queue, int], share: float
) -> None:
    if share >= 1:
        return
    for queue, backlog in backlogs.items():
        admitted[queue] = min(admitted[queue], starts[queue] + max(1, math.floor(backlog * share)))


@dataclass(slots=True)
class Patience:
    """Holds batches back until they are worth it, or have waited for long enough."""

    last_s: float | None = None  # when a batch was let go

    def holds_back(self, starts: Offsets, ends: Offsets, limits: Limits, now_s: float) -> bool:
        """Whether to wait for more messages; the first batch of a run is never held back."""
        if limits.min_offsets is None:
            return False
        waiting = sum(max(0, end - starts[queue]) for queue, end in ends.items())
        is_due = self.last_s is None or now_s - self.last_s >= limits.max_delay_s
        if waiting < limits.min_offsets and not is_due:
            return True
        if waiting:
            self.last_s = now_s
        return False
