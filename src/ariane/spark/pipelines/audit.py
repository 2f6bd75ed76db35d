"""audit: what was produced against what was archived against what was consumed, queue by queue.

Finds offsets that the lake lacks or has twice, files that are gone or changed, messages whose
bodies differ between lake and broker, ids that were sent twice, and groups that retention has
passed. A sound system has no findings; the command ends with 1 when there is one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from msgspec import Meta, field

from ariane.client.sync import Client
from ariane.errors import ConfigError
from ariane.protocol.bodies import MessageQueue
from ariane.spark.offsets import Queue
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.brokers import queue_spans
from ariane.spark.pipelines.contents import Counted, counted, duplicates
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.manifest import LakeFile, State, begun, overlapping
from ariane.spark.pipelines.messages import read_spans, source_options, within
from ariane.spark.pipelines.outcome import Cell, Outcome, Report, quietly, table_of
from ariane.spark.pipelines.ranges import Span, common, gaps, merged
from ariane.spark.pipelines.settings import PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DUPLICATES_MAX: Final = 20
TITLES: Final = (
    *("topic", "broker", "queue", "produced", "produced_end", "archived", "archived_end"),
    *("archived_messages", "unarchived", "lag", "findings"),
)


class Config(PipelineConfig, frozen=True, kw_only=True):
    """Options of `audit`."""

    topics: settings.Topics
    namesrv: Annotated[
        str, Meta(description="Name servers, as HOST:PORT;HOST:PORT; empty audits the lake alone.")
    ] = settings.DEFAULT_NAMESRV
    lake: Annotated[str, Meta(description="The lake; without one, brokers and groups alone.")] = ""
    groups: Annotated[tuple[str, ...], Meta(description="Groups that consume the topics.")] = ()
    quick: Annotated[bool, Meta(description="Compare offsets only; no messages are read.")] = False
    source_options: settings.SourceOptions = field(default_factory=dict)

    def check(self) -> None:
        """Something is there to be audited."""
        if not self.namesrv and not self.lake:
            raise ConfigError("what is to be audited? give --namesrv, --lake, or both")
        if self.groups and not self.namesrv:
            raise ConfigError("--groups are asked about at brokers; give --namesrv too")


class Finding(NamedTuple):
    """Something that should not be."""

    queue: Queue | None
    text: str

    def __str__(self) -> str:
        return f"{self.queue}: {self.text}" if self.queue is not None else self.text


class Facts(NamedTuple):
    """What is known of a queue before a message is read."""

    live: Span | None
    archived: tuple[Span, ...]
    archived_count: int
    done: dict[str, int | None]  # by group

    @property
    def lake(self) -> Span | None:
        """From the first archived offset to the last."""
        if not self.archived:
            return None
        return Span(self.archived[0].first, max(span.end for span in self.archived))

    @property
    def both(self) -> Span | None:
        """What lake and broker both have."""
        if self.live is None or self.lake is None:
            return None
        both = common(self.live, self.lake)
        return both if both.first < both.end else None


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Compare; findings are in the outcome."""
    lake = Lake(spark, config.lake) if config.lake else None
    state = State() if lake is None else begun(lake.state(), lake.files.root)
    files = [file for file in state.files.values() if file.topic in config.topics]
    queues = _facts(config, files)
    found = [
        finding
        for queue, facts in queues.items()
        for finding in [*_lake_findings(queue, facts), *_group_findings(queue, facts)]
    ]
    found += [
        Finding(queue, f"the lake has offsets {span} more than once")
        for queue, spans in overlapping(files).items()
        for span in spans
    ]
    strays = 0
    if lake is not None:
        there = {each.path: each.byte_count for each in lake.files.walk()}
        found += _file_findings(there, files)
        files = [file for file in files if file.path in there]
        strays = len(there.keys() - state.files.keys() - state.removed)
    read_count = 0
    if not config.quick:
        read_count, more = _read(spark, config, lake, files, queues)
        found += more
    return _outcome(queues, found, read_count, strays)


def _facts(config: Config, files: list[LakeFile]) -> dict[Queue, Facts]:
    live: dict[Queue, Span] = {}
    done: dict[Queue, dict[str, int | None]] = {}
    if config.namesrv:
        live = queue_spans(_options(config) | {"subscribe": ",".join(config.topics)})
        done = _progress(config, list(live))
    archived: dict[Queue, list[Span]] = {}
    counts: dict[Queue, int] = {}
    for file in files:
        for each in file.ranges:
            queue = Queue(file.topic, each.broker, each.queue_id)
            archived.setdefault(queue, []).append(Span(each.first, each.end))
            counts[queue] = counts.get(queue, 0) + each.count
    return {
        queue: Facts(
            live.get(queue),
            tuple(sorted(archived.get(queue, []))),
            counts.get(queue, 0),
            done.get(queue, {}),
        )
        for queue in sorted(archived.keys() | live.keys())
    }


def _progress(config: Config, queues: list[Queue]) -> dict[Queue, dict[str, int | None]]:
    """How far each group has got."""
    found: dict[Queue, dict[str, int | None]] = {queue: {} for queue in queues}
    if not config.groups:
        return found
    with Client(config.namesrv) as client:
        for group in config.groups:
            consumer = client.pull_consumer(group)
            for queue in queues:
                place = MessageQueue(
                    topic=queue.topic, broker_name=queue.broker, queue_id=queue.queue_id
                )
                found[queue][group] = consumer.committed(place)
    return found


