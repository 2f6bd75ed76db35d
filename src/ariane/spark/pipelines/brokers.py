"""What a pipeline asks of a cluster before it reads: queues, their ends, and offsets by time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from ariane.spark.cluster import cluster_of
from ariane.spark.offsets import Queue
from ariane.spark.options import SourceOptions, source_options
from ariane.spark.pipelines.ranges import Span
from ariane.spark.survey import Cluster


def queue_spans(options: Mapping[str, str]) -> dict[Queue, Span]:
    """What can be read now of every queue that the options select."""
    with _asked(options) as (cluster, chosen):
        layout = cluster.survey(chosen.selection).layout
        return {queue: Span(bounds.first, bounds.end) for queue, bounds in sorted(layout.items())}


def offsets_at(options: Mapping[str, str], queues: Collection[Queue], ms: int) -> dict[Queue, int]:
    """For each queue, the first offset stored at the moment or later."""
    with _asked(options) as (cluster, _):
        return cluster.offsets_at(dict.fromkeys(queues, ms))


@contextmanager
def _asked(options: Mapping[str, str]) -> Iterator[tuple[Cluster, SourceOptions]]:
    chosen = source_options(options, is_stream=False)
    cluster = cluster_of(chosen.access)
    try:
        yield cluster, chosen
    finally:
        cluster.close()
