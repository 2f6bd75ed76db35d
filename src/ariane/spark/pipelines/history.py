"""The history of topics: what a lake has of it, what brokers have, and the seam between them.

Where the lake ends and the brokers take over is an offset of each queue, from the manifest, and
never a time: clocks differ and go back, offsets do not. A queue is read in [first, seam) from the
lake and in [seam, end) from its broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from ariane.clock import SystemClock
from ariane.errors import ConfigError, DataLoss
from ariane.spark.offsets import Queue
from ariane.spark.option_values import OptionReader
from ariane.spark.pipelines.brokers import offsets_at, queue_spans
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.manifest import LakeError, LakeFile, State, begun, overlapping
from ariane.spark.pipelines.messages import DDL, read_spans, source_options, within
from ariane.spark.pipelines.ranges import Span, Spans, common, gaps
from ariane.spark.pipelines.settings import PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

AGO: Final = re.compile(r"(\d+)([smhd])")
AGO_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Moment = Annotated[
    str,
    Meta(description="Stored at this time or later: ISO 8601, milliseconds, or so long ago (2h)."),
]


class RangeConfig(PipelineConfig, frozen=True, kw_only=True):
    """Options that say which part of a history is meant; without any it is all."""

    since: Moment = ""
    until: Annotated[str, Meta(description="Stored before this time; written as for --since.")] = ""
    first_offset: Annotated[int, Meta(description="From this offset on, in every queue.", ge=0)] = 0
    end_offset: Annotated[
        int, Meta(description="Before this offset, in every queue; -1 is the end.", ge=-1)
    ] = -1

    def bounds(self) -> Bounds:
        """The options as a value."""
        bounds = Bounds(
            since_ms=_moment_ms("--since", self.since),
            until_ms=_moment_ms("--until", self.until),
            first=self.first_offset,
            end=None if self.end_offset < 0 else self.end_offset,
        )
        since_ms, until_ms = bounds.since_ms, bounds.until_ms
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise ConfigError(f"--since {self.since} is not before --until {self.until}")
        if bounds.end is not None and bounds.first >= bounds.end:
            raise ConfigError(
                f"--first-offset {bounds.first} is not before --end-offset {bounds.end}"
            )
        return bounds


class Bounds(msgspec.Struct, frozen=True):
    """Which part of a history."""

    since_ms: int | None = None
    until_ms: int | None = None
    first: int = 0
    end: int | None = None

    def span(self, whole: Span) -> Span:
        """The part of a queue's span that the offsets allow."""
        return common(whole, Span(self.first, whole.end if self.end is None else self.end))


class Seam(NamedTuple):
    """A queue's history: [first, seam) is in the lake, [seam, end) at its broker."""

    first: int
    seam: int
    end: int