def _lake_findings(queue: Queue, facts: Facts) -> list[Finding]:
    """By the manifest and the ends of queues alone."""
    found = [Finding(queue, f"the lake lacks offsets {gap}") for gap in gaps(facts.archived)]
    covered = sum(span.end - span.first for span in merged(facts.archived))
    if facts.archived_count < covered:
        missing = covered - facts.archived_count
        found.append(Finding(queue, f"the lake's ranges lack {missing} of {covered} messages"))
    if facts.lake is None or facts.live is None:
        return found
    if facts.lake.end > facts.live.end:
        found.append(
            Finding(
                queue,
                f"the lake ends at {facts.lake.end}, the broker at {facts.live.end}: was the topic "
                "deleted and made again?",
            )
        )
    if facts.live.first > facts.lake.end:
        lost = Span(facts.lake.end, facts.live.first)
        found.append(Finding(queue, f"offsets {lost} were neither archived nor kept by the broker"))
    return found


def _group_findings(queue: Queue, facts: Facts) -> list[Finding]:
    if facts.live is None:
        return []
    found = []
    for group, offset in facts.done.items():
        if offset is not None and offset > facts.live.end:
            text = f"group {group} is at {offset}, past the end at {facts.live.end}"
            found.append(Finding(queue, text))
        elif offset is not None and offset < facts.live.first:
            lost = Span(offset, facts.live.first)
            found.append(Finding(queue, f"group {group} never got offsets {lost}: they are gone"))
    return found


def _file_findings(there: dict[str, int], files: list[LakeFile]) -> list[Finding]:
    """Files that are not there as the manifest says; `there` has sizes by path."""
    found = []
    for file in files:
        size = there.get(file.path)
        if size is None:
            found.append(Finding(None, f"{file.path} is in the manifest and not on disk"))
        elif size != file.byte_count:
            text = f"{file.path} has {size} bytes, and {file.byte_count} by the manifest"
            found.append(Finding(None, text))
    return found


def _read(
    spark: SparkSession,
    config: Config,
    lake: Lake | None,
    files: list[LakeFile],
    queues: dict[Queue, Facts],
) -> tuple[int, list[Finding]]:
    """Read everything, and compare it with what is said of it; how many messages, and findings."""
    both = {queue: facts.both for queue, facts in queues.items() if facts.both is not None}
    live = {queue: facts.live for queue, facts in queues.items() if facts.live is not None}
    sides: dict[str, DataFrame] = {}
    if lake is not None and files:
        sides["lake"] = lake.read(files)
    if live:
        sides["broker"] = read_spans(spark, _options(config), live)
    counts = {name: counted(messages, both) for name, messages in sides.items()}
    found = [
        finding
        for queue, facts in queues.items()
        for finding in _content_findings(queue, facts, counts)
    ]
    if "broker" in sides and "lake" in sides:  # what both have is told of once
        sides["broker"] = sides["broker"].where(~within(both))
    if sides:
        messages = functools.reduce(lambda left, right: left.unionByName(right), sides.values())
        found += [
            Finding(None, f"topic {topic}: id {message_id} is at {' and at '.join(places)}")
            for topic, message_id, places in duplicates(messages, DUPLICATES_MAX)
        ]
    total = sum(each.message_count for side in counts.values() for each in side.values())
    return total, found


def _content_findings(
    queue: Queue, facts: Facts, sides: dict[str, dict[Queue, Counted]]
) -> list[Finding]:
    """What reading a queue has shown."""
    found = []
    nothing = Counted(0, 0, 0)
    lake = sides["lake"].get(queue, nothing) if "lake" in sides else None
    broker = sides["broker"].get(queue, nothing) if "broker" in sides else None
    if lake is not None and lake.message_count != facts.archived_count:
        told = facts.archived_count
        text = f"the lake's files have {lake.message_count} messages, and {told} by the manifest"
        found.append(Finding(queue, text))
    if lake is not None and lake.offset_count < lake.message_count:
        twice = lake.message_count - lake.offset_count
        found.append(Finding(queue, f"the lake's files have {twice} messages more than once"))
    if broker is not None and facts.live is not None:
        length = facts.live.end - facts.live.first
        if broker.message_count != length:
            text = (
                f"the broker gave {broker.message_count} messages for {length} offsets {facts.live}"
            )
            found.append(Finding(queue, text))
    if lake is None or broker is None or facts.both is None:
        return found
    if lake.common_checksum != broker.common_checksum:
        text = f"bodies of offsets {facts.both} differ between lake and broker"
        found.append(Finding(queue, text))
    return found


def _outcome(
    queues: dict[Queue, Facts], found: list[Finding], read_count: int, strays: int
) -> Outcome:
    rows: list[list[Cell]] = []
    for queue, facts in queues.items():
        live, lake = facts.live, facts.lake
        rows.append(
            [
                *queue,
                *((None, None) if live is None else live),
                *((None, None) if lake is None else lake),
                facts.archived_count,
                None if live is None else live.end - (live.first if lake is None else lake.end),
                _lag_text(facts),
                sum(finding.queue == queue for finding in found),
            ]
        )
    return Outcome(
        "audit",
        {
            "queues": len(rows),
            "messages_read": read_count,
            "findings": len(found),
            "stray_files": strays,
        },
        **table_of(TITLES, rows),
        findings=tuple(str(finding) for finding in found),
    )


def _lag_text(facts: Facts) -> str:
    """How far behind each group is."""
    if facts.live is None:
        return ""
    lags = {
        group: facts.live.end - (facts.live.first if offset is None else offset)
        for group, offset in facts.done.items()
    }
    return ", ".join(f"{group} {lag}" for group, lag in sorted(lags.items()))


def _options(config: Config) -> dict[str, str]:
    return source_options(config.namesrv, config.source_options)
