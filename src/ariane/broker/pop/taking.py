"""One pop carried out: which queues are looked at, in which order, and what is taken from each.

A pop takes from its topic and from the retry topic of its group, up to as many messages as it asks
for. What it takes is noted before it is given; the group's consume offset moves past it at once, so
that the next pop, of whichever member, gets the next messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ariane.broker.filters import EVERYTHING, MessageFilter, of_expression
from ariane.broker.group_attributes import priority_percent
from ariane.broker.message_types import is_by_priority
from ariane.broker.pop.checkpoints import Key
from ariane.broker.pop.handles import (
    ORDER_QUEUE_ID,
    RETRY_V1,
    RETRY_V2,
    counts_text,
    handle_text,
    mark_of,
    offsets_text,
    retry_topic_of,
)
from ariane.broker.pop.order import Place
from ariane.broker.pop.records import moved, split_records
from ariane.broker.state import BrokerState
from ariane.errors import StoreError
from ariane.protocol.bodies import TopicConfig
from ariane.store.messages import Found, FoundStatus

SCANS_MAX: Final = 16  # reads of a queue that find nothing matching, before others get a turn
SIZE: Final = struct.Struct(">i")
QUEUE_OFFSET: Final = struct.Struct(">q")
QUEUE_OFFSET_AT: Final = 20  # in a record
SPREAD: Final = 37  # prime to a hundred: of a hundred pops in a row, each is another percent

# The consume offset is wrong: go on from where the store says.
MISPLACED: Final = (
    FoundStatus.OFFSET_TOO_SMALL,
    FoundStatus.OFFSET_OVERFLOW_BADLY,
    FoundStatus.OFFSET_FOUND_NULL,
)
PASSED_OVER: Final = (FoundStatus.NO_MATCHED_MESSAGE, FoundStatus.MESSAGE_WAS_REMOVING)

filter_of_expression = lru_cache(maxsize=64)(of_expression)  # one may take a quarter of a megabyte


class Wanted(NamedTuple):
    """What a pop asks for, its checks passed."""

    topic: TopicConfig
    group: str
    queue_id: int  # -1: any
    count_max: int
    invisible_ms: int = 0
    starts_last: bool = False  # where a group that is new to a queue begins
    is_ordered: bool = False
    attempt_id: str | None = None
    filter: MessageFilter = EVERYTHING


class Taking:
    """A pop under way: what it wants and what it has got so far."""

    def __init__(self, wanted: Wanted, state: BrokerState) -> None:
        self._wanted = wanted
        self._state = state
        self._turn = state.pop.lane.turn
        self.popped_ms = state.clock.wall_ms()
        self.revive_queue_id = ORDER_QUEUE_ID
        self.count = 0
        self.rest_count = 0  # messages left in the queues that were looked at
        self.blocked_for_ms = 0  # until a queue held in order is free again; 0: none is held
        self.is_unfinished = False  # a queue has more to look through for messages that match
        self.bodies: list[bytes] = []
        self.starts: list[str] = []
        self.offsets: list[str] = []
        self.counts: list[str] = []

    def take(self) -> None:
        """Take messages, note them and move the group on; raises StoreError if none could be."""
        if self._wanted.is_ordered:
            self.popped_ms = self._ordered_ms()
        else:
            self.revive_queue_id = self._turn % self._state.pop.journal.queue_count
        try:
            for place in self._places():
                self._take_from(place)
        except StoreError:
            if not self.count:
                raise  # else: what was noted is given, and the rest is for another pop
        if self.count:
            self._state.pop.lane.turn += 1

    def peek(self) -> None:
        """Find what the next pop would give, without taking it."""
        store = self._state.store
        for place in self._places():
            first = self._stands_at(place)
            end = store.max_offset(place.topic, place.queue_id)
            self.rest_count += max(end - first, 0)
            if (room := self._room()) > 0 and end > first:
                found = store.read(place.topic, place.queue_id, first, count_max=room)
                if found.status in MISPLACED:
                    first = found.next_offset
                    found = store.read(place.topic, place.queue_id, first, count_max=room)
                self.count += found.message_count
                self.bodies.append(found.body)

    def has_messages(self) -> bool:
        """Whether a pop would find something to look at."""
        store, wanted = self._state.store, self._wanted
        return any(
            store.max_offset(place.topic, place.queue_id) > self._stands_at(place)
            for place in self._places()
            if not wanted.is_ordered or not self._state.pop.blocked_for_ms(place, wanted.attempt_id)
        )

    def _places(self) -> Iterator[Place]:
        """The queues to look at, in order: each topic's in turn, and sometimes retries first."""
        wanted, state = self._wanted, self._state
        retry_topic = None if wanted.is_ordered else self._retry_topic()
        by_priority = self._goes_by_priority()
        config = state.config
        percent = config.priority_retry_first_percent if by_priority else config.retry_first_percent
        is_retry_first = self._turn * SPREAD % 100 < percent
        if retry_topic is not None and is_retry_first:
            yield from self._queues_of(retry_topic, by_priority=by_priority)
        if wanted.queue_id >= 0:
            yield Place(wanted.topic.name, wanted.group, wanted.queue_id)
        else:
            yield from self._queues_of(wanted.topic, by_priority=by_priority)
        if retry_topic is not None and not is_retry_first and self._room() > 0:
            yield from self._queues_of(retry_topic, by_priority=by_priority)

    def _queues_of(self, topic: TopicConfig, *, by_priority: bool) -> Iterator[Place]:
        """The queues of a topic, from the highest priority on or from the one whose turn it is."""
        count = topic.read_queue_count
        for number in range(count):
            if not by_priority:
                queue_id = (self._turn + number) % count
            else:
                queue_id = count - 1 - number if self._state.config.priority_ascends else number
            yield Place(topic.name, self._wanted.group, queue_id)

    def _goes_by_priority(self) -> bool:
        """Whether the highest priority goes first: always, unless its group wants that rarer."""
        wanted = self._wanted
        if wanted.is_ordered or not is_by_priority(wanted.topic):
            return False
        group = self._state.groups.get(wanted.group)
        attributes = {} if group is None else group.attributes
        return self._turn * SPREAD % 100 < priority_percent(attributes)

    def _retry_topic(self) -> TopicConfig | None:
        """The retry topic to look at: of both forms either, since an answer can tell only one."""
        state, topic, group = self._state, self._wanted.topic.name, self._wanted.group
        v1 = state.topics.get(retry_topic_of(topic, group, RETRY_V1))
        if not state.config.retry_topics_v2:
            return v1
        v2 = state.topics.get(retry_topic_of(topic, group, RETRY_V2))
        if v1 is None or not state.config.reads_retry_topics_v1:
            return v2
        return v2 if v2 is not None and self._turn % 2 else v1

    def _room(self) -> int:
        return self._wanted.count_max - self.count

    def _ordered_ms(self) -> int:
        """One time for all queues of an ordered pop, later than any pop of them before."""
        orders = self._state.pop.orders
        times = [orders.popped_ms(place, self.popped_ms) for place in self._places()]
        return max(times, default=self.popped_ms)

    def _take_from(self, place: Place) -> None:
        """Take what there is room for of one queue."""
        first = self._position(place)
        end = self._state.store.max_offset(place.topic, place.queue_id)
        room = self._room()
        if self._wanted.is_ordered:
            wait_ms = self._state.pop.blocked_for_ms(place, self._wanted.attempt_id)
            if wait_ms:  # what is behind it does not count: it could not be had
                self.blocked_for_ms = min(wait_ms, self.blocked_for_ms or wait_ms)
                return
            room = min(room, self._state.pop.orders.room(place, first))
        if room <= 0 or end == first:
            self.rest_count += max(end - first, 0)
        elif self._wanted.is_ordered:
            self._take_in_order(place, first, room)
        else:
            found, first = self._read(place, first, room)
            self.rest_count += max(found.max_offset - found.next_offset, 0)
            if found.message_count:
                self._lend(place, first, found)
            else:
                self._pass_over(place, found)

    def _pass_over(self, place: Place, found: Found) -> None:
        """Nothing up to there is for this group."""
        self._state.offsets.commit(*place, found.next_offset)
        self.is_unfinished |= found.next_offset < found.max_offset

    def _lend(self, place: Place, first: int, found: Found) -> None:
        state = self._state
        key = Key(*place, first, self.popped_ms)
        if key in state.pop.checkpoints:
            return  # the group was sent back to where it popped this very millisecond
        offsets = _offsets_of(found, first)
        gaps = [queue_offset - first for queue_offset in offsets]
        state.pop.lend(
            key, self._wanted.invisible_ms, gaps, found.next_offset, self.revive_queue_id
        )
        state.offsets.commit(*place, found.next_offset)
        body = found.body
        if place.topic != self._wanted.topic.name and not state.config.shows_retry_topics:
            body = self._as_asked_for(place, first, body)
        self._add(place, first, offsets, body)

    def _take_in_order(self, place: Place, first: int, room: int) -> None:
        """Take messages, leaving out those that are acknowledged already."""
        kept_back = set(self._state.pop.orders.settled_from(place, first))
        found, first = self._read(place, first, room)
        chosen: list[tuple[int, bytes]] = []
        start = first
        while found.message_count:
            records = zip(_offsets_of(found, start), split_records(found.body), strict=True)
            chosen += [(offset, record) for offset, record in records if offset not in kept_back]
            start = found.next_offset
            if len(chosen) >= room or start >= found.max_offset or not kept_back:
                break
            found, start = self._read(place, start, room - len(chosen))
        self.rest_count += max(found.max_offset - found.next_offset, 0)
        if chosen:
            self._lend_in_order(place, first, chosen)
        else:
            self._pass_over(place, found)

    def _lend_in_order(self, place: Place, first: int, chosen: list[tuple[int, bytes]]) -> None:
        offsets = [offset for offset, _ in chosen]
        info = self._state.pop.lend_in_order(
            place,
            offsets,
            attempt_id=self._wanted.attempt_id,
            popped_ms=self.popped_ms,
            invisible_ms=self._wanted.invisible_ms,
        )
        self._state.offsets.commit(*place, offsets[0])
        counts = [(offset, info.counts[offset]) for offset in offsets if offset in info.counts]
        least = min((count for _, count in counts), default=0)
        least = least if len(counts) == len(offsets) else 0
        self.counts.append(counts_text(mark_of(place.topic), place.queue_id, counts, least))
        self._add(place, first, offsets, b"".join(record for _, record in chosen))

    def _add(self, place: Place, first: int, offsets: Sequence[int], body: bytes) -> None:
        mark = mark_of(place.topic)
        self.count += len(offsets)
        self.bodies.append(body)
        self.starts.append(f"{mark} {place.queue_id} {first}")
        self.offsets.append(offsets_text(mark, place.queue_id, offsets))
        self._state.stats.got_by(place.topic, place.group).add(len(offsets), len(body))

    def _stands_at(self, place: Place) -> int:
        """Where the group goes on in a queue, or would start."""
        first = self._state.offsets.get(*place)
        return self._state.store.min_offset(place.topic, place.queue_id) if first is None else first

    def _position(self, place: Place) -> int:
        """Where the group goes on in a queue; one that is new to it starts, and that is kept."""
        offsets = self._state.offsets
        moved_to = offsets.take_reset(*place)
        if moved_to is not None:
            self._state.pop.release_order(place)
            offsets.commit(*place, moved_to)
            return moved_to
        first = offsets.get(*place)
        if first is None:
            first = self._start(place)
            offsets.commit(*place, first)
        return first

    def _start(self, place: Place) -> int:
        store = self._state.store
        lowest = store.min_offset(place.topic, place.queue_id)
        if not self._wanted.starts_last or place.topic != self._wanted.topic.name:
            return lowest
        if self._state.config.starts_at_zero_in_memory and lowest <= 0:
            entry = store.queue(place.topic, place.queue_id).entry(0)
            window = store.read_limits["memory_window"]
            if entry is not None and store.written - entry[0] <= window:
                return 0
        return max(store.max_offset(place.topic, place.queue_id) - 1, 0)

    def _read(self, place: Place, first: int, room: int) -> tuple[Found, int]:
        """What matches from `first` on, and where the read began: a wrong start is set right."""
        for scan in range(SCANS_MAX):
            found = self._state.store.read(
                place.topic,
                place.queue_id,
                first,
                count_max=room,
                tag_codes=self._wanted.filter.tag_codes,
                expression=self._wanted.filter.expression,
            )
            if found.status in MISPLACED and not scan:
                first = found.next_offset
                self._state.offsets.commit(*place, first)
            elif found.status in PASSED_OVER and found.next_offset < found.max_offset:
                first = found.next_offset
            else:
                break
        return found, first

    def _as_asked_for(self, place: Place, first: int, body: bytes) -> bytes:
        """Messages of a retry topic as if of the topic asked for, each with its handle."""
        name = self._wanted.topic.name.encode()
        records = []
        for record in split_records(body):
            handle = handle_text(
                first=first,
                popped_ms=self.popped_ms,
                invisible_ms=self._wanted.invisible_ms,
                revive_queue_id=self.revive_queue_id,
                mark=mark_of(place.topic),
                broker_name=self._state.config.name,
                queue_id=place.queue_id,
                queue_offset=QUEUE_OFFSET.unpack_from(record, QUEUE_OFFSET_AT)[0],
            )
            records.append(moved(record, name, f"POP_CK\x01{handle}\x02".encode()))
        return b"".join(records)


def _offsets_of(found: Found, first: int) -> Sequence[int]:
    """The queue offsets of what was found."""
    if found.next_offset - first == found.message_count:
        return range(first, found.next_offset)
    offsets = []
    position = 0
    body = found.body
    while position < len(body):
        offsets.append(QUEUE_OFFSET.unpack_from(body, position + QUEUE_OFFSET_AT)[0])
        position += SIZE.unpack_from(body, position)[0]
    return offsets
