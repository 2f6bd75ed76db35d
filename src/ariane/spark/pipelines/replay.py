"""replay: messages of a lake, a topic or both to a topic again, at a rate, each exactly once.

What is to be replayed is planned first, as ranges of offsets cut into chunks, and the plan is kept
in the checkpoint. Each chunk is one batch of the sink, under the id of the plan and its own number:
a replay that is started again after a crash publishes no chunk twice and leaves none out.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, field

from ariane.clock import Clock, SystemClock
from ariane.errors import ConfigError
from ariane.spark.offsets import Queue
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.choosing import ChoiceConfig, chosen
from ariane.spark.pipelines.files import Files
from ariane.spark.pipelines.history import History
from ariane.spark.pipelines.letters import described, is_dead_letter_topic
from ariane.spark.pipelines.outcome import Outcome, Progress, Report, quietly, table_of
from ariane.spark.pipelines.publishing import publish
from ariane.spark.pipelines.ranges import Span, Spans, chunks
from ariane.spark.pipelines.sending import Order, Places, in_order, outgoing, queue_counts
from ariane.topics import topic_fault

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

PLAN: Final = "plan.json"
CHOICE: Final = (
    *("topics", "to", "to_origin", "namesrv", "to_namesrv", "lake", "live", "order"),
    *("since", "until", "first_offset", "end_offset"),
    *("keys", "key_from", "key_to", "tags", "where"),
)
DONE: Final = "done"
CHUNK_S: Final = 1.0  # of the rate, in one chunk

Wait = Callable[[float], object]


class Config(ChoiceConfig, frozen=True, kw_only=True):
    """Options of `replay`."""

    topics: settings.Topics
    to: Annotated[str, Meta(description="The topic to send to.")] = ""
    to_origin: Annotated[
        bool, Meta(description="Send dead letters back to the topics they were sent to at first.")
    ] = False
    namesrv: settings.Namesrv = settings.DEFAULT_NAMESRV
    to_namesrv: Annotated[
        str, Meta(description="Name servers of the cluster to send to, when it is another.")
    ] = ""
    lake: Annotated[str, Meta(description="Read this lake instead of the topic.")] = ""
    live: Annotated[
        bool, Meta(description="With --lake: read on from the topic where the lake ends.")
    ] = False
    order: Order = "queue"
    rate: Annotated[float, Meta(description="Messages a second; 0 is no limit.", ge=0)] = 0.0
    batch_messages: settings.BatchMessages = 200_000
    checkpoint: Annotated[
        str, Meta(description="Where plan and progress are kept; needed unless --dry-run.")
    ] = ""
    dry_run: Annotated[bool, Meta(description="Only count what would be sent.")] = False
    source_options: settings.SourceOptions = field(default_factory=dict)
    sink_options: settings.SinkOptions = field(default_factory=dict)

    def check(self) -> None:
        """There is one place to send to, and one to keep the plan."""
        if bool(self.to) == self.to_origin:
            raise ConfigError("say where to send: --to TOPIC, or --to-origin for dead letters")
        if self.to and (fault := topic_fault(self.to)):
            raise ConfigError(f"--to: {fault}")
        if self.to_origin and not all(is_dead_letter_topic(topic) for topic in self.topics):
            raise ConfigError(
                "--to-origin is for topics of dead letters, as in --topics %DLQ%group"
            )
        if self.live and not self.lake:
            raise ConfigError("--live goes with --lake; without one, the topic is read anyway")
        if not self.dry_run and not self.checkpoint:
            raise ConfigError(
                "--checkpoint is needed: a directory that keeps the plan, so that a replay that is "
                "started again goes on and sends nothing twice. --dry-run needs none"
            )
        self.bounds()

    @property
    def target(self) -> str:
        """Name servers of the cluster to send to."""
        return self.to_namesrv or self.namesrv


class Plan(msgspec.Struct, frozen=True):
    """What to replay, as decided when it was first started."""

    id: str
    chosen: str  # the options that say what; another choice is another replay
    spans: tuple[tuple[str, str, int, int, int], ...]
    chunk_offsets: int
    message_count: int

    @property
    def whole(self) -> dict[Queue, Span]:
        """All offsets to look at."""
        return {Queue(t, b, q): Span(first, end) for t, b, q, first, end in self.spans}

    def chunks(self) -> list[dict[Queue, Span]]:
        """The batches, the same each time."""
        return list(chunks(self.whole, self.chunk_offsets))


def run(
    spark: SparkSession,
    config: Config,
    report: Report = quietly,
    *,
    clock: Clock | None = None,
    wait: Wait | None = None,
) -> Outcome:
    """Replay what the options choose, or with `dry_run` count it."""
    history = History(
        spark,
        config.topics,
        lake=config.lake,
        namesrv=config.namesrv if config.live or not config.lake else "",
        options=config.source_options,
    )
    if config.dry_run:
        return _counted(_chosen(history, config, history.spans(config.bounds())))
    files = Files(spark, config.checkpoint)
    plan = _planned(files, history, config)
    places = Places(history.queues.keys(), _target_queues(history, config, plan))
    pieces = plan.chunks()
    done = {int(name) for name in files.names(DONE) if name.isdecimal()}  # else a draft
    pace = _Pace(config.rate, clock or SystemClock(), wait or threading.Event().wait)
    sent = 0
    for number, spans in enumerate(pieces):
        if number in done:
            continue
        begun_s = pace.now_s()
        messages = in_order(_chosen(history, config, spans), order=config.order)
        rows = outgoing(messages, _target(config), order=config.order, places=places)
        count = publish(rows, config.target, config.sink_options, job=plan.id, batch_id=number)
        files.put(f"{DONE}/{number:08d}", str(count).encode())
        sent += count
        pace.after(count)
        share = f"{number + 1} of {len(pieces)} chunks"
        report(Progress(number, count, pace.now_s() - begun_s, share))
    return Outcome(
        "replay",
        {
            "messages": sent,
            "planned": plan.message_count,
            "chunks": len(pieces),
            "chunks_done_before": len(done),
            "replay_id": plan.id,
        },
    )


def _chosen(history: History, config: Config, spans: Spans) -> DataFrame:
    """The messages of the spans that the options choose."""
    messages = history.read(spans, config.bounds())
    if any(is_dead_letter_topic(topic) for topic in config.topics):
        messages = described(messages)  # for --where, and to know where letters came from
    return chosen(messages, config)


def _target(config: Config) -> Column:
    from pyspark.sql import functions as F

    return F.col("originTopic") if config.to_origin else F.lit(config.to)


def _target_queues(history: History, config: Config, plan: Plan) -> dict[str, int]:
    """How many queues the topics have that are sent to."""
    topics: tuple[str, ...] = (config.to,)
    if config.to_origin:
        found: list[Any] = (
            _chosen(history, config, plan.whole).select("originTopic").distinct().collect()
        )
        topics = tuple(sorted(row["originTopic"] for row in found))
    return queue_counts(config.target, topics) if topics else {}


def _planned(files: Files, history: History, config: Config) -> Plan:
    """The plan in the checkpoint, or a new one that is there from now on."""
    choice = _choice_of(config)
    if not files.exists(PLAN):
        spans = history.spans(config.bounds())
        count = _chosen(history, config, spans).count()
        whole = sum(span.end - span.first for span in spans.values())
        # With a rate, a chunk is to hold what may be sent in a second, going by how many of the
        # messages are chosen at all.
        size = config.batch_messages
        if config.rate and count:
            size = min(size, max(1, round(config.rate * CHUNK_S * whole / count)))
        told = tuple((*queue, *span) for queue, span in sorted(spans.items()))
        plan = Plan(uuid.uuid4().hex, choice, told, size, count)
        files.put(PLAN, msgspec.json.encode(plan))
    plan = msgspec.json.decode(files.read(PLAN), type=Plan)
    if plan.chosen != choice:
        raise ConfigError(
            f"--checkpoint {config.checkpoint} is of another replay: {plan.chosen}; this one is "
            f"{choice}. Give it a directory of its own"
        )
    return plan


def _choice_of(config: Config) -> str:
    """The options that decide what is sent and where to."""
    told = {name: getattr(config, name) for name in CHOICE if getattr(config, name)}
    return msgspec.json.encode(told).decode()


def _counted(messages: DataFrame) -> Outcome:
    """What would be sent."""
    from pyspark.sql import functions as F

    found: list[Any] = (
        messages.groupBy("topic", "brokerName", "queueId")
        .agg(
            F.count("*").alias("count"),
            F.min("queueOffset").alias("first"),
            F.max("queueOffset").alias("last"),
            F.min(F.unix_millis("storeTimestamp")).alias("since_ms"),
            F.max(F.unix_millis("storeTimestamp")).alias("until_ms"),
        )
        .orderBy("topic", "brokerName", "queueId")
        .collect()
    )
    return Outcome(
        "replay",
        {"messages": 0, "planned": sum(row["count"] for row in found), "dry_run": True},
        **table_of(
            [
                "topic",
                "broker",
                "queue",
                "messages",
                "first",
                "last",
                "stored_ms",
                "last_stored_ms",
            ],
            [list(row) for row in found],
        ),
    )


class _Pace:
    """Holds a replay to its rate, on the average from its start on."""

    def __init__(self, rate: float, clock: Clock, wait: Wait) -> None:
        self._rate = rate
        self._clock = clock
        self._wait = wait
        self._begun_s = clock.monotonic_s()
        self._count = 0

    def now_s(self) -> float:
        return self._clock.monotonic_s() - self._begun_s

    def after(self, count: int) -> None:
        """So many were sent: wait until that was not too many."""
        self._count += count
        if self._rate and (early_s := self._count / self._rate - self.now_s()) > 0:
            self._wait(early_s)
