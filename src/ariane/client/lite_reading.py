"""One queue of a lite pull consumer: pulled ahead, and taken from when the caller polls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ariane.client.process_queue import Limits, ProcessQueue
from ariane.client.pull_consumer import PullStatus
from ariane.client.pull_loop import PullLoop
from ariane.client.pulling import Fetched, Puller
from ariane.client.received import PolledMessage, ReceivedMessage
from ariane.client.routes import Address
from ariane.client.session import Session
from ariane.client.subscription import Filter
from ariane.protocol.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class Shelf:
    """What all queues of a consumer share."""

    session: Session
    puller: Puller
    limits: Limits
    filters: dict[str, tuple[Filter, int]]
    on_ready: Callable[[], None]  # something can be polled
    on_moved: Callable[[MessageQueue, int], None]  # the broker says where the queue goes on


class LiteReader:
    """Reads one queue; a seek begins anew, and answers to pulls from before it do not count."""

    def __init__(self, shelf: Shelf, queue: MessageQueue, position: int) -> None:
        self.queue = queue
        self.session = shelf.session
        self.consumed = position  # what the polls before the last one have brought lies below
        self._shelf = shelf
        self._may_pull = asyncio.Event()
        self._may_pull.set()
        self._begin(position)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is pulled or polled now."""
        return not self._may_pull.is_set()

    @property
    def position(self) -> int:
        """Where the next poll goes on."""
        return self.process.commit_offset

    def pause(self) -> None:
        """Pull nothing, and give out nothing."""
        self._may_pull.clear()

    def resume(self) -> None:
        """Go on."""
        self._may_pull.set()
        self._shelf.on_ready()

    async def seek(self, position: int) -> None:
        """Go on elsewhere."""
        await self.close()
        self.consumed = position
        self._begin(position)
        self._pulls.start()

    async def close(self) -> None:
        """Pull no more."""
        self.process.drop()
        self._ready.clear()
        await self._pulls.stop()

    def start(self) -> None:
        """Begin to pull."""
        self._pulls.start()

    def has_some(self) -> bool:
        """Whether there is something to poll."""
        return bool(self._ready) and not self.is_paused

    def poll(self, count_max: int) -> list[PolledMessage]:
        """Up to so many messages; they count as consumed when the next poll begins."""
        polled: list[PolledMessage] = []
        while self._ready and len(polled) < count_max:
            message = self._ready.popleft()
            self.process.finish(message)
            polled.append(message)
        self._pulls.finished()
        return polled

    def _begin(self, position: int) -> None:
        shelf = self._shelf
        self.process = ProcessQueue(self.queue, position, now_s=shelf.session.clock.monotonic_s())
        self._ready: deque[ReceivedMessage] = deque()
        self._pulls = PullLoop(
            shelf.session,
            shelf.puller,
            self,
            self,
            limits=shelf.limits,
            may_pull=self._may_pull,
        )

    # What the pull loop asks and says.

    def wanted(self) -> tuple[Filter, int] | None:
        """The filter and its version."""
        return self._shelf.filters.get(self.queue.topic)

    def offset_to_commit(self) -> int | None:
        """Nothing: progress is committed by the clock and by the caller."""
        return None

    def take(self, fetched: Fetched, spent_s: float) -> None:
        """A pull has been answered."""
        now_s = self._shelf.session.clock.monotonic_s()
        if fetched.status is PullStatus.MOVED:
            self.process.drop()
            self._ready.clear()
            self._shelf.on_moved(self.queue, fetched.next_offset)
            return
        new = self.process.put(fetched.messages, fetched.next_offset, now_s=now_s)
        if new:
            self._ready.extend(new)
            self._shelf.on_ready()

    async def meet_again(self, address: Address) -> None:
        """The broker hears of us by the next heartbeat; pulls bring their filter along."""

    # What whoever has a message asks.

    def queue_of(self, message: PolledMessage) -> MessageQueue:
        """The queue it came from."""
        return self.queue
