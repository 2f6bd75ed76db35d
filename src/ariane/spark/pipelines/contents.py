"""What messages are, by reading them: counts and checksums of queues, ids that came twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ariane.spark.offsets import Queue
from ariane.spark.pipelines.messages import within
from ariane.spark.pipelines.ranges import Spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter


class Counted(NamedTuple):
    """Messages of a queue."""

    message_count: int
    offset_count: int  # of different offsets; fewer when some are there twice
    common_checksum: int  # of those in the spans that are compared


class Duplicate(NamedTuple):
    """An id that several messages of a topic have."""

    topic: str
    message_id: str
    places: tuple[str, ...]


def counted(messages: DataFrame, compared: Spans) -> dict[Queue, Counted]:
    """The messages of each queue, and a checksum of those in the spans."""
    from pyspark.sql import functions as F

    marked = F.when(within(compared), F.xxhash64("queueOffset", F.crc32("body")))
    rows: list[Any] = (
        messages.withColumn("mark", marked)
        .groupBy("topic", "brokerName", "queueId")
        .agg(
            F.count("*").alias("count"),
            F.count_distinct("queueOffset").alias("offsets"),
            F.coalesce(F.bit_xor("mark"), F.lit(0)).alias("checksum"),
        )
        .collect()
    )
    return {
        Queue(row["topic"], row["brokerName"], row["queueId"]): Counted(
            row["count"], row["offsets"], row["checksum"]
        )
        for row in rows
    }


def duplicates(messages: DataFrame, at_most: int) -> list[Duplicate]:
    """Ids that messages at different places have, a few of them."""
    from pyspark.sql import functions as F

    place = F.concat_ws("/", "brokerName", "queueId", "queueOffset")
    rows: list[Any] = (
        messages.where(F.col("msgId").isNotNull())
        .groupBy("topic", "msgId")
        .agg(F.array_sort(F.collect_set(place)).alias("places"))
        .where(F.size("places") > 1)
        .orderBy("topic", "msgId")
        .limit(at_most)
        .collect()
    )
    return [Duplicate(row["topic"], row["msgId"], tuple(row["places"])) for row in rows]
