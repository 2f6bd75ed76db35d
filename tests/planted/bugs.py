"""Bugs that brokers have really had, each put back into ours for the length of a test.

A bug is a patch of running code, never of a source file. The numbers are those of Apache RocketMQ's
issues and pull requests where the bug was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from ariane.config import StoreConfig
from ariane.disk import Disk, MappedFile
from ariane.errors import StoreError
from ariane.kernel.dispatch import dispatch
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store import config_files, dispatching, keeping, lookups, queues, segments
from ariane.store.appending import Appender
from ariane.store.checkpoint import Claim
from ariane.store.flush import Flusher
from ariane.store.indexes import Indexes
from ariane.store.keeping import Keeper
from ariane.store.messages import BatchEntry, Found, FoundStatus
from ariane.store.opening import Files
from ariane.store.queues import Queues
from ariane.store.recovery import Recovery
from ariane.store.retention import Situation, removable_count
from ariane.store.segments import Segments
from ariane.store.store import Store
from ariane.store.transient_pool import TransientPool
from ariane.store.watermarks import Mark

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Bug:
    """How to plant it, what is said when it is found, in which kind of store, by which actions."""

    plant: Callable[[Patch], None]
    words: str
    kind: str = "async"
    weights: dict[str, float] = field(default_factory=dict)


def failed_sync_is_success(patch: Patch) -> None:
    """#2706, #4306: the error is logged, the position moves, the sender hears that all is well."""

    def done(self: Flusher, end: int, error: Exception | None) -> None:
        self._is_busy = False
        self._marks.move(Mark.FLUSHED, end)
        self._on_flushed()

    patch.setattr(Flusher, "_done", done)


def flushed_without_a_sync(patch: Patch) -> None:
    """DefaultMappedFile: a file that cannot be held counts as flushed; here, all but the newest."""
    ranges = Segments.ranges

    def newest_only(self: Segments, first: int, end: int) -> list[tuple[MappedFile, int, int]]:
        return ranges(self, first, end)[-1:]

    patch.setattr(Segments, "ranges", newest_only)


def acknowledged_before_the_sync(patch: Patch) -> None:
    """Group commit that moves on when the sync is asked for, not when it has ended."""
    flush = Flusher.flush

    def flush_later(self: Flusher, end: int) -> None:
        flush(self, end)
        self._marks.move(Mark.FLUSHED, max(self.flushed, end))

    def done(self: Flusher, end: int, error: Exception | None) -> None:
        self._is_busy = False
        self._marks.move(Mark.FLUSHED, max(self.flushed, end))
        self._on_flushed()

    patch.setattr(Flusher, "flush", flush_later)
    patch.setattr(Flusher, "_done", done)


def shown_before_it_is_flushed(patch: Patch) -> None:
    """#6703: consumers read what a power cut may take, and its offset is given out again."""

    def advance(self: Store) -> None:
        self.log.visible = self.log.end
        self._flusher.flush(self.log.end)

    patch.setattr(Store, "advance", advance)


def shown_before_it_is_copied(patch: Patch) -> None:
    """The transient pool's promise told for what is in memory only."""

    def copy(self: TransientPool, end: int) -> int:
        return end

    patch.setattr(TransientPool, "copy", copy)


def stale_tail_is_left(patch: Patch) -> None:
    """#10666: truncation moves a number and leaves the bytes, which the next crash revives."""

    def cut(self: Segments, end: int, *, is_dirty: bool) -> None:
        log = self._log
        log.truncate(end)
        while log.file_count > 1 and log.end_position - log.file_bytes > end:
            self.drop_last()

    patch.setattr(Segments, "cut", cut)


def recovered_and_not_synced(patch: Patch) -> None:
    """What a killed process left in the page cache is taken for durable."""
    patch.setattr(Recovery, "_sync_log", lambda self, first, end: None)


def lost_pages_are_believed(patch: Patch) -> None:
    """After a failed sync and a restart the page cache is read, synced in vain, and trusted."""
    patch.setattr(Files, "has_failed_before", lambda self: False)


def last_but_one_file_is_skipped(patch: Patch) -> None:
    """#467, #405, #1434: recovery begins in the newest segment; records before have no entry."""
    walk = Recovery._walk

    def from_the_newest(
        self: Recovery, first: int, index_from: int, make_room: Callable[[Queue, int], bool]
    ) -> tuple[int, int]:
        newest = self.log.end_position - self.log.file_bytes
        while newest > first and not self._is_record(newest):
            newest -= self.log.file_bytes
        return walk(self, max(first, newest), index_from, make_room)

    patch.setattr(Recovery, "_walk", from_the_newest)


