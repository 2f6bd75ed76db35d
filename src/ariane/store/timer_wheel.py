"""Timed messages: when they are due, and the wheel that lets them go.

`TimerWheel` is a state machine that is told the time. A turn takes in what has come to the timer
topic, opens the slots whose time has come, and delivers what is due, a bounded part of it at once.
It makes no files: room comes from `Room`, and delivered messages go out by `Outlet`.

Invariant: everything that came before now has been taken in before anything due now goes out, so
that the deletion of a message that is not due yet is never too late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ariane.errors import MessageTooLarge, StoreError
from ariane.kernel.index import Index
from ariane.kernel.queue import Queue
from ariane.protocol.identifiers import decode_host
from ariane.store.clockwork import (
    DONE,
    LATE_ARE_MANY,
    MORE,
    QUEUE_NEEDED,
    SLOT_ROOM_NEEDED,
    SLOT_TAKEN,
    UNIT_FILE_NEEDED,
    UNIT_ROOM_NEEDED,
    Clockwork,
    Target,
)
from ariane.store.messages import NewMessage, Placed

logger: Final = logging.getLogger("ariane.store")

SLOT_COUNT: Final = 2 * 7 * 24 * 3600  # of Apache's wheel, whatever the precision
SLOT_BYTES: Final = 32
BLANK_SLOTS: Final = 60  # kept between the furthest message and the past
TAKE_COUNT_MAX: Final = 4096  # in one turn: about a millisecond each
COLLECT_COUNT_MAX: Final = 4096
DELIVER_COUNT_MAX: Final = 1024
DELIVER_BYTES_MAX: Final = 1 << 20


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """The slot of a message due at a time: the last that begins before it."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def window_of(
    slots: int, *, slot_count: int, precision_ms: int, retention_hours: int | None = None
) -> int:
    """How many slots ahead a message may wait; one due later is stored anew on the way.

    A record may be gone after the time to keep it, so none waits for more than two thirds of that.
    """
    slots_max = slot_count // 2 - min(BLANK_SLOTS, slot_count // 8)
    window = slots if 2 <= slots <= slots_max else slots_max
    if retention_hours is not None:
        kept = retention_hours * 3_600_000 * 2 // 3 // precision_ms
        window = min(window, max(kept, BLANK_SLOTS))
    return window


class Room(Protocol):
    """Gives the wheel and its log room to write; each call may raise DiskFull or OSError."""

    def add_unit_file(self) -> None:
        """Begin the next file of the timer log."""
        ...

    def reserve_units(self) -> None:
        """Give the timer log more blocks."""
        ...

    def reserve_slots(self, chunk: int) -> None:
        """Give a chunk of the wheel its blocks."""
        ...


@dataclass(slots=True, frozen=True)
class Outlet:
    """Where delivered messages go."""

    index: Callable[[], Index | None]
    queue_of: Callable[[str, int], Queue]  # raises StoreError for a name that cannot be
    append: Callable[[NewMessage], Placed]  # makes what room is missing
    advance: Callable[[], None]  # records have been placed


@dataclass(slots=True)
class Turn:
    """What one turn of the wheel did: messages and bytes by topic and queue."""

    delivered: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    is_more: bool = False  # there is something to do at once
    fault: Exception | None = None  # what stood in the way

    def add(self, topic: str, queue_id: int, messages: int, byte_count: int) -> None:
        """Count deliveries to a queue."""
        before = self.delivered.get((topic, queue_id), (0, 0))
        self.delivered[topic, queue_id] = (before[0] + messages, before[1] + byte_count)


class TimerWheel:
    """The wheel at work, in turns."""

    def __init__(self, clockwork: Clockwork, room: Room, outlet: Outlet) -> None:
        self.clockwork = clockwork
        self._room = room
        self._outlet = outlet

    def turn(self, now_ms: int) -> Turn:
        """Do a part of what is due; once more at once if the turn says so."""
        turn = Turn()
        try:
            status = self.take(now_ms, TAKE_COUNT_MAX)
        except (OSError, StoreError) as error:
            turn.fault = error  # what waits already may still go
            status = DONE
        if status == MORE:
            turn.is_more = True
            return turn
        is_behind = status in (LATE_ARE_MANY, SLOT_TAKEN)
        is_collecting = self.clockwork.collect(now_ms, COLLECT_COUNT_MAX) == MORE
        # A slot may hold deletions: none of it goes before all of it is known.
        is_delivering = not is_collecting and self._deliver(now_ms, turn)
        is_due = is_behind or is_collecting or is_delivering or self.clockwork.next_ms <= now_ms
        turn.is_more = is_due and turn.fault is None
        return turn

    def take(self, now_ms: int, count_max: int) -> int:
        """Take in messages of the timer topic, making room on the way; how the kernel ended."""
        clockwork, room = self.clockwork, self._room
        while True:
            status = clockwork.take(now_ms, count_max)
            if status == UNIT_FILE_NEEDED:
                room.add_unit_file()
            elif status == UNIT_ROOM_NEEDED:
                room.reserve_units()
            elif status == SLOT_ROOM_NEEDED:
                room.reserve_slots(clockwork.wanted_chunk)
            else:
                return status

    def _deliver(self, now_ms: int, turn: Turn) -> bool:
        """Deliver a part of what is due; whether more of it is."""
        clockwork, targets = self.clockwork, dict[tuple[bytes, int], Target]()
        count_end = clockwork.delivered + DELIVER_COUNT_MAX
        bytes_end = clockwork.log.end + DELIVER_BYTES_MAX
        try:
            while True:
                status = clockwork.deliver(
                    now_ms,
                    self._outlet.index(),
                    self._queue_of,
                    targets,
                    max(count_end - clockwork.delivered, 0),
                    bytes_end - clockwork.log.end,
                )
                if status in (DONE, MORE):
                    break
                self._deliver_first(status, turn)
        except (OSError, StoreError) as error:
            turn.fault = error
            status = DONE
        for (topic, queue_id), target in targets.items():
            if target.message_count:
                turn.add(topic.decode(), queue_id, target.message_count, target.byte_count)
        if targets:
            self._outlet.advance()
        return status == MORE

    def _queue_of(self, topic: bytes, queue_id: int) -> Queue | None:
        try:
            return self._outlet.queue_of(topic.decode(), queue_id)
        except (UnicodeDecodeError, StoreError):
            return None

    def _deliver_first(self, status: int, turn: Turn) -> None:
        """Place one message the way any message is placed, with all the room it needs."""
        found = self.clockwork.first_message()
        if found is None:
            return
        topic, queue_id, body, properties, born_host, born_ms, flag, system_flag, times = found
        if status == QUEUE_NEEDED:
            logger.error("timed message dropped, no topic can be named so topic=%r", topic)
            self.clockwork.drop(False)
            return
        message = NewMessage(
            topic=topic.decode(),
            queue_id=queue_id,
            body=body,
            properties=properties,
            born_host=decode_host(born_host),
            born_at_ms=born_ms,
            flag=flag,
            system_flag=system_flag,
            reconsume_times=times,
        )
        try:
            placed = self._outlet.append(message)
        except MessageTooLarge as error:
            logger.error("timed message dropped topic=%s reason=%s", message.topic, error)
            self.clockwork.drop(False)
            return
        self.clockwork.drop(True)
        turn.add(message.topic, queue_id, 1, placed.size)
