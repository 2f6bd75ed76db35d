"""trace: RocketMQ's trace topic, one row a message: sent, delivered, consumed, how long it took.

Clients tell of each event by a line (`client/trace.py` has its fields). Lines of a message may be
in any order and in several trace messages; here they come together by the id of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, field

from ariane.protocol.properties import NAME_END, VALUE_END
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.history import History, RangeConfig
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of
from ariane.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

TITLES: Final = (
    *("topic", "group", "messages", "deliveries", "orphans", "doubles", "failed"),
    *(
        "send_p50_ms",
        "send_p99_ms",
        "consume_p50_ms",
        "consume_p99_ms",
        "total_p50_ms",
        "total_p99_ms",
    ),
)


class Config(RangeConfig, frozen=True, kw_only=True):
    """Options of `trace`."""

    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    trace_topic: Annotated[str, Meta(description="The topic that clients trace to.")] = TRACE_TOPIC
    topics: Annotated[
        tuple[str, ...], Meta(description="Only messages of these topics; else of all.")
    ] = ()
    lake: Annotated[str, Meta(description="Read this lake's part of the trace topic too.")] = ""
    to: Annotated[str, Meta(description="Write the rows here, as Parquet.")] = ""
    source_options: settings.SourceOptions = field(default_factory=dict)


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Bring the lines of each message together; the outcome sums them up by topic and group."""
    history = History(
        spark,
        (config.trace_topic,),
        lake=config.lake,
        namesrv=config.namesrv,
        options=config.source_options,
        fail_on_data_loss=False,
    )
    rows = journeys(history.read(bounds=config.bounds()))
    if config.topics:
        rows = rows.where(rows["topic"].isin(*config.topics))
    if config.to:
        rows.write.mode("errorifexists").option("compression", "zstd").parquet(config.to)
        rows = spark.read.parquet(config.to)
    else:
        rows = rows.persist()
    summed: list[Any] = summary(rows).collect()
    totals: Any = rows.selectExpr(
        "count(*) AS messages",
        "count_if(isOrphan) AS orphans",
        "count_if(isDouble) AS doubles",
        "count_if(sentMs IS NULL) AS unsent",
    ).first()
    rows.unpersist()
    return Outcome("trace", totals.asDict(), **table_of(TITLES, [list(row) for row in summed]))


def journeys(traces: DataFrame) -> DataFrame:
    """One row for each message that the lines of trace messages tell of.

    `consumers` has an item for each group. A message is an orphan when it was sent and no group has
    finished it, unless its transaction was rolled back; it is a double when a group finished it
    more than once, or was given it more often than it was tried again.
    """
    from pyspark.sql import functions as F

    told = events(traces)
    sent = _sent(told)
    consumed = _consumers(_deliveries(told))
    rows = sent.join(consumed, "msgId", "full")
    groups = F.coalesce("consumers", F.array())
    is_done = F.exists(groups, lambda each: each["successes"] > 0)
    is_rolled_back = F.coalesce("transaction", F.lit("")) == "ROLLBACK_MESSAGE"
    is_twice = F.exists(
        groups,
        lambda each: (each["successes"] > 1) | (each["deliveries"] > each["lastTry"] + 1),
    )
    last_ms = F.array_max(F.transform(groups, lambda each: each["doneMs"]))
    return rows.select(
        *("msgId", "topic", "tags", "keys", "producerGroup", "sentMs", "sendCostMs", "isSent"),
        *("bodyBytes", "transaction"),
        groups.alias("consumers"),
        F.aggregate(groups, F.lit(0).cast("bigint"), lambda n, each: n + each["deliveries"]).alias(
            "deliveries"
        ),
        (last_ms - F.col("sentMs")).alias("totalMs"),
        (F.col("sentMs").isNotNull() & F.col("isSent") & ~is_done & ~is_rolled_back).alias(
            "isOrphan"
        ),
        is_twice.alias("isDouble"),
    )


def summary(rows: DataFrame) -> DataFrame:
    """Journeys by topic and group."""
    from pyspark.sql import functions as F

    def percentiles(name: str) -> tuple[Column, Column]:
        found = F.percentile_approx(name, [0.5, 0.99], 10_000)
        return found[0], found[1]

    each = rows.select("*", F.explode_outer("consumers").alias("c"))
    return (
        each.select(
            F.coalesce("topic", F.lit("unknown")).alias("topic"),
            F.col("c.group").alias("group"),
            F.coalesce("c.deliveries", F.lit(0)).alias("given"),
            F.col("isOrphan").cast("int").alias("orphan"),
            ((F.col("c.successes") > 1) | (F.col("c.deliveries") > F.col("c.lastTry") + 1))
            .cast("int")
            .alias("double"),
            (F.col("c.successes") == 0).cast("int").alias("failed"),
            F.col("sendCostMs"),
            F.col("c.costMs").alias("costMs"),
            (F.col("c.doneMs") - F.col("sentMs")).alias("totalMs"),
        )
        .groupBy("topic", "group")
        .agg(
            F.count("*").alias("messages"),
            F.sum("given").alias("deliveries"),
            F.sum("orphan").alias("orphans"),
            F.coalesce(F.sum("double"), F.lit(0)).alias("doubles"),
            F.coalesce(F.sum("failed"), F.lit(0)).alias("failed"),
            *percentiles("sendCostMs"),
            *percentiles("costMs"),
            *percentiles("totalMs"),
        )
        .orderBy("topic", "group")
    )