class History:
    """What can be read of topics, in a lake, at brokers, or in both."""

    def __init__(
        self,
        spark: SparkSession,
        topics: tuple[str, ...],
        *,
        lake: str = "",
        namesrv: str = "",
        options: Mapping[str, str] | None = None,
        fail_on_data_loss: bool = True,
    ) -> None:
        if not lake and not namesrv and not (options or {}).get("storePath"):
            raise ConfigError("where are the messages? give --lake, --namesrv, or both")
        self.spark = spark
        self.topics = topics
        self._lake = Lake(spark, lake) if lake else None
        self._state = State()
        if self._lake is not None:
            self._state = begun(self._lake.state(), self._lake.files.root)
        self._files = [f for f in self._state.files.values() if f.topic in topics]
        self._options: dict[str, str] = {}
        live: dict[Queue, Span] = {}
        if namesrv or not lake:
            self._options = source_options(namesrv, options or {})
            live = queue_spans(self._options | {"subscribe": ",".join(topics)})
        self.queues = seams(self._files, live, fails=fail_on_data_loss)

    def spans(self, bounds: Bounds | None = None) -> dict[Queue, Span]:
        """The offsets of each queue that can hold messages within the bounds."""
        bounds = bounds or Bounds()
        found = {queue: bounds.span(Span(s.first, s.end)) for queue, s in self.queues.items()}
        starts = {} if bounds.since_ms is None else self._starts(bounds.since_ms)
        ends = {} if bounds.until_ms is None else self._ends(bounds.until_ms)
        return {
            queue: common(span, Span(starts.get(queue, 0), ends.get(queue, span.end)))
            for queue, span in found.items()
        }

    def read(self, spans: Spans | None = None, bounds: Bounds | None = None) -> DataFrame:
        """The messages of the spans that are within the bounds, with the source's columns."""
        from pyspark.sql import functions as F

        wanted = dict(self.spans(bounds) if spans is None else spans)
        past, present = self.split(wanted)
        messages = self._read_lake(past)
        if present:
            live = read_spans(self.spark, self._options, present)
            messages = live if not past else messages.unionByName(live)
        stored_ms = F.unix_millis("storeTimestamp")
        if bounds is not None and bounds.since_ms is not None:
            messages = messages.where(stored_ms >= bounds.since_ms)
        if bounds is not None and bounds.until_ms is not None:
            messages = messages.where(stored_ms < bounds.until_ms)
        return messages

    def split(self, spans: Spans) -> tuple[dict[Queue, Span], dict[Queue, Span]]:
        """What of the spans is in the lake, and what is at brokers."""
        past: dict[Queue, Span] = {}
        present: dict[Queue, Span] = {}
        for queue, span in sorted(spans.items()):
            seam = self.queues[queue]
            for part, whole in (
                (past, Span(seam.first, seam.seam)),
                (present, Span(seam.seam, seam.end)),
            ):
                both = common(span, whole)
                if both.first < both.end:
                    part[queue] = both
        return past, present

    def _read_lake(self, spans: Spans) -> DataFrame:
        chosen, is_partial = [], False
        for file in self._files:
            shares = [
                (span, common(span, spans[queue]))
                for queue, span in file.spans().items()
                if queue in spans
            ]
            if any(share.first < share.end for _, share in shares):
                chosen.append(file)
            is_partial |= any(share != span for span, share in shares)
        if self._lake is None or not chosen:
            return self.spark.createDataFrame([], DDL)
        messages = self._lake.read(chosen)
        return messages.where(within(spans)) if is_partial else messages

    def _starts(self, since_ms: int) -> dict[Queue, int]:
        """Before these offsets, everything was stored before the moment."""
        starts = self._live_offsets(since_ms)
        for file in self._files:
            if file.stored_last_ms >= since_ms:
                for queue, span in file.spans().items():
                    starts[queue] = min(starts[queue], span.first)
        return starts

    def _ends(self, until_ms: int) -> dict[Queue, int]:
        """From these offsets on, everything was stored at the moment or later."""
        live = self._live_offsets(until_ms)
        ends = {queue: seam.first for queue, seam in self.queues.items()}
        for file in self._files:
            if file.stored_first_ms < until_ms:
                for queue, span in file.spans().items():
                    ends[queue] = max(ends[queue], span.end)
        is_live = {queue for queue, offset in live.items() if offset > self.queues[queue].seam}
        return {queue: live[queue] if queue in is_live else end for queue, end in ends.items()}

    def _live_offsets(self, moment_ms: int) -> dict[Queue, int]:
        """The offset of a moment in each queue by its broker; the seam when it is before that."""
        found = {queue: seam.seam for queue, seam in self.queues.items()}
        live = [queue for queue, seam in self.queues.items() if seam.seam < seam.end]
        if live:
            selection = self._options | {"subscribe": ",".join(self.topics)}
            for queue, offset in offsets_at(selection, live, moment_ms).items():
                found[queue] = max(offset, found[queue])
        return found


def seams(files: list[LakeFile], live: Spans, *, fails: bool = True) -> dict[Queue, Seam]:
    """Where each queue's part in the lake ends and its broker's begins.

    Raises LakeError for a lake that has offsets twice or not at all, and DataLoss when brokers do
    not go on where the lake ends.
    """
    if twice := overlapping(files):
        queue, spans = next(iter(twice.items()))
        raise LakeError(f"{queue}: the lake has offsets {spans[0]} twice; run audit to see where")
    archived: dict[Queue, list[Span]] = {}
    for file in files:
        for queue, span in file.spans().items():
            archived.setdefault(queue, []).append(span)
    found: dict[Queue, Seam] = {}
    for queue in sorted(archived.keys() | live.keys()):
        past, present = archived.get(queue), live.get(queue)
        if past is None:
            assert present is not None
            found[queue] = Seam(present.first, present.first, present.end)
            continue
        first, end = min(span.first for span in past), max(span.end for span in past)
        if fails and (missing := gaps(past)):
            raise _loss(queue, missing[0].first, missing[0].end, "the lake has a gap")
        if present is None:
            found[queue] = Seam(first, end, end)
            continue
        if present.end < end:
            why = "the lake is ahead of the broker: was the topic deleted and made again?"
            raise _loss(queue, end, present.end, why)
        if fails and present.first > end:
            raise _loss(queue, end, present.first, "retention passed the end of the lake")
        found[queue] = Seam(first, max(end, min(present.first, present.end)), present.end)
    return found


def _loss(queue: Queue, wanted: int, available: int, reason: str) -> DataLoss:
    return DataLoss(
        topic=queue.topic,
        broker=queue.broker,
        queue_id=queue.queue_id,
        wanted=wanted,
        available=available,
        reason=reason,
    )


def _moment_ms(flag: str, text: str) -> int | None:
    if found := AGO.fullmatch(text.strip()):
        return SystemClock().wall_ms() - int(found[1]) * AGO_MS[found[2]]
    return OptionReader({flag: text}).moment_ms(flag)