def claim_before_the_log(patch: Patch) -> None:
    """#678, #10073: the checkpoint does not wait for the log to be flushed."""

    def checkpoint(self: Keeper, end: int) -> None:
        if not self._is_saving and not self._flusher.has_failed:
            snapshot = self._snapshot(end)
            self._is_saving = True
            self._lane.run(
                lambda: self._save(snapshot), lambda future: self._saved_it(snapshot, future)
            )

    patch.setattr(Keeper, "checkpoint", checkpoint)


def claim_before_the_queues(patch: Patch) -> None:
    """#678: the checkpoint is written first, and what it speaks of is synced after it."""

    def save(self: Keeper, snapshot: Any) -> None:
        self._file.save(snapshot.checkpoint)
        self._disk.sync_many(snapshot.ranges, snapshot.directories)

    patch.setattr(Keeper, "_save", save)


def names_are_not_synced(patch: Patch) -> None:
    """Entries are synced, the directory that leads to them is not."""
    patch.setattr(Queues, "take_renamed", lambda self: set())


def empty_file_stops_the_start(patch: Patch) -> None:
    """#9728, #10108: a last file without length, and the broker never starts again."""

    def positions_in(disk: Disk, directory: str, file_bytes: int, **_arguments: Any) -> list[int]:
        for name, size in disk.names(directory):
            if size != file_bytes:
                raise StoreError(f"{directory}/{name} has {size} bytes")
        return [int(name) for name, _ in disk.names(directory)]

    patch.setattr(queues, "positions_in", positions_in)
    patch.setattr(segments, "positions_in", positions_in)


def index_is_dropped(patch: Patch) -> None:
    """#8007: the newest index file is deleted after a kill, and only what is walked comes back."""
    restore = Recovery._restore_claimed

    def drop(self: Recovery, claim: Claim) -> bool:
        is_whole = restore(self, claim)
        if self.was_killed and self.indexes.files:
            self.indexes.drop_last()
        return is_whole

    patch.setattr(Recovery, "_restore_claimed", drop)


def index_keeps_lost_records(patch: Patch) -> None:
    """The index is believed as it lies there, whatever the log has lost."""
    patch.setattr(Recovery, "_restore_claimed", lambda self, claim: True)


def offsets_written_in_place(patch: Patch) -> None:
    """#3401, #6096, #9328: a power cut leaves half a file of offsets."""

    def persist(disk: Disk, path: str, data: bytes) -> None:
        disk.make_directory(path.rpartition("/")[0])
        disk.write(path, data)

    patch.setattr(config_files, "persist", persist)


def disk_stays_full(patch: Patch) -> None:
    """#2398, #4549: the mark of a full disk is set and never taken back."""
    look = Store._look_at_disk

    def look_once(self: Store) -> None:
        reason = self.disk_full_reason
        look(self)
        self.disk_full_reason = self.disk_full_reason or reason

    patch.setattr(Store, "_look_at_disk", look_once)


def offset_past_the_end_starts_again(patch: Patch) -> None:
    """#4215: a pull past the end is sent to 0, and everything is consumed again."""
    find = lookups.find

    def rewind(log: Log, queue: Queue | None, first: int, **limits: Any) -> Found:
        found = find(log, queue, first, **limits)
        if found.status is FoundStatus.OFFSET_OVERFLOW_BADLY and found.min_offset == 0:
            return found._replace(next_offset=0)
        return found

    patch.setattr(lookups, "find", rewind)


def offsets_are_given_out_twice(patch: Patch) -> None:
    """#7689: after a restart new messages get the queue offsets of old ones."""
    find_ends = Recovery._find_ends

    def one_less(self: Recovery, log_offset: int) -> None:
        find_ends(self, log_offset)
        for _, queue in self.queues:
            if queue.end * queues.ENTRY_BYTES > queue.first_position:
                queue.end = queue.reserved_end = queue.end - 1

    patch.setattr(Recovery, "_find_ends", one_less)


def last_segment_is_removed(patch: Patch) -> None:
    """Retention that takes every segment old enough, the one being written included."""

    def one_more(config: StoreConfig, situation: Situation) -> int:
        return removable_count(config, situation) + 1

    patch.setattr(keeping, "removable_count", one_more)


