"""compact: many small files of a lake into few, sorted by queue and offset, with nothing dropped.

New files are written and read back; only when they hold the very messages of the old ones does one
entry of the manifest swap them. A crash before it leaves the old files, one after it the new. What
a crash leaves on the disk goes with the next run: each compaction announces itself in the manifest,
so the next one can give it up and delete what it wrote.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from ariane.spark.offsets import Queue
from ariane.spark.pipelines import settings
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.manifest import Entry, LakeError, LakeFile, State, begun, overlapping
from ariane.spark.pipelines.messages import checksum
from ariane.spark.pipelines.outcome import Outcome, Progress, Report, quietly, table_of
from ariane.spark.pipelines.settings import PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

MEBIBYTE: Final = 1 << 20
QUEUE_ORDER: Final = ("brokerName", "queueId", "queueOffset")

Contents = dict[Queue, tuple[int, int]]  # count and checksum


class Config(PipelineConfig, frozen=True, kw_only=True):
    """Options of `compact`."""

    lake: settings.LakePath
    topics: Annotated[
        tuple[str, ...], Meta(description="Only these topics; all of the lake when not given.")
    ] = ()
    target_mb: Annotated[
        int, Meta(description="Size to make files of, in MiB; larger ones are left alone.", ge=1)
    ] = 256
    min_files: Annotated[
        int, Meta(description="A topic's day with fewer small files is left alone.", ge=2)
    ] = 2
    dry_run: Annotated[bool, Meta(description="Only say what would be done.")] = False


def run(spark: SparkSession, config: Config, report: Report = quietly) -> Outcome:
    """Compact every topic's day that has enough small files."""
    lake = Lake(spark, config.lake)
    state = begun(lake.state(), lake.files.root)
    _refuse_overlaps(state)
    groups = _groups(state, config)
    rows: list[list[object]] = []
    if not config.dry_run:
        _clean(lake, state)
    for number, ((topic, day), files) in enumerate(groups.items()):
        new_count = _parts_of(files, config)
        if not config.dry_run:
            new_count = _compact(lake, files, new_count)
            report(Progress(number, sum(f.row_count for f in files), 0.0, f"{topic} {day}"))
        rows.append([topic, day, len(files), new_count, sum(f.row_count for f in files)])
    if not config.dry_run:
        lake.snapshot()
    return Outcome(
        "compact",
        {
            "days": len(rows),
            "files_before": len(state.files),
            "files_after": len(state.files) if config.dry_run else len(lake.state().files),
            "dry_run": config.dry_run,
        },
        **table_of(["topic", "day", "files_before", "files_after", "messages"], rows),
    )


def _groups(state: State, config: Config) -> dict[tuple[str, str], list[LakeFile]]:
    """The small files of each topic's day that are worth it."""
    small: dict[tuple[str, str], list[LakeFile]] = {}
    for file in sorted(state.files.values(), key=lambda file: (file.topic, file.day, file.path)):
        is_chosen = not config.topics or file.topic in config.topics
        if is_chosen and file.byte_count < config.target_mb * MEBIBYTE:
            small.setdefault((file.topic, file.day), []).append(file)
    return {
        key: files
        for key, files in small.items()
        if len(files) >= config.min_files and _parts_of(files, config) < len(files)
    }


def _parts_of(files: Iterable[LakeFile], config: Config) -> int:
    return math.ceil(sum(file.byte_count for file in files) / (config.target_mb * MEBIBYTE)) or 1


def _compact(lake: Lake, files: Sequence[LakeFile], part_count: int) -> int:
    """Put the files' messages into new ones, and the new ones into the place of the old."""
    job = uuid.uuid4().hex
    lake.commit(lambda state: Entry(kind="begin", job=job))
    messages = lake.read(files)
    found = _contents_read(messages)
    if fault := _difference(_contents_told(files), found):
        raise LakeError(f"{fault}; the files are not what was archived, so nothing was changed")
    parted = (
        messages.coalesce(1)
        if part_count == 1
        else messages.repartitionByRange(part_count, *QUEUE_ORDER)
    )
    lake.stage(parted, job)
    staged = lake.staged(job)
    if fault := _difference(found, _contents_told(staged)):
        lake.clear(job)
        raise LakeError(
            f"{fault}; the new files are not what the old ones are, nothing was changed"
        )
    added = tuple(lake.publish(staged, job))
    removed = tuple(file.path for file in files)
    lake.commit(lambda state: Entry(kind="compact", job=job, add=added, remove=removed))
    for path in removed:
        lake.files.delete(path)
    return len(added)


def _clean(lake: Lake, state: State) -> None:
    """Delete what compactions that died have left: their drafts, or the files they replaced."""
    for job in sorted(state.jobs):
        lake.commit(
            lambda now, job=job: Entry(kind="give_up", job=job) if job in now.jobs else None  # type: ignore[misc]
        )
        lake.clear(job)
    for path in sorted(state.removed):
        lake.files.delete(path)


def _refuse_overlaps(state: State) -> None:
    for queue, spans in overlapping(state.files.values()).items():
        raise LakeError(
            f"{queue}: offsets {spans[0]} are in the lake more than once; `ariane pipeline run "
            "audit` shows where. Nothing was changed"
        )


def _contents_told(files: Iterable[LakeFile]) -> Contents:
    """What the manifest says of the files."""
    found: Contents = {}
    for file in files:
        for each in file.ranges:
            queue = Queue(file.topic, each.broker, each.queue_id)
            count, total = found.get(queue, (0, 0))
            found[queue] = (count + each.count, total ^ each.checksum)
    return found


def _contents_read(messages: DataFrame) -> Contents:
    """What the files hold."""
    from pyspark.sql import functions as F

    rows: list[Any] = (
        messages.groupBy("topic", "brokerName", "queueId")
        .agg(F.count("*").alias("count"), checksum().alias("checksum"))
        .collect()
    )
    return {
        Queue(row["topic"], row["brokerName"], row["queueId"]): (row["count"], row["checksum"])
        for row in rows
    }


def _difference(wanted: Contents, found: Contents) -> str | None:
    for queue in sorted(wanted.keys() | found.keys()):
        if wanted.get(queue) != found.get(queue):
            (count, total), (found_count, found_total) = (
                contents.get(queue, (0, 0)) for contents in (wanted, found)
            )
            return (
                f"{queue}: {count} messages with checksum {total & (1 << 64) - 1:016x} became "
                f"{found_count} with {found_total & (1 << 64) - 1:016x}"
            )
    return None
