"""hybrid: one table of a lake's past and a topic's present, without a gap and no row twice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, field

from ariane.errors import ConfigError
from ariane.spark.offsets import Queue
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.history import Bounds, History, RangeConfig
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter


class Config(RangeConfig, frozen=True, kw_only=True):
    """Options of `hybrid`."""

    topics: settings.Topics
    lake: settings.LakePath
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    to: Annotated[
        str, Meta(description="Write the messages here, as Parquet; else they are counted.")
    ] = ""
    fail_on_data_loss: Annotated[
        bool, Meta(description="Fail when neither the lake nor the topic has some messages.")
    ] = True
    source_options: settings.SourceOptions = field(default_factory=dict)


def read_hybrid(
    spark: SparkSession,
    topic: str,
    start: datetime | int | None = None,
    end: datetime | int | None = None,
    *,
    lake: str,
    namesrv: str = settings.DEFAULT_NAMESRV,
    options: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """The messages of a topic, or several with commas between them, wherever they are now.

    `start` and `end` are offsets of every queue, or the time of storing; the topic's end is that of
    this moment. Offsets or times, the seam between lake and topic is an offset of each queue.
    """
    history = History(
        spark,
        tuple(name.strip() for name in topic.split(",")),
        lake=lake,
        namesrv=namesrv,
        options=options,
        fail_on_data_loss=fail_on_data_loss,
    )
    return history.read(bounds=_bounds(start, end))


def _bounds(start: datetime | int | None, end: datetime | int | None) -> Bounds:
    return Bounds(
        since_ms=_ms_of(start),
        until_ms=_ms_of(end),
        first=start if isinstance(start, int) else 0,
        end=end if isinstance(end, int) else None,
    )


def _ms_of(moment: datetime | int | None) -> int | None:
    if not isinstance(moment, datetime):
        return None
    if moment.tzinfo is None:
        raise ConfigError(f"{moment} has no time zone; say datetime(..., tzinfo=UTC) or the like")
    return round(moment.timestamp() * 1000)


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Read across the seam; write the messages, or count them by queue and side."""
    from pyspark.sql import functions as F

    bounds = config.bounds()
    history = History(
        spark,
        config.topics,
        lake=config.lake,
        namesrv=config.namesrv,
        options=config.source_options,
        fail_on_data_loss=config.fail_on_data_loss,
    )
    messages = history.read(bounds=bounds)
    if config.to:
        messages.write.mode("errorifexists").option("compression", "zstd").parquet(config.to)
        messages = spark.read.parquet(config.to)
    counted: list[Any] = (
        messages.groupBy("topic", "brokerName", "queueId")
        .agg(F.count("*").alias("count"))
        .collect()
    )
    counts = {
        Queue(row["topic"], row["brokerName"], row["queueId"]): row["count"] for row in counted
    }
    rows = [
        [*queue, seam.first, seam.seam, seam.end, counts.get(queue, 0)]
        for queue, seam in history.queues.items()
    ]
    return Outcome(
        "hybrid",
        {"messages": sum(counts.values()), "queues": len(rows)},
        **table_of(["topic", "broker", "queue", "first", "seam", "end", "messages"], rows),
    )
