"""mirror: topics of one cluster to another, or to a topic with more queues, in order, exactly once.

Keys, tags, properties and bodies stay. Each message tells in properties where it came from, so
offsets of the source can be translated into offsets of the copy, and groups moved over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, field

from ariane.client.sync import Client
from ariane.errors import ConfigError
from ariane.protocol.bodies import MessageQueue
from ariane.spark.offsets import Queue
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.messages import FORMAT, source_options
from ariane.spark.pipelines.outcome import Cell, Outcome, Report, quietly, table_of
from ariane.spark.pipelines.queries import run_query
from ariane.spark.pipelines.sending import Order, Places, outgoing, queue_counts
from ariane.spark.pipelines.settings import PipelineConfig
from ariane.spark.pipelines.translation import positions, translation
from ariane.topics import topic_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

TITLES: Final = ("group", "topic", "broker", "queue", "offset")


class Config(PipelineConfig, frozen=True, kw_only=True):
    """Options of `mirror`."""

    topics: settings.Topics
    to_namesrv: Annotated[str, Meta(description="Name servers of the cluster to copy to.")]
    checkpoint: settings.Checkpoint
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    to: Annotated[str, Meta(description="Another name for the copy; for a single topic.")] = ""
    queues: Annotated[
        int, Meta(description="Queues of a copy that must be made; 0 is as many as there.", ge=0)
    ] = 0
    order: Order = "queue"
    starting: Annotated[
        str, Meta(description="Where a first run begins: earliest, latest, or JSON of offsets.")
    ] = "earliest"
    follow: settings.Follow = False
    interval: settings.Interval = 1.0
    batch_messages: settings.BatchMessages = settings.BATCH_MESSAGES
    groups: Annotated[
        tuple[str, ...],
        Meta(description="Then put these groups to where they are at the source, and no further."),
    ] = ()
    offsets_to: Annotated[
        str, Meta(description="Then write the table of source and copied offsets, as Parquet.")
    ] = ""
    source_options: settings.SourceOptions = field(default_factory=dict)
    sink_options: settings.SinkOptions = field(default_factory=dict)

    def check(self) -> None:
        """A copy is somewhere else than the original."""
        if self.to and len(self.topics) != 1:
            raise ConfigError(f"--to names one copy, and there are {len(self.topics)} topics")
        if self.to and (fault := topic_fault(self.to)):
            raise ConfigError(f"--to: {fault}")
        if self.namesrv == self.to_namesrv and (not self.to or self.to in self.topics):
            raise ConfigError("within one cluster a copy needs another name: --to TOPIC")

    def copy_of(self, topic: str) -> str:
        """What the copy is called."""
        return self.to or topic


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Copy what is there now, or with `follow` what arrives too; then move groups over."""
    from pyspark.sql import functions as F

    copies = tuple(config.copy_of(topic) for topic in config.topics)
    _make_topics(config)
    messages = (
        spark.readStream.format(FORMAT)
        .options(**_source(config))
        .option("startingOffsets", config.starting)
        .option("maxOffsetsPerTrigger", config.batch_messages)
        .load()
    )
    rows = outgoing(
        messages,
        F.lit(config.to) if config.to else F.col("topic"),
        order=config.order,
        places=Places(queue_spans(_source(config)), queue_counts(config.to_namesrv, copies)),
    )
    writer = (
        rows.writeStream.format(FORMAT)
        .queryName(f"mirror-{'+'.join(config.topics)}")
        .options(**source_options(config.to_namesrv, config.sink_options))
        .option("checkpointLocation", config.checkpoint)
    )
    batches = run_query(writer, report, follow=config.follow, interval_s=config.interval)
    moved = _moved_groups(spark, config, copies)
    return Outcome(
        "mirror",
        {
            "messages": sum(batch.message_count for batch in batches),
            "batches": len(batches),
            "groups": len(config.groups),
        },
        **table_of(TITLES, moved),
    )


def _make_topics(config: Config) -> None:
    """Make copies that are not there yet."""
    with Client(config.to_namesrv) as client:
        there = set(client.admin.topics())
        for topic in config.topics:
            if config.copy_of(topic) in there:
                continue
            count = config.queues or queue_counts(config.namesrv, (topic,))[topic]
            client.admin.create_topic(config.copy_of(topic), write_queue_count=count)


def _moved_groups(spark: SparkSession, config: Config, copies: tuple[str, ...]) -> list[list[Cell]]:
    """Put groups to where they are at the source; gives where that is."""
    if not config.groups and not config.offsets_to:
        return []
    options = source_options(config.to_namesrv, {}) | {"subscribe": ",".join(copies)}
    pairs = translation(spark, options)
    if config.offsets_to:
        pairs.write.mode("overwrite").parquet(config.offsets_to)
    source = queue_spans(_source(config))
    moved: list[list[Cell]] = []
    with Client(config.namesrv) as here, Client(config.to_namesrv) as there:
        for group in config.groups:
            progress = here.pull_consumer(group)
            done = {queue: progress.committed(_message_queue(queue)) for queue in source}
            placing = there.pull_consumer(group)
            for queue, offset in positions(spark, pairs, done).items():
                place = _message_queue(queue)
                placing.read(place, offset, count_max=1)  # brokers know a group once it has pulled
                placing.commit(place, offset)
                moved.append([group, *queue, offset])
    return moved


def _source(config: Config) -> dict[str, str]:
    options = source_options(config.namesrv, config.source_options)
    return options | {"subscribe": ",".join(config.topics)}


def _message_queue(queue: Queue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker, queue_id=queue.queue_id)
