"""archive: topics to a lake of Parquet files by topic and day, each message exactly once.

A batch is written aside, moved into place and then told of in the lake's manifest, under the id of
the query and the number of the batch. Spark runs a batch again after a crash, with the same id,
number and offsets: if the manifest has it, nothing happens; if not, what the first try left is
deleted and written anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, field

from ariane.errors import ConfigError
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.manifest import Entry, LakeError, LakeFile, State, overlap_of
from ariane.spark.pipelines.messages import FORMAT, source_options, starting_offsets
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of
from ariane.spark.pipelines.queries import run_query
from ariane.spark.pipelines.settings import PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINTS: Final = "_checkpoints"
FROM_LAKE: Final = "lake"


class Config(PipelineConfig, frozen=True, kw_only=True):
    """Options of `archive`."""

    topics: settings.Topics
    lake: settings.LakePath
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    starting: Annotated[
        str,
        Meta(
            description="Where a first run begins: earliest, latest, JSON of offsets, or lake: "
            "where the lake ends, and earliest for queues it does not have."
        ),
    ] = FROM_LAKE
    follow: settings.Follow = False
    interval: settings.Interval = 10.0
    batch_messages: settings.BatchMessages = settings.BATCH_MESSAGES
    checkpoint: Annotated[
        str, Meta(description="Where progress is kept; LAKE/_checkpoints/TOPICS when not given.")
    ] = ""
    source_options: settings.SourceOptions = field(default_factory=dict)

    def check(self) -> None:
        """A topic twice would be a topic archived twice."""
        if len(set(self.topics)) < len(self.topics):
            raise ConfigError(f"--topics names a topic twice: {', '.join(self.topics)}")


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Archive what is there now, or with `follow` what arrives too."""
    lake = Lake(spark, config.lake)
    before = lake.state()
    checkpoint = config.checkpoint or lake.files.uri(
        f"{CHECKPOINTS}/{'+'.join(sorted(config.topics))}"
    )
    options = source_options(config.namesrv, config.source_options) | {
        "subscribe": ",".join(config.topics)
    }
    messages = (
        spark.readStream.format(FORMAT)
        .options(**options)
        .option("startingOffsets", _starting(config, options, before))
        .option("maxOffsetsPerTrigger", config.batch_messages)
        .load()
    )
    archivist = _Archivist(lake)
    writer = (
        messages.writeStream.queryName(f"archive-{'+'.join(config.topics)}")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(archivist)
    )
    batches = run_query(writer, report, follow=config.follow, interval_s=config.interval)
    return _outcome(archivist.added, lake.state(), len(batches))


class _Archivist:
    """Brings batches of one query into the lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._may_be_a_replay = True
        self.added: list[LakeFile] = []

    def __call__(self, messages: DataFrame, batch_id: int) -> None:
        """Bring one batch into the lake, unless it is there."""
        lake = self._lake
        query_id = lake.spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id, "only a streaming query calls this"
        if lake.state().has(Entry(kind="archive", job=query_id, batch_id=batch_id)):
            return
        job = f"{query_id}-{batch_id:010d}"
        if self._may_be_a_replay:  # only the first batch after a start can be
            lake.clear(job)
            self._may_be_a_replay = False
        lake.stage(messages, job)
        staged = lake.staged(job)
        self._refuse_overlap(staged, job)
        added = tuple(lake.publish(staged, job))
        lake.commit(lambda state: Entry(kind="archive", job=query_id, batch_id=batch_id, add=added))
        self.added += added

    def _refuse_overlap(self, staged: list[LakeFile], job: str) -> None:
        fault = overlap_of(self._lake.state().files.values(), staged)
        if fault is not None:
            self._lake.clear(job)
            raise LakeError(
                f"{fault}: the lake has these messages already. Go on with the checkpoint that "
                "archived them, or begin where the lake ends (--starting lake)"
            )


def _starting(config: Config, options: dict[str, str], lake: State) -> str:
    """Where a query without a checkpoint begins."""
    if config.starting != FROM_LAKE:
        return config.starting
    ends = {queue: end for queue, end in lake.ends().items() if queue.topic in config.topics}
    if not ends:
        return "earliest"
    now = queue_spans(options)
    return starting_offsets({queue: ends.get(queue, span.first) for queue, span in now.items()})


def _outcome(added: list[LakeFile], lake: State, batch_count: int) -> Outcome:
    by_day: dict[tuple[str, str], list[int]] = {}
    for file in added:
        totals = by_day.setdefault((file.topic, file.day), [0, 0, 0])
        totals[0] += 1
        totals[1] += file.row_count
        totals[2] += file.byte_count
    return Outcome(
        "archive",
        {
            "messages": sum(totals[1] for totals in by_day.values()),
            "files": sum(totals[0] for totals in by_day.values()),
            "bytes": sum(totals[2] for totals in by_day.values()),
            "batches": batch_count,
            "lake_messages": sum(file.row_count for file in lake.files.values()),
        },
        **table_of(
            ["topic", "day", "files", "messages", "bytes"],
            [[*key, *totals] for key, totals in sorted(by_day.items())],
        ),
    )