def events(traces: DataFrame) -> DataFrame:
    """The lines of trace messages, as arrays of their fields in a column `f`."""
    from pyspark.sql import functions as F

    lines = traces.select(F.explode(F.split(F.col("body").cast("string"), VALUE_END)).alias("line"))
    return lines.where("line != ''").select(F.split("line", NAME_END).alias("f"))


def _field(number: int, kind: str = "string") -> Column:
    """A field by its number; null where a line is shorter, as those of old clients are."""
    from pyspark.sql import functions as F

    return F.get("f", number).try_cast(kind)


def _sent(told: DataFrame) -> DataFrame:
    """What producers told, one row a message."""
    from pyspark.sql import functions as F

    is_end = _field(0) == "EndTransaction"
    # Old clients tell no offset id, so the field behind it comes one earlier.
    success = F.when(F.size("f") <= 13, _field(12, "boolean")).otherwise(_field(13, "boolean"))
    lines = told.where((_field(0) == "Pub") | is_end).select(
        _field(5).alias("msgId"),
        _field(3).alias("producerGroup"),
        _field(4).alias("topic"),
        _field(6).alias("tags"),
        _field(7).alias("keys"),
        F.when(~is_end, _field(1, "bigint")).alias("sentMs"),
        F.when(~is_end, _field(9, "bigint")).alias("bodyBytes"),
        F.when(~is_end, _field(10, "bigint")).alias("sendCostMs"),
        F.when(~is_end, success).alias("isSent"),
        F.when(is_end, _field(11)).alias("transaction"),
    )
    return lines.groupBy("msgId").agg(
        *(F.max(name).alias(name) for name in ("producerGroup", "topic", "tags", "keys")),
        F.min("sentMs").alias("sentMs"),
        F.max("bodyBytes").alias("bodyBytes"),
        F.max("sendCostMs").alias("sendCostMs"),
        F.max("isSent").alias("isSent"),
        F.max("transaction").alias("transaction"),
    )


def _deliveries(told: DataFrame) -> DataFrame:
    """What consumers told, one row a delivery: the line before it and the one after it."""
    from pyspark.sql import functions as F

    before = told.where(_field(0) == "SubBefore").select(
        _field(5).alias("msgId"),
        _field(4).alias("requestId"),
        _field(3).alias("group"),
        _field(1, "bigint").alias("begunMs"),
        _field(6, "int").alias("tries"),
        F.lit(None).cast("bigint").alias("costMs"),
        F.lit(None).cast("boolean").alias("isSuccess"),
        F.lit(None).cast("bigint").alias("doneMs"),
    )
    after = told.where(_field(0) == "SubAfter").select(
        _field(2).alias("msgId"),
        _field(1).alias("requestId"),
        _field(8).alias("group"),
        F.lit(None).cast("bigint").alias("begunMs"),
        F.lit(None).cast("int").alias("tries"),
        _field(3, "bigint").alias("costMs"),
        _field(4, "boolean").alias("isSuccess"),
        _field(7, "bigint").alias("doneMs"),
    )
    both = before.unionByName(after).groupBy("msgId", "requestId")
    names = ("group", "begunMs", "tries", "costMs", "isSuccess", "doneMs")
    return both.agg(*(F.max(name).alias(name) for name in names)).withColumn(
        "doneMs", F.coalesce("doneMs", F.col("begunMs") + F.col("costMs"))
    )


def _consumers(deliveries: DataFrame) -> DataFrame:
    """Deliveries of each message, by group."""
    from pyspark.sql import functions as F

    is_done = F.col("isSuccess")
    by_group = deliveries.groupBy("msgId", "group").agg(
        F.count("*").alias("deliveries"),
        F.count_if(is_done).alias("successes"),
        F.coalesce(F.max("tries"), F.lit(0)).alias("lastTry"),
        F.min("begunMs").alias("begunMs"),
        F.min(F.when(is_done, F.col("doneMs"))).alias("doneMs"),
        F.sum("costMs").alias("costMs"),
    )
    names = ("group", "deliveries", "successes", "lastTry", "begunMs", "doneMs", "costMs")
    return by_group.groupBy("msgId").agg(
        F.array_sort(F.collect_list(F.struct(*names))).alias("consumers")
    )
