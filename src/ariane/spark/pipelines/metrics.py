"""metrics: how much went through topics, how large, how fast from born to stored, by time windows.

Windows are of the time of storing. A batch run tells of every window; one that follows tells of a
window once, when it is over: `lateness` after its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, field

from ariane.errors import ConfigError
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.history import History, RangeConfig
from ariane.spark.pipelines.messages import FORMAT, source_options
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of
from ariane.spark.pipelines.queries import run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

NARROW: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, tags string, "
    "body binary, bornTimestamp timestamp, storeTimestamp timestamp"
)
TITLES: Final = (
    *("window_ms", "topic", "tags", "messages", "rate", "bytes", "mean_bytes", "max_bytes"),
    *("p50_ms", "p99_ms", "max_ms"),
)


class Config(RangeConfig, frozen=True, kw_only=True):
    """Options of `metrics`."""

    topics: settings.Topics
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    lake: Annotated[str, Meta(description="Count this lake's part too.")] = ""
    window: Annotated[float, Meta(description="Seconds of a window.", gt=0)] = 60.0
    by_tag: Annotated[bool, Meta(description="Count each tag by itself.")] = False
    to: Annotated[
        str,
        Meta(description="topic:NAME, or a directory for Parquet; else the windows are printed."),
    ] = ""
    follow: settings.Follow = False
    interval: settings.Interval = 10.0
    lateness: Annotated[
        float, Meta(description="Seconds to wait for what is stored late, with --follow.", ge=0)
    ] = 10.0
    checkpoint: settings.Checkpoint = ""
    source_options: settings.SourceOptions = field(default_factory=dict)
    sink_options: settings.SinkOptions = field(default_factory=dict)

    def check(self) -> None:
        """What follows keeps its progress, and begins now."""
        if self.follow and self.to and not self.checkpoint:
            raise ConfigError("--follow with --to needs --checkpoint, a directory for its progress")
        if self.follow and (self.since or self.until or self.lake or self.end_offset >= 0):
            raise ConfigError("--follow goes on from now; ranges and --lake are for a single run")
        self.bounds()


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Count what there is, or with `follow` what arrives."""
    return _followed(spark, config, report) if config.follow else _counted(spark, config)


def windows(messages: DataFrame, window_s: float, *, by_tag: bool = False) -> DataFrame:
    """One row for each window and topic, or each tag of it."""
    from pyspark.sql import functions as F

    size = F.length("body")
    late_ms = F.unix_millis("storeTimestamp") - F.unix_millis("bornTimestamp")
    keys = ["window", "topic", *(["tags"] if by_tag else [])]
    at = F.window("storeTimestamp", f"{round(window_s * 1000)} milliseconds")
    counted = (
        messages.withColumn("size", size)
        .withColumn("late_ms", late_ms)
        .groupBy(at.alias("window"), *keys[1:])
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.max("size").alias("max_bytes"),
            F.percentile_approx("late_ms", [0.5, 0.99], 10_000).alias("late"),
            F.max("late_ms").alias("max_ms"),
        )
    )
    return counted.select(
        F.unix_millis("window.start").alias("window_ms"),
        F.col("topic"),
        (F.col("tags") if by_tag else F.lit(None).cast("string")).alias("tags"),
        F.col("messages"),
        (F.col("messages") / F.lit(window_s)).alias("rate"),
        F.col("bytes"),
        (F.col("bytes") / F.col("messages")).alias("mean_bytes"),
        F.col("max_bytes"),
        F.col("late")[0].alias("p50_ms"),
        F.col("late")[1].alias("p99_ms"),
        F.col("max_ms"),
    )


def _counted(spark: SparkSession, config: Config) -> Outcome:
    history = History(
        spark,
        config.topics,
        lake=config.lake,
        namesrv=config.namesrv,
        options=config.source_options,
        fail_on_data_loss=False,
    )
    messages = history.read(bounds=config.bounds())
    found = windows(messages, config.window, by_tag=config.by_tag)
    if config.to:
        found = found.persist()
        _write(found, config)
    rows: list[Any] = found.orderBy("window_ms", "topic", "tags").collect()
    return Outcome(
        "metrics",
        {"messages": sum(row["messages"] for row in rows), "windows": len(rows)},
        **table_of(TITLES, [list(row) for row in rows]),
    )


def _followed(spark: SparkSession, config: Config, report: Report) -> Outcome:
    messages = (
        spark.readStream.format(FORMAT)
        .options(**source_options(config.namesrv, config.source_options))
        .option("subscribe", ",".join(config.topics))
        .schema(NARROW)
        .load()
        .withWatermark("storeTimestamp", f"{round(config.lateness * 1000)} milliseconds")
    )
    found = windows(messages, config.window, by_tag=config.by_tag)
    seen: list[Any] = []
    if config.to.startswith("topic:"):
        writer = _as_messages(found, config).writeStream.format(FORMAT).options(**_sink(config))
    elif config.to:
        writer = found.writeStream.format("parquet").option("path", config.to)
    else:
        writer = found.writeStream.foreachBatch(
            lambda rows, batch_id: seen.extend(rows.orderBy("window_ms", "topic", "tags").collect())
        )
    if config.checkpoint:
        writer = writer.option("checkpointLocation", config.checkpoint)
    writer = writer.outputMode("append")
    told = 0

    def note(progress: object) -> str:
        nonlocal told
        new, told = seen[told:], len(seen)
        return "; ".join(map(_line_of, new))

    batches = run_query(writer, report, follow=True, interval_s=config.interval, note=note)
    return Outcome(
        "metrics",
        {"messages": sum(batch.message_count for batch in batches), "windows": len(seen)},
        **table_of(TITLES, [list(row) for row in seen]),
    )


def _line_of(row: Any) -> str:
    name = " ".join(filter(None, [row["topic"], row["tags"]]))
    return f"{name} {row['rate']:,.1f} msg/s, p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms"


def _write(found: DataFrame, config: Config) -> None:
    if config.to.startswith("topic:"):
        _as_messages(found, config).write.format(FORMAT).options(**_sink(config)).mode(
            "append"
        ).save()
    else:
        found.write.mode("append").option("compression", "zstd").parquet(config.to)


def _as_messages(found: DataFrame, config: Config) -> DataFrame:
    """A message for each window, its body in JSON, its key the topic that it tells of."""
    from pyspark.sql import functions as F

    return found.select(
        F.lit(config.to.removeprefix("topic:")).alias("topic"),
        F.col("topic").alias("keys"),
        F.to_json(F.struct(*TITLES)).alias("body"),
    )


def _sink(config: Config) -> dict[str, str]:
    return source_options(config.namesrv, config.sink_options)
