"""Offsets of a topic and of its copy: which is which, by what each copied message tells of itself.

Runs of messages that went from one queue to one queue side by side are one row: source offsets
[first, end) became `copied_first` and on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ariane.spark.offsets import Queue
from ariane.spark.pipelines.messages import FORMAT, ORIGIN_OFFSET, ORIGIN_QUEUE, ORIGIN_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

NARROW: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, "
    "properties map<string,string>"
)
SOURCE: Final = ("source_topic", "source_broker", "source_queue")
COPY: Final = ("topic", "broker", "queue")


def translation(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The table for the copies that the options select."""
    copies = spark.read.format(FORMAT).options(**options).schema(NARROW).load()
    return runs(copies)


def runs(copies: DataFrame) -> DataFrame:
    """Source and copied offsets, a row for each run of them."""
    from pyspark.sql import functions as F

    properties = F.col("properties")
    place = F.split(properties[ORIGIN_QUEUE], "/")
    found = copies.where(properties[ORIGIN_OFFSET].isNotNull()).select(
        properties[ORIGIN_TOPIC].alias("source_topic"),
        place[0].alias("source_broker"),
        place[1].cast("int").alias("source_queue"),
        properties[ORIGIN_OFFSET].cast("bigint").alias("source_offset"),
        F.col("topic"),
        F.col("brokerName").alias("broker"),
        F.col("queueId").alias("queue"),
        F.col("queueOffset").alias("offset"),
    )
    return (
        found.withColumn("distance", F.col("offset") - F.col("source_offset"))
        .groupBy(*SOURCE, *COPY, "distance")
        .agg(
            F.min("source_offset").alias("first"),
            (F.max("source_offset") + 1).alias("end"),
            F.min("offset").alias("copied_first"),
            F.count("*").alias("messages"),
        )
        .drop("distance")
        .orderBy(*SOURCE, "first")
    )


def positions(
    spark: SparkSession, pairs: DataFrame, done: Mapping[Queue, int | None]
) -> dict[Queue, int]:
    """Where a group is in the copy that has done these offsets of the source.

    In each queue of the copy that is its first message that is not done: nothing is left out, and
    where the order of queues was not kept, what lies behind it may come again.
    """
    from pyspark.sql import functions as F

    rows = [(*queue, offset or 0) for queue, offset in done.items()]
    if not rows:
        return {}
    kinds = "source_topic string, source_broker string, source_queue int, done bigint"
    progress = spark.createDataFrame(rows, kinds)
    first_left = F.when(
        F.col("end") > F.col("done"),
        F.col("copied_first") + F.greatest(F.col("done") - F.col("first"), F.lit(0)),
    )
    end = F.max(F.col("copied_first") + F.col("end") - F.col("first"))
    found: list[Any] = (
        pairs.join(F.broadcast(progress), list(SOURCE))
        .groupBy(*COPY)
        .agg(F.coalesce(F.min(first_left), end).alias("position"))
        .orderBy(*COPY)
        .collect()
    )
    return {Queue(row["topic"], row["broker"], row["queue"]): row["position"] for row in found}
