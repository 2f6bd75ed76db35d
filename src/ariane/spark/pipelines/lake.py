"""A lake of messages: Parquet files by topic and day, and the manifest that says which count.

    LAKE/topic=orders/day=2026-11-16/<job>-<batch>-<n>.parquet
    LAKE/_manifest/00000000000000000012.json

Files are written aside, below `_staging`, moved into place and only then told of in the manifest.
So whoever reads by the manifest sees all of a change or nothing of it. Spark writes them and reads
them again to learn what is in them; or the tasks that read the messages do, and tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ariane.spark.pipelines.files import DRAFT, Files, Found
from ariane.spark.pipelines.layout import COMPRESSION, MANIFEST, STAGING, topic_and_day_of
from ariane.spark.pipelines.manifest import (
    Entry,
    FileRange,
    LakeError,
    LakeFile,
    State,
    entry_name,
    snapshot_name,
    version_of,
)
from ariane.spark.pipelines.messages import DDL, checksum, utc_day
from ariane.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

TRIES: Final = 20  # to come after others who change the lake at the same time
ORDER: Final = ("topic", "day", "brokerName", "queueId", "queueOffset")


class Lake:
    """One lake, by the directory that it is in."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.files = Files(spark, root)

    def state(self) -> State:
        """What the manifest adds up to now."""
        for _ in range(TRIES):
            with suppress(FileNotFoundError, LakeError):
                return self._loaded()
            # Entries may have gone into a snapshot while we read them.
        return self._loaded()

    def commit(self, make: Callable[[State], Entry | None]) -> State:
        """Add the entry that `make` gives for the latest state; None adds nothing.

        Raises LakeError when the lake does not take it.
        """
        for _ in range(TRIES):
            state = self.state()
            entry = make(state)
            if entry is None or state.has(entry):
                return state
            if fault := state.fault(entry):
                raise LakeError(fault)
            version = state.version + 1
            name = f"{MANIFEST}/{entry_name(version)}"
            if self.files.put(name, msgspec.json.encode(entry)):
                return state.apply(version, entry)
        raise LakeError(f"{self.files.root} is changed by others all the time; try again")

    def snapshot(self) -> State:
        """Put the state into one file, and delete the entries that are in it."""
        state = self.state()
        if state.version < 0:
            return state
        state.removed = {path for path in state.removed if self.files.exists(path)}
        name = snapshot_name(state.version)
        self.files.put(f"{MANIFEST}/{name}", msgspec.json.encode(state))
        for other in self.files.names(MANIFEST):
            is_draft = other.endswith(DRAFT)  # of somebody who adds an entry now
            if other != name and not is_draft and version_of(other) <= state.version:
                self.files.delete(f"{MANIFEST}/{other}")
        return state

    def read(self, files: Iterable[LakeFile]) -> DataFrame:
        """The messages in the files, with the source's columns."""
        paths = [self.files.uri(file.path) for file in files]
        reader = self.spark.read.schema(f"{DDL}, day string")
        if not paths:
            return self.spark.createDataFrame([], DDL)
        return reader.option("basePath", self.files.root).parquet(*paths).select(*COLUMNS)

    def stage(self, messages: DataFrame, job: str) -> None:
        """Write the messages aside, by topic and day, in order within each file."""
        (
            messages.withColumn("day", utc_day())
            .sortWithinPartitions(*ORDER)
            .write.mode("overwrite")
            .option("compression", COMPRESSION)
            .partitionBy("topic", "day")
            .parquet(self.files.uri(f"{STAGING}/{job}"))
        )

    def staged(self, job: str) -> list[LakeFile]:
        """What was written aside, by reading it again."""
        directory = f"{STAGING}/{job}"
        found = {_key_of(each): each for each in self.files.walk(directory) if _is_data(each)}
        if not found:
            return []
        rows = self._described(
            self.spark.read.schema(f"{DDL}, day string").parquet(self.files.uri(directory))
        )
        ranges: dict[tuple[str, str, str], list[Any]] = {}
        for row in rows:
            ranges.setdefault((row["topic"], row["day"], row["file"]), []).append(row)
        return [
            LakeFile(
                path=found[key].path,
                topic=key[0],
                day=key[1],
                byte_count=found[key].byte_count,
                stored_first_ms=min(row["stored_first_ms"] for row in group),
                stored_last_ms=max(row["stored_last_ms"] for row in group),
                ranges=tuple(
                    FileRange(
                        row["brokerName"],
                        row["queueId"],
                        row["first"],
                        row["last"] + 1,
                        row["count"],
                        row["checksum"],
                    )
                    for row in group
                ),
            )
            for key, group in sorted(ranges.items())
        ]

    def told(self, files: Iterable[LakeFile], job: str) -> list[LakeFile]:
        """What tasks say that they wrote aside; raises LakeError unless all of it is there."""
        there = {found.path: found.byte_count for found in self.files.walk(f"{STAGING}/{job}")}
        for file in files:
            if there.get(file.path) != file.byte_count:
                raise LakeError(
                    f"an executor has written {self.files.uri(file.path)}, and the driver does not "
                    "find it: put the lake where all machines have it, as on HDFS, S3 or NFS"
                )
        return sorted(files, key=lambda file: (file.topic, file.day, min(file.spans().items())))

    def publish(self, staged: Sequence[LakeFile], job: str) -> list[LakeFile]:
        """Move staged files to where they stay; they are not in the lake before their entry is."""
        placed = []
        for number, file in enumerate(staged):
            directory = file.path.removeprefix(f"{STAGING}/{job}/").rsplit("/", 1)[0]
            path = f"{directory}/{job}-{number:04d}.parquet"
            self.files.move(file.path, path)
            placed.append(msgspec.structs.replace(file, path=path))
        self.files.delete(f"{STAGING}/{job}")
        return placed

    def clear(self, job: str) -> None:
        """Delete what a job that died has left: it is in no entry."""
        self.files.delete(f"{STAGING}/{job}")
        for found in self.files.walk():
            if found.path.rsplit("/", 1)[-1].startswith(f"{job}-"):
                self.files.delete(found.path)

    def strays(self, state: State) -> list[str]:
        """Data files on disk that are in no entry."""
        return [
            each.path
            for each in self.files.walk()
            if _is_data(each) and each.path not in state.files and each.path not in state.removed
        ]

    def _loaded(self) -> State:
        names = [name for name in self.files.names(MANIFEST) if not name.endswith(DRAFT)]
        snapshots = [name for name in names if name.endswith(".snapshot.json")]
        state = State()
        if snapshots:
            state = msgspec.json.decode(self.files.read(f"{MANIFEST}/{snapshots[-1]}"), type=State)
        for name in names:
            version = version_of(name)
            if name in snapshots or version <= state.version:
                continue
            data = self.files.read(f"{MANIFEST}/{name}")
            state.apply(version, msgspec.json.decode(data, type=Entry))
        return state

    def _described(self, staged: DataFrame) -> list[Any]:
        from pyspark.sql import functions as F

        stored_ms = F.unix_millis("storeTimestamp")
        return (
            staged.withColumn("file", F.col("_metadata.file_name"))
            .groupBy("topic", "day", "file", "brokerName", "queueId")
            .agg(
                F.min("queueOffset").alias("first"),
                F.max("queueOffset").alias("last"),
                F.count("*").alias("count"),
                checksum().alias("checksum"),
                F.min(stored_ms).alias("stored_first_ms"),
                F.max(stored_ms).alias("stored_last_ms"),
            )
            .collect()
        )


def _key_of(found: Found) -> tuple[str, str, str]:
    return *topic_and_day_of(found.path), found.path.rsplit("/", 1)[-1]


def _is_data(found: Found) -> bool:
    return found.path.endswith(".parquet")
