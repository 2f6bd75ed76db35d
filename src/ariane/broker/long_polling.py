"""Long polling: pulls that found nothing yet, kept as values until something arrives.

Theory of operation. A held pull belongs to one queue. While a queue has any, the kernel's
`is_waiting` flag on it is set, and an append to it is reported to `arrived`, which only notes the
queue; the wake runs once for all the appends of one turn of the loop. A wake carries the pull out
again from where it last looked: messages found (or an error) are the answer; messages that its
filter excludes move `queue_offset` past them and the pull stays, to look further in the loop's next
turn if one look did not reach the end. What the flush has not covered yet is not
visible, so a queue that was woken too early is looked at again when the store's watermark moves.
Pulls that the lane can answer do not wait for the turn's end: a message that came by the lane is on
its way to them before its producer's next request is read.

However many wait for one queue or end at one time, a turn of the loop serves a slice of them, in
the order in which they came, and the next turn goes on.

Invariant: a held pull is in its queue's set and in exactly one expiry slot, or in neither; only
such a pull is among those to look again or to end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from ariane.broker.requests import Held, Reply, attempt
from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.remoting.connection import Connection
from ariane.store.store import Store

logger = logging.getLogger("ariane.broker")

SLOT_S: Final = 0.05  # expiry is this exact: answered at most one slot late
HELD_MAX: Final = 100_000  # each takes a few kilobytes; beyond, pulls are answered at once
HELD_PER_CONNECTION_MAX: Final = 20_000
SLICE: Final = 32  # pulls looked at, and as many ended, in one turn of the loop: some 50 us each
AT_ONCE_MAX: Final = 8  # pulls of a queue that do not wait for the turn's end
QueueKey = tuple[str, int]


class LongPolling:
    """All held pulls, by queue, by expiry and by connection."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._count = 0
        self._queues: dict[QueueKey, dict[int, Held]] = {}
        self._slots: dict[int, dict[int, Held]] = {}
        self._connections: dict[Connection, dict[int, Held]] = {}
        self._woken: dict[int, Held] = {}  # to look again
        self._ending: dict[int, Held] = {}  # to be answered with what there is
        self._unseen: set[QueueKey] = set()  # arrived, but not visible yet
        self._step: Timer | None = None
        self._is_serving = False
        self._expiry: Timer | None = None
        self.is_watched_by_others: Callable[[str, int], bool] = lambda topic, queue_id: False
        store.on_advance.append(self._on_advance)

    def __len__(self) -> int:
        return self._count

    def is_watched(self, topic: str, queue_id: int) -> bool:
        """Whether a pull waits for the queue."""
        return (topic, queue_id) in self._queues

    def hold(self, held: Held) -> None:
        """Keep a pull until its queue grows or its time is up."""
        if not held.request.connection.is_closed and not held.request.command.is_one_way:
            self.keep(held)

    def keep(self, held: Held) -> None:
        """Keep a pull whose sender is there and wants an answer."""
        connection = held.request.connection
        if self._is_full(connection):
            held.request.answer(_again(held))
            return
        queue = (held.topic, held.queue_id)
        self._queues.setdefault(queue, {})[id(held)] = held
        self._slots.setdefault(_slot_of(held), {})[id(held)] = held
        if connection not in self._connections:
            self._connections[connection] = {}
            connection.on_close.append(self._connection_closed)
        self._connections[connection][id(held)] = held
        self._count += 1
        watched = self._store.queue(*queue)
        watched.is_waiting = True
        if watched.end > held.queue_offset:  # it grew before, by what is not visible yet
            self._unseen.add(queue)
        if self._expiry is None:
            self._expiry = self._timers.after(SLOT_S, self._expire)

    def arrived(self, topic: str, queue_id: int) -> None:
        """Note that a queue grew; its pulls are looked at before the loop sleeps again."""
        if (topic, queue_id) not in self._queues:
            return
        self._woken |= self._queues[topic, queue_id]
        self._serve_soon()

    def answer_at_once(self, queues: Iterable[QueueKey]) -> None:
        """Answer the pulls of queues that grew, where they are few, as far as needs no handler.

        What is for one connection is written together: each write may wake a peer.
        """
        answers: dict[Connection, list[bytes]] = {}
        for queue in queues:
            waiting = self._queues.get(queue)
            if waiting is not None and len(waiting) <= AT_ONCE_MAX:
                for held in list(waiting.values()):
                    frame = held.shortcut(held.queue_offset)
                    if frame is not None:
                        self._forget(held)
                        answers.setdefault(held.request.connection, []).append(frame)
        for connection, frames in answers.items():
            connection.write(b"".join(frames))

    def release(self, topic: str) -> None:
        """Answer every pull on a topic: it may be gone, closed to reading, or its offsets reset."""
        for queue in [queue for queue in self._queues if queue[0] == topic]:
            self._ending |= self._queues[queue]
        self._serve()

    def release_all(self) -> None:
        """Answer everything with what there is; the broker is stopping."""
        for held in [held for queue in self._queues.values() for held in queue.values()]:
            self._answer(held, _again(held))

    def _on_advance(self) -> None:
        queues, self._unseen = self._unseen, set()
        for queue in queues:
            self._woken |= self._queues.get(queue, {})
        self._serve()

    def _serve_soon(self) -> None:
        if self._step is None:
            self._step = self._timers.after(0.0, self._next_step)

    def _next_step(self) -> None:
        self._step = None
        self._serve()

    def _serve(self) -> None:
        """Serve a slice of those that are due, and leave the rest to the next turn."""
        if self._step is not None or self._is_serving:
            return
        self._is_serving = True
        try:
            for held in list(islice(self._ending.values(), SLICE)):
                if id(held) in self._ending:  # an answer may have closed its connection
                    self._answer(held, _again(held))
            for held in list(islice(self._woken.values(), SLICE)):
                if self._woken.pop(id(held), None) is not None:
                    self._look_again(held)
        finally:
            self._is_serving = False
            if self._woken or self._ending:
                self._serve_soon()

    def _look_again(self, held: Held) -> None:
        """Carry the pull out from where it last looked."""
        if self._take_shortcut(held):
            return
        queue = (held.topic, held.queue_id)
        end = self._store.max_offset(*queue)
        if end <= held.queue_offset:
            self._unseen.add(queue)
            return
        reply = _again(held)
        next_offset = getattr(reply.header, "next_offset", 0)
        if (
            reply.code is not ResponseCode.PULL_RETRY_IMMEDIATELY
            or next_offset <= held.queue_offset
        ):
            self._answer(held, reply)
            return
        held.queue_offset = next_offset  # nothing in between was meant for this pull
        if next_offset < end:
            self._woken[id(held)] = held  # on with it after everybody else's turn

    def _take_shortcut(self, held: Held) -> bool:
        """Answer a pull from the lane; False when that is for its handler."""
        frame = held.shortcut(held.queue_offset)
        if frame is None:
            return False
        self._forget(held)
        held.request.connection.write(frame)
        return True

    def _expire(self) -> None:
        self._expiry = None
        end = int(self._timers.clock.monotonic_s() / SLOT_S)
        for slot in [slot for slot in self._slots if slot < end]:
            self._ending |= self._slots[slot]
        self._serve()
        if self._slots:
            self._expiry = self._timers.after(SLOT_S, self._expire)

    def _answer(self, held: Held, reply: Reply) -> None:
        self._forget(held)
        held.request.answer(reply)

    def _connection_closed(self, connection: Connection) -> None:
        for held in list(self._connections.get(connection, {}).values()):
            self._forget(held)
        self._connections.pop(connection, None)

    def _is_full(self, connection: Connection) -> bool:
        own = self._connections.get(connection, {})
        return self._count >= HELD_MAX or len(own) >= HELD_PER_CONNECTION_MAX

    def _forget(self, held: Held) -> None:
        self._count -= 1
        self._woken.pop(id(held), None)
        self._ending.pop(id(held), None)
        queue = (held.topic, held.queue_id)
        waiting = self._queues[queue]
        del waiting[id(held)]
        if not waiting:
            del self._queues[queue]
            self._store.queue(*queue).is_waiting = self.is_watched_by_others(*queue)
        slot = self._slots[_slot_of(held)]
        del slot[id(held)]
        if not slot:
            del self._slots[_slot_of(held)]
        self._connections[held.request.connection].pop(id(held), None)


def _again(held: Held) -> Reply:
    """Carry a held pull out; one that fails on our own fault must not keep the others waiting."""
    try:
        return attempt(lambda: held.again(held.queue_offset))
    except Exception as error:
        logger.exception("held pull failed topic=%s queue=%d", held.topic, held.queue_id)
        return Reply.refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _slot_of(held: Held) -> int:
    return int(held.until_s / SLOT_S)