def entries_go_before_their_records(patch: Patch) -> None:
    """Retention drops a queue file of which some records are still in the log."""
    trim = Queues.trim

    def one_file_more(self: Queues, removable: list[str]) -> Iterator[None]:
        yield from trim(self, removable)
        for queue, files in self._files.items():
            if removable and queue.file_count > 1:
                queue.drop_first()
                file = files.files.pop(0)
                file.close()
                removable.append(file.path)

    patch.setattr(Queues, "trim", one_file_more)


def keys_go_before_their_records(patch: Patch) -> None:
    """Retention drops an index file that leads to records still in the log."""
    trim = Indexes.trim

    def all_but_the_newest(self: Indexes, log_offset: int) -> list[str]:
        return trim(self, 1 << 62)

    patch.setattr(Indexes, "trim", all_but_the_newest)


def buffer_is_used_again(patch: Patch) -> None:
    """#10911: a body is written from memory that another message has come to use."""
    place = Appender._place
    last: list[bytes] = [b""]

    def place_reused(
        self: Appender, queue: Queue, entry: BatchEntry, source: Any, born_host: bytes
    ) -> int:
        if len(last[0]) == len(entry.body):
            entry = entry._replace(body=last[0])
        last[0] = entry.body
        return place(self, queue, entry, source, born_host)

    patch.setattr(Appender, "_place", place_reused)


def deleted_topic_comes_back(patch: Patch) -> None:
    """A topic's queues are removed while the checkpoint still counts them."""

    def delete_topic(
        self: Store, topic: str, done: Callable[[Exception | None], None] = lambda _: None
    ) -> None:
        self._queues.delete_topic(topic)
        done(None)

    patch.setattr(Store, "delete_topic", delete_topic)


def blank_is_the_end(patch: Patch) -> None:
    """Recovery takes the end of a full segment for the end of the log."""

    def one_segment(log: Log, first: int, last: int, **arguments: Any) -> tuple[int, int, int]:
        end, last_ms, count = dispatch(log, first, last, **arguments)
        boundary = first - first % log.file_bytes + log.file_bytes
        return min(end, boundary), last_ms, count

    patch.setattr(dispatching, "dispatch", one_segment)


BUGS: Final = {
    "a failed sync is a success": Bug(failed_sync_is_success, "was promised", "sync", {"fail": 8}),
    "flushed without a sync": Bug(flushed_without_a_sync, "was promised"),
    "acknowledged before the sync": Bug(
        acknowledged_before_the_sync, "was promised", "sync, background"
    ),
    "shown before it is flushed": Bug(
        shown_before_it_is_flushed, "a sync would claim what is not in the file", "sync, background"
    ),
    "shown before it is copied": Bug(shown_before_it_is_copied, "was promised", "staged"),
    "a stale tail is left": Bug(stale_tail_is_left, "something lies behind the end"),
    "recovered and not synced": Bug(recovered_and_not_synced, "is not what was sent"),
    "lost pages are believed": Bug(
        lost_pages_are_believed, "was promised", weights={"fail": 8, "flush": 8}
    ),
    "the last but one file is skipped": Bug(
        last_but_one_file_is_skipped, "has offsets (2, 4), expected (0, 4)"
    ),
    "a claim before the log": Bug(
        claim_before_the_log, "claimed before it was flushed", "async, background"
    ),
    "a claim before the queues": Bug(
        claim_before_the_queues, " misses [", weights={"checkpoint": 15}
    ),
    "names are not synced": Bug(names_are_not_synced, "has offsets (0, 0)"),
    "an empty file stops the start": Bug(empty_file_stops_the_start, "has 0 bytes"),
    "the index is dropped": Bug(index_is_dropped, " misses ["),
    "the index keeps lost records": Bug(index_keeps_lost_records, " misses ["),
    "offsets are written in place": Bug(offsets_written_in_place, "offsets are {}"),
    "the disk stays full": Bug(disk_stays_full, "full and writing stops at"),
    "an offset past the end starts again": Bug(offset_past_the_end_starts_again, "AssertionError"),
    "offsets are given out twice": Bug(offsets_are_given_out_twice, "has offsets"),
    "the last segment is removed": Bug(last_segment_is_removed, "the newest segment was removed"),
    "entries go before their records": Bug(
        entries_go_before_their_records, ": None, not (", weights={"remove_old": 8}
    ),
    "keys go before their records": Bug(keys_go_before_their_records, " misses ["),
    "a buffer is used again": Bug(buffer_is_used_again, "reads as something else"),
    "a deleted topic comes back": Bug(deleted_topic_comes_back, "came back"),
    "a blank is the end": Bug(blank_is_the_end, "what is dispatched is never cut"),
}
