"""archive: topics to a lake of Parquet files by topic and day, each message exactly once.

On a local disk the tasks that read messages write the files too, which is several times as fast as
by way of Spark's rows; anywhere else Spark writes them, which knows every file system.

A batch is written aside, moved into place and then told of in the lake's manifest, under the id of
the query and the number of the batch. Spark runs a batch again after a crash, with the same id,
number and offsets: if the manifest has it, nothing happens; if not, what the first try left is
deleted and written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final
from weakref import WeakSet

import msgspec
from msgspec import Meta, field

from ariane.errors import ConfigError
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.layout import job_of
from ariane.spark.pipelines.manifest import Entry, LakeError, LakeFile, State, overlap_of
from ariane.spark.pipelines.messages import FORMAT, source_options, starting_offsets
from ariane.spark.pipelines.outcome import Outcome, Report, quietly, table_of
from ariane.spark.pipelines.queries import run_query
from ariane.spark.pipelines.settings import PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

# ruff: noqa: PLC0415 - Spark is imported when it is used

Staging = Callable[["DataFrame", str], list[LakeFile]]  # writes a batch aside, for a job

_KNOWING: Final[WeakSet[SparkSession]] = WeakSet()  # sessions that have the source of files

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
    way = _by_tasks if lake.files.is_local else _by_spark
    source, staging = way(lake)
    messages = (
        source.options(**options)
        .option("startingOffsets", _starting(config, options, before))
        .option("maxOffsetsPerTrigger", config.batch_messages)
        .load()
    )
    archivist = _Archivist(lake, staging)
    writer = (
        messages.writeStream.queryName(f"archive-{'+'.join(config.topics)}")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(archivist)
    )
    batches = run_query(
        writer,
        report,
        follow=config.follow,
        interval_s=config.interval,
        count=lambda progress: archivist.counts.get(progress.batchId, 0),
    )
    return _outcome(archivist.added, lake.state(), len(batches))


def _by_spark(lake: Lake) -> tuple[DataStreamReader, Staging]:
    """A stream of messages, and Spark's writer for them."""

    def stage(messages: DataFrame, job: str) -> list[LakeFile]:
        lake.stage(messages, job)
        return lake.staged(job)

    return lake.spark.readStream.format(FORMAT), stage


def _by_tasks(lake: Lake) -> tuple[DataStreamReader, Staging]:
    """A stream of files that its tasks write."""
    from ariane.spark.pipelines.file_source import COLUMN, FileSource

    if lake.spark not in _KNOWING:  # Spark warns of a second time
        lake.spark.dataSource.register(FileSource)
        _KNOWING.add(lake.spark)

    def stage(files: DataFrame, job: str) -> list[LakeFile]:
        told = [msgspec.json.decode(row[COLUMN], type=LakeFile) for row in files.collect()]
        return lake.told(told, job)

    path = str(lake.files.local(""))
    return lake.spark.readStream.format(FileSource.name()).option("path", path), stage


class _Archivist:
    """Brings batches of one query into the lake."""

    def __init__(self, lake: Lake, stage: Staging) -> None:
        self._lake = lake
        self._stage = stage
        self._may_be_a_replay = True
        self.added: list[LakeFile] = []
        self.counts: dict[int, int] = {}  # messages by batch

    def __call__(self, messages: DataFrame, batch_id: int) -> None:
        """Bring one batch into the lake, unless it is there."""
        lake = self._lake
        query_id = lake.spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id, "only a streaming query calls this"
        if lake.state().has(Entry(kind="archive", job=query_id, batch_id=batch_id)):
            return
        job = job_of(query_id, batch_id)
        if self._may_be_a_replay:  # only the first batch after a start can be
            lake.clear(job)
            self._may_be_a_replay = False
        staged = self._stage(messages, job)
        self._refuse_overlap(staged, job)
        added = tuple(lake.publish(staged, job))
        lake.commit(lambda state: Entry(kind="archive", job=query_id, batch_id=batch_id, add=added))
        self.added += added
        self.counts[batch_id] = sum(file.row_count for file in added)

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
