"""Pops and notifications that found nothing yet, kept until something arrives or their time is up.

As in long polling, an arrival only notes its topic, and the wake runs once for all arrivals of a
turn. It carries the waiting requests out again, those that came first before the others. When one
finds nothing, all others like it, of the same queue and filter, would find nothing either. A turn
of the loop serves a slice of them, and the next one goes on.

The kernel reports an arrival only where somebody waits, so every queue of a topic is marked while
anybody waits for the topic; marks that are not needed any more are taken away by the next arrival.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from ariane.broker.pop.handles import RETRY_V1, RETRY_V2, retry_topic_of
from ariane.broker.requests import Reply, Request, attempt
from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.remoting.connection import Connection
from ariane.store.store import Store

LOGGER: Final = logging.getLogger("ariane.broker")

SLOT_S: Final = 0.05  # expiry is this exact
SLICE: Final = 32  # requests carried out, and as many ended, in one turn of the loop


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that waits. `again` carries it out, with None for nothing yet."""

    request: Request[Any]
    topic: str
    group: str
    queue_id: int
    until_s: float
    likeness: Hashable  # equal for requests that find something, or nothing, alike
    again: Callable[[], Reply | None]
    expired: Callable[[], Reply]


Place = tuple[str, str, int]  # topic, group, queue id


