"""The journal of pop: notes appended to the revive topic's queues, and read from them again.

Notes of our own are known when they are appended. Others come too: what Apache's broker has given
to the timer is delivered into the same queues when it is due. So each queue has an end up to which
its notes are known, and what lies beyond, other than our own, is read before a pop is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ariane.broker.pop.notes import Note
from ariane.clock import Clock
from ariane.kernel.queue import Queue
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.messages import NewMessage, Placed
from ariane.store.store import Store

GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"  # its consume offsets: the last note done with
SEEN_GROUP: Final = "CID_RMQ_SYS_REVIVE_SEEN"  # its consume offsets: where the queues ended


class Journal:
    """The revive topic's queues."""

    def __init__(
        self, store: Store, clock: Clock, topic: str, queue_count: int, host: tuple[str, int]
    ) -> None:
        self.topic = topic
        self.queue_count = queue_count
        self._store = store
        self._clock = clock
        self._host = host
        self.known_ends = [0] * queue_count  # by queue; the lane appends too
        self._own: list[set[int]] = [set() for _ in range(queue_count)]  # beyond the known end

    def queues(self) -> list[Queue]:
        """The kernel's queues."""
        return [self._store.queue(self.topic, queue_id) for queue_id in range(self.queue_count)]

    def append(self, note: Note, queue_id: int) -> Placed:
        """Write a note; raises StoreError, and nothing was written."""
        placed = self._store.append(
            NewMessage(
                topic=self.topic,
                queue_id=queue_id,
                body=note.body,
                properties=note.properties,
                born_host=self._host,
                born_at_ms=self._clock.wall_ms(),
            )
        )
        if placed.queue_offset == self.known_ends[queue_id]:
            self.known_ends[queue_id] += 1
        else:
            self._own[queue_id].add(placed.queue_offset)
        return placed

    def end(self, queue_id: int) -> int:
        """The journal offset the next note of a queue gets."""
        return self._store.queue(self.topic, queue_id).end

    def start_at(self, queue_id: int, journal_offset: int) -> None:
        """Take the notes before an offset as known, and those from there on as not."""
        first = self._store.queue(self.topic, queue_id).min_offset
        self.known_ends[queue_id] = max(journal_offset, first)

    def unread(self, queue_id: int, count_max: int) -> Iterator[StoredMessage]:
        """The notes beyond the known end that are not our own, each known once it was given."""
        queue = self._store.queue(self.topic, queue_id)
        own = self._own[queue_id]
        log = self._store.log
        for journal_offset in range(self.known_ends[queue_id], queue.end):
            if count_max <= 0:
                return
            if journal_offset not in own:
                entry = queue.entry(journal_offset)
                record = None if entry is None else log.record(entry[0], log.end)
                if record is None and entry is not None and entry[0] >= log.first_position:
                    return  # not where it can be read yet
                if record is not None:
                    count_max -= 1
                    yield from decode_records(record)
            own.discard(journal_offset)
            self.known_ends[queue_id] = journal_offset + 1
