"""dlq: what groups have given up on, sorted: by group, topic, tag, cause, shape of body and age.

A report for whoever must decide what becomes of dead letters. `replay` sends them back, chosen by
the very columns of this report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, field

from ariane.clock import Clock, SystemClock
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.history import History, RangeConfig
from ariane.spark.pipelines.letters import CAUSES, described
from ariane.spark.pipelines.messages import source_options
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of
from ariane.topics import DEAD_LETTER_PREFIX, dead_letter_topic_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

HOUR_MS: Final = 3_600_000
AGES: Final = (
    ("1 h", HOUR_MS),
    ("1 d", 24 * HOUR_MS),
    ("7 d", 168 * HOUR_MS),
    ("30 d", 720 * HOUR_MS),
)
GROUPED: Final = ("group", "originTopic", "tags", "cause", "shape", "age")
TITLES: Final = (
    *("group", "topic", "tag", "cause", "shape", "age"),
    *("letters", "first_stored_ms", "last_stored_ms", "example"),
)


class Config(RangeConfig, frozen=True, kw_only=True):
    """Options of `dlq`."""

    groups: Annotated[
        tuple[str, ...], Meta(description="Only dead letters of these groups; else of all.")
    ] = ()
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    causes: Annotated[
        tuple[str, ...], Meta(description="Properties that tell why; the first that is there.")
    ] = CAUSES
    rows_max: Annotated[int, Meta(description="Rows of the report, at most.", ge=1)] = 200
    to: Annotated[str, Meta(description="Write every letter with these columns, as Parquet.")] = ""
    source_options: settings.SourceOptions = field(default_factory=dict)


def run(
    spark: SparkSession, config: Config, report: Report = quietly, *, clock: Clock | None = None
) -> Outcome:
    """Sort the dead letters there are now."""
    topics = _topics(config)
    if not topics:
        return Outcome("dlq", {"letters": 0, "kinds": 0}, **table_of(TITLES, []))
    history = History(
        spark,
        topics,
        namesrv=config.namesrv,
        options=config.source_options,
        fail_on_data_loss=False,
    )
    now_ms = (clock or SystemClock()).wall_ms()
    letters = described(history.read(bounds=config.bounds()), config.causes)
    if config.to:
        letters.write.mode("errorifexists").option("compression", "zstd").parquet(config.to)
    found: list[Any] = triage(letters, now_ms).limit(config.rows_max).collect()
    return Outcome(
        "dlq",
        {"letters": sum(row["letters"] for row in found), "kinds": len(found)},
        **table_of(TITLES, [list(row) for row in found]),
    )


def triage(letters: DataFrame, now_ms: int) -> DataFrame:
    """Described letters in groups of a kind, the largest first."""
    from pyspark.sql import functions as F

    stored_ms = F.unix_millis("storeTimestamp")
    return (
        letters.withColumn("age", _age(F.lit(now_ms) - stored_ms))
        .groupBy(*GROUPED)
        .agg(
            F.count("*").alias("letters"),
            F.min(stored_ms).alias("first_stored_ms"),
            F.max(stored_ms).alias("last_stored_ms"),
            F.min_by("msgId", stored_ms).alias("example"),
        )
        .orderBy(F.desc("letters"), *GROUPED)
    )


def _age(age_ms: Column) -> Column:
    from pyspark.sql import functions as F

    age = F.lit(f"older than {AGES[-1][0]}")
    for name, limit_ms in reversed(AGES):
        age = F.when(age_ms < limit_ms, F.lit(f"under {name}")).otherwise(age)
    return age


def _topics(config: Config) -> tuple[str, ...]:
    """Topics of dead letters that are there; a group that lost nothing has none."""
    options = source_options(config.namesrv, config.source_options)
    options |= {"subscribePattern": f"{DEAD_LETTER_PREFIX}.*"}
    there = {queue.topic for queue in queue_spans(options)}
    wanted = {dead_letter_topic_of(group) for group in config.groups} or there
    return tuple(sorted(there & wanted))
