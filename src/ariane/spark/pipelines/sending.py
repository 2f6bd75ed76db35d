"""Rows on their way to the sink: what of a message goes on, and to which queue.

The sink keeps the order of a partition's rows that go to one queue, so messages that must stay in
order lie in one partition and go to one queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from ariane.errors import ConfigError
from ariane.spark.offsets import Queue
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.messages import kept_properties, origin, sharding_key, source_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

Order = Annotated[
    Literal["queue", "key", "none"],
    Meta(
        description="What stays in order: queue (a queue's messages go to one queue), key (those "
        "of a sharding key, or else of a key, go to one queue), or none."
    ),
]


class Places:
    """Which queue of a topic the messages of a queue go to, so that they stay in order.

    Queues are taken in turn, whichever broker has them: the third goes to the third, or round again
    where there are fewer.
    """

    def __init__(self, sources: Collection[Queue], targets: Mapping[str, int]) -> None:
        self._numbers: dict[str, int] = {}
        by_topic: dict[str, list[Queue]] = {}
        for queue in sorted(sources):
            by_topic.setdefault(queue.topic, []).append(queue)
        for queues in by_topic.values():
            self._numbers |= {"/".join(map(str, queue)): n for n, queue in enumerate(queues)}
        self._targets = dict(targets)

    def column(self, topic: Column) -> Column:
        """The number of the queue, among those of the topic that a message goes to."""
        from pyspark.sql import functions as F

        place = F.concat_ws("/", "topic", "brokerName", "queueId")
        # A queue that came later is in no list, but has a number of its own all the same.
        number = F.coalesce(_literal_map(self._numbers)[place], F.col("queueId"))
        return F.pmod(number, _literal_map(self._targets)[topic]).cast("int")


def queue_counts(namesrv: str, topics: tuple[str, ...]) -> dict[str, int]:
    """How many queues each topic has that can be sent to."""
    counts: dict[str, int] = {}
    for queue in queue_spans(source_options(namesrv, {}) | {"subscribe": ",".join(topics)}):
        counts[queue.topic] = counts.get(queue.topic, 0) + 1
    if missing := set(topics) - counts.keys():
        names = ", ".join(sorted(missing))
        raise ConfigError(f"no queue is known of {names}; create the topic first")
    return counts


def outgoing(
    messages: DataFrame,
    topic: Column,
    *,
    order: str,
    places: Places,
    told: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Messages as the sink takes them: body, keys, tags and the user's properties stay.

    Where they came from is told in properties, beside what `told` has for them.
    """
    from pyspark.sql import functions as F

    key = sharding_key()
    return messages.select(
        topic.alias("topic"),
        F.col("body"),
        F.col("keys"),
        F.col("tags"),
        kept_properties(origin() | dict(told or {})).alias("properties"),
        (places.column(topic) if order == "queue" else F.lit(None).cast("int")).alias("queueId"),
        (F.coalesce(key, F.col("keys")) if order == "key" else key).alias("shardingKey"),
    )


def in_order(messages: DataFrame, *, order: str) -> DataFrame:
    """A batch of messages, those of a queue in one partition and by offset."""
    if order == "none":
        return messages
    queue = ("topic", "brokerName", "queueId")
    return messages.repartition(*queue).sortWithinPartitions(*queue, "queueOffset")


def _literal_map(pairs: Mapping[str, int]) -> Column:
    from pyspark.sql import functions as F

    return F.create_map(*(F.lit(part) for pair in sorted(pairs.items()) for part in pair))
