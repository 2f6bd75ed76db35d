"""quality: messages whose JSON bodies keep the rules to one topic, the others to quarantine.

Both topics are written by one query, so a message is in exactly one of them, exactly once. In
quarantine, property `QUALITY_REASON` says which rules it broke.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, field

from ariane.errors import ConfigError
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.messages import FORMAT, source_options
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of
from ariane.spark.pipelines.queries import run_query
from ariane.spark.pipelines.rules import NOT_JSON, Rule, read_rules
from ariane.spark.pipelines.sending import Order, Places, outgoing, queue_counts
from ariane.spark.pipelines.settings import PipelineConfig
from ariane.topics import topic_fault

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

REASON: Final = "QUALITY_REASON"
OBSERVED: Final = "quality"


class Config(PipelineConfig, frozen=True, kw_only=True):
    """Options of `quality`."""

    topics: settings.Topics
    rules: Annotated[str, Meta(description="The file of rules, TOML or JSON.")]
    good: Annotated[str, Meta(description="The topic for messages that keep the rules.")]
    quarantine: Annotated[str, Meta(description="The topic for messages that do not.")]
    checkpoint: settings.Checkpoint
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    to_namesrv: Annotated[
        str, Meta(description="Name servers of the cluster to send to, when it is another.")
    ] = ""
    starting: Annotated[
        str, Meta(description="Where a first run begins: earliest, latest, or JSON of offsets.")
    ] = "earliest"
    order: Order = "queue"
    follow: settings.Follow = False
    interval: settings.Interval = 1.0
    batch_messages: settings.BatchMessages = settings.BATCH_MESSAGES
    source_options: settings.SourceOptions = field(default_factory=dict)
    sink_options: settings.SinkOptions = field(default_factory=dict)

    def check(self) -> None:
        """Good and bad messages do not meet again."""
        for topic in (self.good, self.quarantine):
            if fault := topic_fault(topic):
                raise ConfigError(fault)
            if topic in self.topics:
                raise ConfigError(f"{topic} is read from and sent to; that would never end")
        if self.good == self.quarantine:
            raise ConfigError(f"--good and --quarantine are both {self.good}")


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Judge what is there now, or with `follow` what arrives too."""
    from pyspark.sql import functions as F

    rules = read_rules(Path(config.rules))
    target = config.to_namesrv or config.namesrv
    source = source_options(config.namesrv, config.source_options)
    source |= {"subscribe": ",".join(config.topics)}
    places = Places(queue_spans(source), queue_counts(target, (config.good, config.quarantine)))
    messages = (
        spark.readStream.format(FORMAT)
        .options(**source)
        .option("startingOffsets", config.starting)
        .option("maxOffsetsPerTrigger", config.batch_messages)
        .load()
    )
    judged = judge(messages, rules).observe(OBSERVED, *_tallies(rules))
    is_good = F.size("reasons") == 0
    rows = outgoing(
        judged,
        F.when(is_good, F.lit(config.good)).otherwise(F.lit(config.quarantine)),
        order=config.order,
        places=places,
        told={REASON: F.when(~is_good, F.array_join("reasons", "; "))},
    )
    writer = (
        rows.writeStream.format(FORMAT)
        .queryName(f"quality-{'+'.join(config.topics)}")
        .options(**source_options(target, config.sink_options))
        .option("checkpointLocation", config.checkpoint)
    )
    totals: dict[str, int] = {}

    def note(progress: Any) -> str:
        seen = progress.observedMetrics.get(OBSERVED)
        if seen is None:
            return ""
        for name, count in seen.asDict().items():
            totals[name] = totals.get(name, 0) + count
        return f"{seen['messages'] - seen['good']} quarantined"

    run_query(writer, report, follow=config.follow, interval_s=config.interval, note=note)
    return _outcome(rules, totals)


def judge(messages: DataFrame, rules: tuple[Rule, ...]) -> DataFrame:
    """The messages with a column more: the reasons why they are bad, none when they are good."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    text = F.expr("try_validate_utf8(cast(body as string))")
    parsed = messages.withColumn("json", F.try_parse_json(text))
    reasons = [F.when(F.col("json").isNull(), F.lit(NOT_JSON))]
    for rule in rules:
        first = F.lit(None).cast("string")
        for fault, reason in reversed(rule.faults()):
            first = F.when(fault, F.lit(reason)).otherwise(first)
        reasons.append(F.when(F.col("json").isNotNull(), first))
    try:
        return parsed.withColumn("reasons", F.array_compact(F.array(*reasons)))
    except (AnalysisException, ParseException) as error:
        said = str(error).split("\n", 1)[0]
        raise ConfigError(f"a rule cannot be read: {said}") from None


def _tallies(rules: tuple[Rule, ...]) -> list[Any]:
    from pyspark.sql import functions as F

    reasons = F.col("reasons")
    tallies = [
        F.count("*").alias("messages"),
        F.count_if(F.size("reasons") == 0).alias("good"),
        F.count_if(F.array_contains(reasons, NOT_JSON)).alias("not_json"),
    ]
    tallies += [
        F.count_if(_is_broken(rule)).alias(f"rule_{number}") for number, rule in enumerate(rules)
    ]
    return tallies


def _is_broken(rule: Rule) -> Column:
    from pyspark.sql import functions as F

    return F.exists("reasons", lambda reason: reason.startswith(f"{rule.title}: "))


def _outcome(rules: tuple[Rule, ...], totals: dict[str, int]) -> Outcome:
    messages, good = totals.get("messages", 0), totals.get("good", 0)
    rows: list[tuple[str, int]] = [(NOT_JSON, totals.get("not_json", 0))]
    rows += [(rule.title, totals.get(f"rule_{n}", 0)) for n, rule in enumerate(rules)]
    return Outcome(
        "quality",
        {"messages": messages, "good": good, "quarantined": messages - good},
        **table_of(["rule", "broken"], rows),
    )
