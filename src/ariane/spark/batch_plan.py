"""What a batch query reads: decided once, when Spark plans it."""

from __future__ import annotations

from ariane.spark.bytes.contract import QueueRange
from ariane.spark.losses import LossRules, check_end
from ariane.spark.options import SourceOptions
from ariane.spark.planning import check_order, divide, ends_of, queue_of, starts_of, times_of
from ariane.spark.survey import Cluster


def batch_partitions(options: SourceOptions, cluster: Cluster) -> list[list[QueueRange]]:
    """The ranges that the options ask for, divided among partitions."""
    layout = cluster.survey(options.selection).layout
    from_times = times_of(options.starting, layout)
    to_times = times_of(options.ending, layout)
    starts = starts_of(
        options.starting,
        layout,
        cluster.offsets_at(from_times) if from_times else {},
        options.no_match,
    )
    ends = ends_of(options.ending, layout, cluster.offsets_at(to_times) if to_times else {})
    rules = LossRules(fails=options.fails_on_data_loss)
    for queue, start in starts.items():
        check_end(queue, start, layout[queue])
    check_order(starts, ends)
    ranges = [
        rules.range_of(queue, starts[queue], ends[queue], layout[queue]) for queue in sorted(layout)
    ]
    sizes = {}
    if options.splits.max_bytes is not None:
        sizes = cluster.record_bytes(
            {queue_of(one): (one.start, one.end) for one in ranges if one.end > one.start}
        )
    return divide(ranges, options.splits, sizes)
