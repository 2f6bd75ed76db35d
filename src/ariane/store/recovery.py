"""Bringing a store back to exactly what its log holds, after a clean stop or any other.

Theory of operation. Whatever lies below some log offset is known to be right: below the claim of
our own checkpoint, or, where Apache's broker wrote last, below the offset its rules give.
From there the log is walked record by record, each checked, to its true end. On the way every
record is put into its queue and its keys into the index, whatever those held before; entries that
point further are gone. Then everything past the end is made zero and synced, so that a record
lost now cannot come back to life behind records written later. A walk that finds a queue or index
with less than it should have is begun again at the start of the log, and steps over what was
damaged since it was claimed.

Each step can be cut short and done again: nothing is believed that was not synced before. That is
why a store without a claim takes a checkpoint before it is written to: entries of a log that is no
more would look right to one that has grown over them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.kernel.reading import end_below
from ariane.store.checkpoint import Checkpoint, Claim
from ariane.store.damage import has_key_between, next_sound
from ariane.store.deletions import Deletions
from ariane.store.dispatching import Dispatcher
from ariane.store.indexes import Indexes
from ariane.store.queues import ENTRY_BYTES, Queues
from ariane.store.segments import Segments

logger: Final = logging.getLogger("ariane.store")

FAR_OFFSET: Final = 1 << 62  # past every record


class _LessThanClaimed(Exception):
    """A queue lacks entries for records in front of the walk."""


@dataclass(slots=True)
class Recovery:
    """One store being recovered. `run` is the whole of it."""

    log: Log
    segments: Segments
    queues: Queues
    indexes: Indexes
    deletions: Deletions
    checkpoint: Checkpoint
    was_killed: bool
    sync_failed: bool  # before it was killed
    check_crc: bool
    index_enabled: bool
    # Says on the platter that only the log can be believed, and how far it was claimed.
    distrust: Callable[[Claim | None], None]
    lacks_claimed_index: bool = False
    dispatcher: Dispatcher = field(init=False)

    def __post_init__(self) -> None:
        """Records go where those of a log that is followed do."""
        indexes = self.indexes if self.index_enabled else None
        self.dispatcher = Dispatcher(self.log, self.queues, indexes)

    def run(self) -> Claim | None:
        """Find the end of the log and make queues and index agree with it.

        Returns the claim if it held; without one the caller takes a checkpoint before it appends.
        """
        if not self.segments.files:
            self._begin_log()
            return None
        self.log.begin_at(self.log.end_position)  # until the walk knows better
        claim = self._sound_claim()
        try:
            self._look_for_missing_files()
            first, index_from = self._restore_index(self._first_to_walk(claim), claim)
            may_jump = first == self.log.first_position
            end, last_ms = self._walk(
                first, index_from, self.dispatcher.step if may_jump else self._continue
            )
        except _LessThanClaimed as fault:
            logger.warning("queues rebuilt from the whole log reason=%s", fault)
            self.distrust(claim)  # cut short, a rebuilding leaves queues with holes in their middle
            self.queues.remove_behind_holes()
            first, index_from = self._restore_index(self.log.first_position, None)
            end, last_ms = self._walk_all(first, index_from, claim)
            claim = None
        self.segments.cut(end, is_dirty=self.was_killed)
        self.log.visible = end
        if self.was_killed:
            self._sync_log(first, end)
        self.log.last_store_ms = max(last_ms, self.checkpoint.log_ms)
        if self.deletions.carry_out(self.queues, end):
            claim = None  # it counts what is gone
        if self.lacks_claimed_index:
            claim = None  # it names what is gone
        self._cut_queues()
        self._cut_index()
        return claim

    def _begin_log(self) -> None:
        """No segment at all: begin past everything the queues ever pointed at.

        Queues keep their numbers, so no offset is given out twice.
        """
        ends = [0]
        for _, queue in self.queues:
            queue.end = _entry_count(queue)
            if (last := queue.entry(queue.end - 1)) is not None and last[0] > 0:
                ends.append(last[0] + last[1])
        size = self.log.file_bytes
        self.log.visible = -(-max(ends) // size) * size
        self.log.begin_at(self.log.visible)
        self.segments.append()
        self.log.last_store_ms = self.checkpoint.log_ms
        self.deletions.carry_out(self.queues, self.log.end)
        self._cut_queues()
        while self.indexes.files:
            self.indexes.drop_last()

    def _sound_claim(self) -> Claim | None:
        """The checkpoint's claim, if the log can be what it speaks of."""
        claim = self.checkpoint.claim
        if claim is not None and not (
            self.log.first_position <= claim.log_offset <= self.log.end_position
        ):
            logger.warning(
                "checkpoint set aside: it speaks of log offset %d, the log has %d to %d",
                claim.log_offset,
                self.log.first_position,
                self.log.end_position,
            )
            self.checkpoint, claim = Checkpoint(), None
        if claim is None and not self.checkpoint.log_ms:
            self.was_killed = True  # or might as well have been: nothing vouches for a clean stop
        return claim

    def _look_for_missing_files(self) -> None:
        for path in self.queues.behind_holes:
            raise _LessThanClaimed(f"the file in front of {path} is missing")
        for (topic, queue_id), queue in self.queues:
            if self.queues.lacks_start(queue):
                raise _LessThanClaimed(
                    f"the first files of queue {queue_id} of {topic} are missing"
                )

    def _first_to_walk(self, claim: Claim | None) -> int:
        """Below this every record is sound and in its queue."""
        if claim is not None:
            self._find_ends(claim.log_offset)
            count, entries = self.queues.counts_without(self.deletions.has_taken)
            if count < claim.queue_count or entries < claim.queue_entries:
                raise _LessThanClaimed(
                    f"{count} queues with {entries} entries found,"
                    f" {claim.queue_count} with {claim.queue_entries} expected"
                )
            return claim.log_offset
        size = self.log.file_bytes
        bases = range(self.log.end_position - size, self.log.first_position, -size)
        if self.was_killed:
            for base in bases:
                is_record = self._is_record(base + self.log.head_bytes)
                store_ms = self.log.store_ms_of(base + self.log.head_bytes) if is_record else 0
                if 0 < store_ms <= self.checkpoint.recover_from_ms:
                    return base
            return self.log.first_position
        # After Apache's clean stop every record that a queue should have is there.
        known = max((self._last_of(queue) for _, queue in self.queues), default=0)
        for base in bases:
            if base <= known and self._is_record(base + self.log.head_bytes):
                return base
        return self.log.first_position

    def _find_ends(self, log_offset: int) -> None:
        """Let every queue end where its entries for records below `log_offset` do."""
        for _, queue in self.queues:
            queue.end = queue.reserved_end = end_below(self.log, queue, log_offset)
            self.queues.mark_unsynced(queue, queue.end)

    def _is_record(self, log_offset: int) -> bool:
        return self.log.check(log_offset, self.log.end_position, check_crc=False) > 0

    def _last_of(self, queue: Queue) -> int:
        last = queue.entry(end_below(self.log, queue, FAR_OFFSET) - 1)
        return 0 if last is None else last[0]

    def _walk_all(self, first: int, index_from: int, claim: Claim | None) -> tuple[int, int]:
        """Walk a log whose older parts may have suffered since they were claimed.

        What cannot be read there is stepped over: taken for the log's end, it would take along
        everything behind it.
        """
        end, last_ms = self._walk(first, index_from, self.dispatcher.step)
        claimed = claim.log_offset if claim else 0
        while (sound := next_sound(self.log, self.segments.files, end, claimed)) is not None:
            logger.error("damaged part of the log left out first=%d end=%d", end, sound)
            self.dispatcher.skipped_bytes += sound - end
            end, ms = self._walk(sound, max(sound, index_from), self.dispatcher.step)
            last_ms = max(last_ms, ms)
        return end, last_ms

    def _walk(
        self, first: int, index_from: int, make_room: Callable[[Queue, int], bool]
    ) -> tuple[int, int]:
        self._find_ends(first)
        end, last_ms, count = self.dispatcher.run(
            first,
            FAR_OFFSET,
            index_from=index_from,
            check_crc=self.check_crc,
            make_room=make_room,
        )
        logger.info("log walked first=%d end=%d records=%d", first, end, count)
        return end, last_ms

    def _continue(self, queue: Queue, queue_offset: int) -> bool:
        can_number = self.dispatcher.can_number
        if queue.file_count and queue_offset > queue.end and can_number(queue, queue_offset):
            raise _LessThanClaimed(
                f"queue {queue.queue_id} of {queue.topic.decode()} ends at {queue.end},"
                f" its next record says {queue_offset}"
            )
        return self.dispatcher.step(queue, queue_offset)

    def _restore_index(self, first: int, claim: Claim | None) -> tuple[int, int]:
        """Cut the index to what can be trusted; where to walk from and where to put in keys from.

        The walk begins at `first`, or earlier when keys in front of it are missing.
        """
        if not self.index_enabled:
            return first, first
        has_lost_files = self._drop_behind_missing_index()
        if claim is not None and self._restore_claimed(claim):
            return first, first
        if claim is None and not self.was_killed and not has_lost_files:
            return first, max(first, self._last_indexed() + 1)
        if claim is None:
            self._repair_index()
        last = self._last_indexed()
        if last < 0 and claim is None and not has_lost_files:
            return first, first
        if last >= first or self._is_record(last):
            return min(first, last - self.log.head_bytes), last + 1
        return self.log.first_position, max(last + 1, self.log.first_position)

    def _drop_behind_missing_index(self) -> bool:
        """Remove index files behind a missing one, so that keys are read again from there on."""
        end = self.log.first_position
        files = [file for file in self.indexes.files if not file.is_empty]
        for file in files:
            if has_key_between(self.log, end, file.index.begin_offset):
                logger.warning("index files are missing in front of index/%017d", file.name)
                while self.indexes.files and self.indexes.files[-1].name >= file.name:
                    self.indexes.drop_last()
                return True
            end = max(
                end, file.index.end_offset + self.log.check(file.index.end_offset, FAR_OFFSET)
            )
        return False

    def _last_indexed(self) -> int:
        files = [file for file in self.indexes.files if not file.is_empty]
        return files[-1].index.end_offset if files else -1

    def _repair_index(self) -> None:
        """Keep the files known to be complete, and of the next one the entries in good order."""
        for i, file in enumerate(self.indexes.files):
            index = file.index
            is_newest = i == len(self.indexes.files) - 1
            # A file that ends in the very millisecond may have been filled after the checkpoint.
            if 0 < index.end_ms < self.checkpoint.index_ms and not is_newest:
                continue
            file.read_soon()
            file.reserve_slots()
            begin_ms = self.log.store_ms_of(index.entry(1)[1]) or index.begin_ms
            index.repair(self.log.end_position, begin_ms)
            file.clear_tail()
            if not index.is_full:
                while len(self.indexes.files) > i + 1:
                    self.indexes.drop_last()

    def _restore_claimed(self, claim: Claim) -> bool:
        """Cut the index files to what the claim says; False when they hold less."""
        while self.indexes.files and self.indexes.files[-1].name > claim.index_name:
            self.indexes.drop_last()
        if not claim.index_name:
            return True
        if not self.indexes.files or self.indexes.files[-1].name != claim.index_name:
            logger.warning("keys read from the log again: index/%017d is missing", claim.index_name)
            self.lacks_claimed_index = True
            return False
        file = self.indexes.files[-1]
        if self.was_killed or file.index.next != claim.index_next:
            file.read_soon()
            file.reserve_slots()
            file.index.cut(claim.index_next)
            file.index.truncate(claim.log_offset)
            file.clear_tail()
        return True

    def _sync_log(self, first: int, end: int) -> None:
        """Have on the platter what was walked and lies before the end."""
        for part, begin, stop in self.segments.ranges(first, end):
            if self.sync_failed:
                # Pages that a failed sync marked clean look right but would not be synced.
                part.write(begin, part.buffer[begin:stop])
            part.sync(begin, stop)

    def _cut_queues(self) -> None:
        if self.was_killed:
            self.queues.distrust_names()
        for _, queue in self.queues:
            if self.was_killed or queue.entry(queue.end) is not None:
                self.queues.cut_tail(queue)
            queue.min_offset = 0
            self.queues.find_min(queue)

    def _cut_index(self) -> None:
        """Keys of records past the end go; times of the last entries are made exact again."""
        if self.was_killed:
            self.indexes.distrust_names()
        for file in reversed(self.indexes.files):
            if file.index.end_offset >= self.log.end and not file.is_empty:
                file.reserve_slots()
                file.index.truncate(self.log.end)
                file.clear_tail()
            if not file.is_empty:
                if (store_ms := self.log.store_ms_of(file.index.end_offset)) and (
                    file.index.end_ms < store_ms
                ):
                    file.set_end_ms(store_ms)
                break


def _entry_count(queue: Queue) -> int:
    """Where the entries of a queue end, going by them alone."""
    low, high = queue.first_position // ENTRY_BYTES, queue.end_position // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if queue.entry(middle) is None:
            high = middle
        else:
            low = middle + 1
    return low
