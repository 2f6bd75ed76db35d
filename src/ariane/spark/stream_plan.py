"""What each batch of a stream reads: decided here, without Spark.

Offsets come only from the checkpoint, ranges are half open and the log never changes, so a batch
that is replayed holds the same rows, and a restart reads nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ariane.clock import Clock
from ariane.errors import RouteNotFound
from ariane.spark.bytes.contract import QueueBounds, QueueRange
from ariane.spark.limits import Patience, admit
from ariane.spark.losses import LossRules, check_end
from ariane.spark.offsets import Queue, StreamOffset
from ariane.spark.options import Limits, SourceOptions
from ariane.spark.planning import divide, queue_of, starts_of, times_of
from ariane.spark.survey import Cluster, Survey

UNWATCHED_S: Final = 1.0  # a topic is not deleted, made and filled again in less


class StreamPlan:
    """One running query's plan."""

    def __init__(self, options: SourceOptions, cluster: Cluster, clock: Clock) -> None:
        self.newest: StreamOffset | None = None  # where queues ended when last looked at
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._rules = LossRules(fails=options.fails_on_data_loss)
        self._patience = Patience()
        self._targets: Mapping[Queue, QueueBounds] | None = None  # what AvailableNow reads up to
        self._planned: tuple[StreamOffset, Mapping[Queue, QueueBounds]] | None = None
        self._gone: set[Queue] = set()  # the user has been told
        self._looked_s = -math.inf  # at the cluster

    def initial(self) -> StreamOffset:
        """Where a query without a checkpoint begins."""
        layout = self._cluster.survey(self._options.selection).layout
        times = times_of(self._options.starting, layout)
        at_times = self._cluster.offsets_at(times) if times else {}
        starts = starts_of(self._options.starting, layout, at_times, self._options.no_match)
        for queue, start in starts.items():
            check_end(queue, start, layout[queue])
        return StreamOffset(starts)

    def freeze(self) -> None:
        """From now on read what is there now and no more; what is missing `latest` will tell."""
        self._targets = self._cluster.survey(self._options.selection, may_miss=True).layout

    def latest(self, start: StreamOffset, limits: Limits | None) -> StreamOffset:
        """Where the next batch ends; `start` itself when there is none. No limits: take all."""
        survey = self._survey(start)
        ends = self._ends(start, survey)
        firsts = {
            queue: survey.layout[queue].first
            for queue, end in ends.items()
            if queue not in start.queues and end > survey.layout[queue].first
        }
        starts = self._readable(start.queues, survey) | firsts
        ends = {queue: ends[queue] for queue in starts}
        self.newest = StreamOffset(ends)
        if limits is not None:
            now_s = self._clock.monotonic_s()
            is_endless = self._targets is None  # else nothing more is to come
            if is_endless and self._patience.holds_back(starts, ends, limits, now_s):
                return start
            sizes = self._record_bytes(starts, ends) if limits.max_bytes is not None else {}
            ends = admit(starts, ends, limits, sizes)
        if ends == start.queues:
            return start
        planned = StreamOffset(ends, firsts, _youngest(start.stored_ms, survey.stored_ms))
        self._planned = (planned, survey.layout)
        return planned

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[list[QueueRange]]:
        """The ranges between two offsets, divided among partitions."""
        ranges = self._ranges(start, end)
        sizes = {}
        if self._options.splits.max_bytes is not None:
            sizes = self._cluster.record_bytes(
                {queue_of(one): (one.start, one.end) for one in ranges}
            )
        return divide(ranges, self._options.splits, sizes)

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        layout = self._layout(end)
        starts = {**end.added, **start.queues}
        ranges = []
        for queue, stop in sorted(end.queues.items()):
            first = starts[queue]
            if first == stop:
                continue
            if queue not in layout:
                self._missing(queue, first, is_away=False)
                continue
            ranges.append(self._rules.range_of(queue, first, stop, layout[queue]))
        return ranges

    def _layout(self, end: StreamOffset) -> Mapping[Queue, QueueBounds]:
        if self._planned is not None and self._planned[0] == end:
            return self._planned[1]
        survey = self._survey(end)  # a batch that an earlier run has planned
        for queue in sorted(end.queues.keys() - survey.layout.keys()):
            self._missing(queue, end.queues[queue], is_away=queue.broker in survey.away)
        return survey.layout

    def _survey(self, read: StreamOffset) -> Survey:
        known = frozenset(read.queues) - frozenset(self._gone)
        survey = self._cluster.survey(self._options.selection, known=known)
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= UNWATCHED_S:
            self._check_same(read, survey.layout)
        self._looked_s = now_s
        return survey

    def _check_same(self, read: StreamOffset, layout: Mapping[Queue, QueueBounds]) -> None:
        """Find queues that were replaced while nobody looked, and have come past our offsets."""
        doubted = [
            queue
            for queue, offset in read.queues.items()
            if queue.broker in read.stored_ms
            and queue in layout
            and layout[queue].first < offset <= layout[queue].end
        ]
        for queue, oldest_ms in self._cluster.oldest_ms(doubted).items() if doubted else ():
            if oldest_ms > read.stored_ms[queue.broker]:
                self._rules.replaced(queue, read.queues[queue], layout[queue].first)

    def _ends(self, start: StreamOffset, survey: Survey) -> dict[Queue, int]:
        """Where queues end now; one that is not there stays where it was, should it come back."""
        targets = survey.layout if self._targets is None else self._targets
        ends = {
            queue: min(bounds.end, targets[queue].end)
            for queue, bounds in survey.layout.items()
            if queue in targets
        }
        for queue, wanted in start.queues.items():
            bounds = survey.layout.get(queue)
            if bounds is None:
                self._missing(queue, wanted, is_away=queue.broker in survey.away)
            else:
                check_end(queue, wanted, bounds)
                self._gone.discard(queue)
            ends[queue] = max(wanted, ends.get(queue, wanted))
        return ends

    def _readable(self, starts: Mapping[Queue, int], survey: Survey) -> dict[Queue, int]:
        """Where reading begins: what is lost, and may be, counts for no limit."""
        if self._rules.fails:
            return dict(starts)
        return {
            queue: max(start, survey.layout[queue].first) if queue in survey.layout else start
            for queue, start in starts.items()
        }

    def _missing(self, queue: Queue, wanted: int, *, is_away: bool) -> None:
        if queue in self._gone:
            return
        if is_away and self._rules.fails:
            raise RouteNotFound(
                f"{queue}: the broker is not registered with a name server, so nothing can be read "
                f"from offset {wanted} on; start it and then the query again, which goes on where "
                "it was, or set failOnDataLoss=false to go on without the queue"
            )
        why = (
            "the broker is away" if is_away else "the queue was removed, or is not chosen any more"
        )
        self._rules.removed(queue, wanted, why)
        self._gone.add(queue)

    def _record_bytes(
        self, starts: Mapping[Queue, int], ends: Mapping[Queue, int]
    ) -> Mapping[Queue, float]:
        return self._cluster.record_bytes(
            {queue: (starts[queue], end) for queue, end in ends.items() if end > starts[queue]}
        )


def _youngest(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {
        broker: max(before.get(broker, 0), now.get(broker, 0))
        for broker in sorted(before.keys() | now.keys())
    }


def limits_with(
    limits: Limits,
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    min_rows: int | None = None,
) -> Limits:
    """The options' limits, with the one that Spark names."""
    return replace(
        limits,
        max_offsets=limits.max_offsets if max_rows is None else max_rows,
        max_bytes=limits.max_bytes if max_bytes is None else max_bytes,
        min_offsets=limits.min_offsets if min_rows is None else min_rows,
    )
