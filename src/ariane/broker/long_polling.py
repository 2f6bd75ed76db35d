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
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final

from ariane.broker.requests import Reply, attempt
from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.kernel.held import SLOT_S, Held, HeldTable
from ariane.store.store import Store

logger = logging.getLogger("ariane.broker")

HELD_MAX: Final = 100_000  # each takes a few kilobytes; beyond, pulls are answered at once
HELD_PER_CONNECTION_MAX: Final = 20_000
SLICE: Final = 32  # pulls looked at, and as many ended, in one turn of the loop: some 50 us each
AT_ONCE_MAX: Final = 8  # pulls of a queue that do not wait for the turn's end


class LongPolling(HeldTable):
    """All held pulls, and when they are looked at."""

    def __init__(self, store: Store, timers: Timers) -> None:
        super().__init__(store.queue, count_max=HELD_MAX, connection_max=HELD_PER_CONNECTION_MAX)
        self._store = store
        self._timers = timers
        self._step: Timer | None = None
        self._is_serving = False
        self._expiry: Timer | None = None
        store.on_advance.append(self._on_advance)

    def is_watched(self, topic: str, queue_id: int) -> bool:
        """Whether a pull waits for the queue."""
        return (topic, queue_id) in self.queues

    def hold(self, held: Held) -> None:
        """Keep a pull until its queue grows or its time is up."""
        if not held.connection.is_closed and not held.request.command.is_one_way:
            self.keep(held)

    def keep(self, held: Held) -> None:
        """Keep a pull whose sender is there and wants an answer."""
        if not self.add(held):
            held.request.answer(_again(held))
        elif self._expiry is None:
            self._expiry = self._timers.after(SLOT_S, self._expire)

    def arrived(self, topic: str, queue_id: int) -> None:
        """Note that a queue grew; its pulls are looked at before the loop sleeps again."""
        if (topic, queue_id) not in self.queues:
            return
        self.woken.update(self.queues[topic, queue_id])
        self._serve_soon()

    def answer_at_once(self, queues: Iterable[tuple[str, int]]) -> None:
        """Answer the pulls of queues that grew, where they are few, as far as needs no handler."""
        self.answer(queues, AT_ONCE_MAX)

    def release(self, topic: str) -> None:
        """Answer every pull on a topic: it may be gone, closed to reading, or its offsets reset."""
        for queue in [queue for queue in self.queues if queue[0] == topic]:
            self.ending.update(self.queues[queue])
        self._serve()

    def release_all(self) -> None:
        """Answer everything with what there is; the broker is stopping."""
        for held in [held for queue in self.queues.values() for held in queue]:
            self._end(held, _again(held))

    def _on_advance(self) -> None:
        queues, self.unseen = self.unseen, set()
        for queue in queues:
            self.woken.update(self.queues.get(queue, {}))
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
            for held in list(islice(self.ending, SLICE)):
                if held in self.ending:  # an answer may have closed its connection
                    self._end(held, _again(held))
            for held in list(islice(self.woken, SLICE)):
                if held in self.woken:
                    del self.woken[held]
                    self._look_again(held)
        finally:
            self._is_serving = False
            if self.woken or self.ending:
                self._serve_soon()

    def _look_again(self, held: Held) -> None:
        """Carry the pull out from where it last looked."""
        if self._take_shortcut(held):
            return
        queue = held.queue
        end = self._store.max_offset(*queue)
        if end <= held.queue_offset:
            self.unseen.add(queue)
            return
        reply = _again(held)
        next_offset = getattr(reply.header, "next_offset", 0)
        if (
            reply.code is not ResponseCode.PULL_RETRY_IMMEDIATELY
            or next_offset <= held.queue_offset
        ):
            self._end(held, reply)
            return
        held.queue_offset = next_offset  # nothing in between was meant for this pull
        if next_offset < end:
            self.woken[held] = None  # on with it after everybody else's turn

    def _take_shortcut(self, held: Held) -> bool:
        """Answer a pull from the lane; False when that is for its handler."""
        frame = held.shortcut(held.queue_offset)
        if frame is None:
            return False
        self.remove(held)
        held.connection.write(frame)
        return True

    def _expire(self) -> None:
        self._expiry = None
        end = int(self._timers.clock.monotonic_s() / SLOT_S)
        for slot in [slot for slot in self.slots if slot < end]:
            self.ending.update(self.slots[slot])
        self._serve()
        if self.slots:
            self._expiry = self._timers.after(SLOT_S, self._expire)

    def _end(self, held: Held, reply: Reply) -> None:
        self.remove(held)
        held.request.answer(reply)


def _again(held: Held) -> Reply:
    """Carry a held pull out; one that fails on our own fault must not keep the others waiting."""
    try:
        return attempt(lambda: held.again(held.queue_offset))
    except Exception as error:
        logger.exception("held pull failed topic=%s queue=%d", *held.queue)
        return Reply.refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