class PopPolling:
    """Every waiting request, by topic and group, by expiry and by connection."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self.queue_count_of: Callable[[str], int] = lambda topic: 0
        self.is_watched_by_others: Callable[[str, int], bool] = lambda topic, queue_id: False
        self._store = store
        self._timers = timers
        self._count = 0
        self._topics: dict[str, dict[str, dict[Waiting, None]]] = {}  # topic -> group -> in order
        self._counts: dict[Place, int] = {}
        self._slots: dict[int, dict[Waiting, None]] = {}
        self._connections: dict[Connection, dict[Waiting, None]] = {}
        self._retry_topics: dict[str, str] = {}  # retry topic -> the topic that is popped
        self._watched: dict[str, int] = {}  # topic -> how many queues are marked
        self._arrived: dict[str, None] = {}  # topics to look at, in order
        self._due: deque[Waiting] = deque()  # of the topic that is being looked at
        self._in_vain: set[tuple[str, Hashable]] = set()  # groups and likenesses, as to that topic
        self._ending: dict[Waiting, None] = {}  # to be answered with what there is
        self._unseen: set[str] = set()  # topics that may have grown by what is not visible yet
        self._step: Timer | None = None
        self._expiry: Timer | None = None
        self._later: dict[str, float] = {}  # topic -> when to look again in any case
        store.on_advance.append(self._on_advance)

    def __len__(self) -> int:
        return self._count

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for a queue, or (-1) for any queue."""
        return self._counts.get((topic, group, queue_id), 0)

    def is_watched(self, topic: str, queue_id: int) -> bool:
        """Whether an arrival in the queue must be reported."""
        return topic in self._topics and queue_id < self._watched.get(topic, 0)

    def hold(self, waiting: Waiting) -> None:
        """Keep a request until its topic grows or its time is up."""
        connection = waiting.request.connection
        if connection.is_closed or waiting.request.command.is_one_way:
            return
        groups = self._topics.setdefault(waiting.topic, {})
        groups.setdefault(waiting.group, {})[waiting] = None
        place = (waiting.topic, waiting.group, waiting.queue_id)
        self._counts[place] = self._counts.get(place, 0) + 1
        self._count += 1
        self._slots.setdefault(_slot_of(waiting), {})[waiting] = None
        if connection not in self._connections:
            self._connections[connection] = {}
            connection.on_close.append(self._connection_closed)
        self._connections[connection][waiting] = None
        for mark in (RETRY_V1, RETRY_V2):
            retry_topic = retry_topic_of(waiting.topic, waiting.group, mark)
            self._retry_topics[retry_topic] = waiting.topic
        self._watch(waiting.topic)
        if not self._store.shows_at_once:
            self._unseen.add(waiting.topic)
        if self._expiry is None:
            self._expiry = self._timers.after(SLOT_S, self._expire)

    def arrived(self, topic: str, queue_id: int) -> None:
        """Note that a queue grew; who waits for it is served before the loop sleeps again."""
        topic = self._retry_topics.get(topic, topic)
        if topic in self._topics:
            self._arrived[topic] = None
            self._serve_soon()
        elif queue_id < self._watched.get(topic, 0):
            self._unwatch(topic)

    def look_at(self, topic: str, seconds: float) -> None:
        """Serve who waits for a topic after a time, when something is visible again."""
        due_s = self._timers.clock.monotonic_s() + seconds
        if self._later.get(topic, due_s + 1) <= due_s:
            return
        self._later[topic] = due_s
        self._timers.after(seconds, lambda: self._look_now(topic, due_s))

    def changed(self, topic: str) -> None:
        """The topic was changed, deleted, or a group's offsets on it were: look at all of it."""
        self._watched.pop(topic, None)  # its queues may be others now
        if topic in self._topics:
            self._watch(topic)
            self.arrived(topic, 0)

    def release_all(self) -> None:
        """Answer everything with what there is; the broker is stopping."""
        for waiting in [waiting for slot in self._slots.values() for waiting in slot]:
            self._answer(waiting, _attempt(waiting, waiting.expired))

    def _look_now(self, topic: str, due_s: float) -> None:
        if self._later.get(topic) == due_s:
            del self._later[topic]
        self.arrived(topic, 0)

    def _serve_soon(self) -> None:
        if self._step is None:
            self._step = self._timers.after(0.0, self._serve)

    def _serve(self) -> None:
        """Serve a slice of those that are due, and leave the rest to the next turn."""
        self._step = None
        try:
            self._serve_slice()
        finally:
            if self._ending or self._arrived or self._due:
                self._serve_soon()

    def _serve_slice(self) -> None:
        for waiting in list(islice(self._ending, SLICE)):
            if waiting in self._ending:  # an answer may have closed its connection
                self._answer(waiting, _attempt(waiting, waiting.expired))
        for _ in range(SLICE):
            if (due := self._next_due()) is None:
                break
            reply = _attempt(due, due.again)
            if reply is None:
                self._in_vain.add((due.group, due.likeness))
            else:
                self._answer(due, reply)

    def _next_due(self) -> Waiting | None:
        """The next that may find something, one topic after the other."""
        while True:
            while self._due:
                waiting = self._due.popleft()
                others = self._topics.get(waiting.topic, {}).get(waiting.group, {})
                is_vain = (waiting.group, waiting.likeness) in self._in_vain
                if waiting in others and not is_vain:
                    return waiting
            if not self._arrived:
                return None
            topic = next(iter(self._arrived))
            del self._arrived[topic]
            self._in_vain.clear()
            for group in self._topics.get(topic, {}).values():
                self._due += group
            if self._due and not self._store.shows_at_once:
                self._unseen.add(topic)

    def _on_advance(self) -> None:
        topics, self._unseen = self._unseen, set()
        for topic in topics:
            self.arrived(topic, 0)

    def _expire(self) -> None:
        self._expiry = None
        end = int(self._timers.clock.monotonic_s() / SLOT_S)
        for slot in [slot for slot in self._slots if slot < end]:
            self._ending |= self._slots[slot]
        if self._ending:
            self._serve_soon()
        if self._slots:
            self._expiry = self._timers.after(SLOT_S, self._expire)

    def _answer(self, waiting: Waiting, reply: Reply | None) -> None:
        self._forget(waiting)
        if reply is not None:
            waiting.request.answer(reply)

    def _connection_closed(self, connection: Connection) -> None:
        for waiting in list(self._connections.pop(connection, ())):
            self._forget(waiting)

    def _forget(self, waiting: Waiting) -> None:
        self._count -= 1
        self._ending.pop(waiting, None)
        groups = self._topics[waiting.topic]
        group = groups[waiting.group]
        del group[waiting]
        if not group:
            del groups[waiting.group]
            for mark in (RETRY_V1, RETRY_V2):
                retry_topic = retry_topic_of(waiting.topic, waiting.group, mark)
                self._retry_topics.pop(retry_topic, None)
        if not groups:
            del self._topics[waiting.topic]
        place = (waiting.topic, waiting.group, waiting.queue_id)
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]
        slot = self._slots[_slot_of(waiting)]
        del slot[waiting]
        if not slot:
            del self._slots[_slot_of(waiting)]
        own = self._connections.get(waiting.request.connection)
        if own is not None:
            own.pop(waiting, None)

    def _watch(self, topic: str) -> None:
        count = self.queue_count_of(topic)
        if self._watched.get(topic) == count:
            return
        self._watched[topic] = count
        for queue_id in range(count):
            self._store.queue(topic, queue_id).is_waiting = True

    def _unwatch(self, topic: str) -> None:
        for queue_id in range(self._watched.pop(topic, 0)):
            is_waiting = self.is_watched_by_others(topic, queue_id)
            self._store.queue(topic, queue_id).is_waiting = is_waiting


def _attempt(waiting: Waiting, run: Callable[[], Reply | None]) -> Reply | None:
    """Carry out a waiting request; one that fails on our own fault must not keep others waiting."""
    try:
        return attempt(run)
    except Exception as error:
        LOGGER.exception("waiting pop failed topic=%s group=%s", waiting.topic, waiting.group)
        return Reply.refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _slot_of(waiting: Waiting) -> int:
    return int(waiting.until_s / SLOT_S)
