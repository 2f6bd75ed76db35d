"""The manifest of a lake: a log of changes, and the state it adds up to.

Entry N is the file `_manifest/N.json`, made whole and never changed. What the entries add up to is
the lake: files that no entry adds do not exist, whatever a directory shows. So a batch is in the
lake with its entry or not at all, and a compaction swaps old files for new ones in one step.
Everything here is pure; `lake.py` does the reading and writing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Self

import msgspec

from ariane.errors import ArianeError
from ariane.spark.offsets import Queue
from ariane.spark.pipelines.ranges import Span, common, overlaps

VERSION_DIGITS: Final = 20


class LakeError(ArianeError):
    """A lake that is not as it must be, or a change it does not take."""


class FileRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a file holds of one queue: all its rows lie in [first, end)."""

    broker: str
    queue_id: int
    first: int
    end: int
    count: int
    checksum: int  # of offsets and bodies, whatever their order


class LakeFile(msgspec.Struct, frozen=True):
    """One Parquet file: messages of one topic, stored on one day (UTC)."""

    path: str  # below the lake's root
    topic: str
    day: str
    byte_count: int
    stored_first_ms: int
    stored_last_ms: int
    ranges: tuple[FileRange, ...]

    @property
    def row_count(self) -> int:
        """Messages in the file."""
        return sum(each.count for each in self.ranges)

    def spans(self) -> dict[Queue, Span]:
        """Offsets by queue."""
        return {
            Queue(self.topic, each.broker, each.queue_id): Span(each.first, each.end)
            for each in self.ranges
        }


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of the lake.

    `begin` announces a job that will bring files named after it, `give_up` says that it never will;
    they let a crash be told from work under way.
    """

    kind: Literal["archive", "begin", "give_up", "compact"]
    job: str  # the id of a streaming query, or of one compaction
    batch_id: int = -1
    add: tuple[LakeFile, ...] = ()
    remove: tuple[str, ...] = ()


class State(msgspec.Struct):
    """What the entries up to `version` add up to; `-1` is before the first."""

    version: int = -1
    files: dict[str, LakeFile] = {}
    batches: dict[str, int] = {}  # the last batch of each streaming query
    jobs: set[str] = set()  # compactions under way, or dead
    removed: set[str] = set()  # files that are no more, but may still be on disk

    def apply(self, version: int, entry: Entry) -> Self:
        """Take the next entry."""
        if version != self.version + 1:
            raise LakeError(f"the manifest lacks entry {self.version + 1}; next is {version}")
        self.version = version
        match entry.kind:
            case "archive":
                self.batches[entry.job] = entry.batch_id
            case "begin":
                self.jobs.add(entry.job)
            case "give_up" | "compact":
                self.jobs.discard(entry.job)
        for path in entry.remove:
            del self.files[path]
        self.removed.update(entry.remove)
        self.files.update((file.path, file) for file in entry.add)
        return self

    def has(self, entry: Entry) -> bool:
        """Whether an archived batch is in the lake already."""
        return entry.kind == "archive" and entry.batch_id <= self.batches.get(entry.job, -1)

    def fault(self, entry: Entry) -> str | None:
        """Why the lake does not take the entry, or None when it does."""
        if entry.kind == "compact":
            if entry.job not in self.jobs:
                return f"compaction {entry.job} was given up by another one"
            if missing := [path for path in entry.remove if path not in self.files]:
                return f"{missing[0]} is not in the lake any more; compact again"
        gone = set(entry.remove)
        kept = [file for path, file in self.files.items() if path not in gone]
        return overlap_of(kept, entry.add)

    def queue_spans(self) -> dict[Queue, list[Span]]:
        """Every range of every queue, by offset."""
        found: dict[Queue, list[Span]] = {}
        for file in self.files.values():
            for queue, span in file.spans().items():
                found.setdefault(queue, []).append(span)
        return {queue: sorted(spans) for queue, spans in sorted(found.items())}

    def ends(self) -> dict[Queue, int]:
        """Where the lake's part of each queue ends: the offset that it wants next."""
        return {queue: max(s.end for s in spans) for queue, spans in self.queue_spans().items()}


def begun(state: State, root: str) -> State:
    """The state of a lake to be read: one without an entry is no lake, or at another place."""
    if state.version < 0:
        raise LakeError(f"there is no lake in {root}, nothing was archived there; is it the place?")
    return state


def overlap_of(kept: Iterable[LakeFile], added: Iterable[LakeFile]) -> str | None:
    """Two files that claim the same offsets, in words; None when none do.

    A message is of one day for ever, so only files of one day can hold it twice. Between days,
    ranges may interlock: a broker's clock that is set back at midnight does that.
    """
    claimed: dict[tuple[Queue, str], list[tuple[Span, str]]] = {}
    for file in kept:
        for queue, span in file.spans().items():
            claimed.setdefault((queue, file.day), []).append((span, file.path))
    for file in added:
        for queue, span in file.spans().items():
            others = claimed.setdefault((queue, file.day), [])
            for other, path in others:
                both = common(span, other)
                if both.first < both.end:
                    return f"{queue}: offsets {both} are in {path} and in {file.path}"
            others.append((span, file.path))
    return None


def overlapping(files: Iterable[LakeFile]) -> dict[Queue, list[Span]]:
    """Offsets that more than one file of a day claims."""
    claimed: dict[tuple[Queue, str], list[Span]] = {}
    for file in files:
        for queue, span in file.spans().items():
            claimed.setdefault((queue, file.day), []).append(span)
    found: dict[Queue, list[Span]] = {}
    for (queue, _), spans in claimed.items():
        if twice := overlaps(spans):
            found.setdefault(queue, []).extend(twice)
    return found


def entry_name(version: int) -> str:
    """The file of an entry."""
    return f"{version:0{VERSION_DIGITS}d}.json"


def snapshot_name(version: int) -> str:
    """The file of a state."""
    return f"{version:0{VERSION_DIGITS}d}.snapshot.json"


def version_of(name: str) -> int:
    """The version in a file's name."""
    return int(name.split(".", 1)[0])
