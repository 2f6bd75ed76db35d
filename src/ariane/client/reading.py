"""One queue while it is ours: pulled from, handed out, and told what became of its messages.

A reader pulls ahead of whoever consumes until enough waits. Without order all messages are handed
out as they come. With order only the oldest is, and nothing behind it before it is finished; and
only while the broker's lock is ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from ariane.client.dead_letters import DeadLetterHook, mourn, rejection
from ariane.client.delivery import Delivery
from ariane.client.membership import Membership
from ariane.client.process_queue import Limits, ProcessQueue
from ariane.client.pull_consumer import PullStatus
from ariane.client.pull_loop import PullLoop
from ariane.client.pulling import Fetched, Puller
from ariane.client.received import PolledMessage, ReceivedMessage
from ariane.client.retrying import RetryLater, SendBack
from ariane.client.routes import Address
from ariane.client.session import Session
from ariane.client.statistics import ConsumeStatistics
from ariane.client.subscription import Filter
from ariane.protocol.message_queue import MessageQueue

SUSPEND_S: Final = 1.0  # between two tries of a message whose order is kept
SUSPEND_MIN_S: Final = 0.01
SUSPEND_MAX_S: Final = 30.0
HERE_AGAIN_S: Final = 5.0  # until a message that no broker took back is tried once more

log = logging.getLogger("ariane.client")


@dataclass(slots=True)
class Desk:
    """What all readers of a consumer share."""

    session: Session
    group: str
    puller: Puller
    delivery: Delivery
    membership: Membership
    send_back: SendBack
    limits: Limits
    pull_count_max: int
    pull_interval_s: float
    timeout_s: float  # that a handler may take
    is_orderly: bool
    is_broadcast: bool
    on_moved: Callable[[Reader, int], None]  # the broker says where the queue goes on
    on_dead: DeadLetterHook | None
    filters: dict[str, tuple[Filter, int]]  # by topic, with their versions
    statistics: dict[str, ConsumeStatistics] = field(default_factory=dict)  # by topic
    may_pull: asyncio.Event = field(default_factory=asyncio.Event)

    def statistics_of(self, topic: str) -> ConsumeStatistics:
        """The topic's counts."""
        if topic not in self.statistics:
            now_s = self.session.clock.monotonic_s()
            self.statistics[topic] = ConsumeStatistics(now_s=now_s)
        return self.statistics[topic]


class Reader:
    """Reads one queue from a position on, until told to leave."""

    def __init__(self, desk: Desk, queue: MessageQueue, position: int) -> None:
        self.queue = queue
        self.session = desk.session
        self.process = ProcessQueue(queue, position, now_s=desk.session.clock.monotonic_s())
        self.is_leaving = False
        self._desk = desk
        self._statistics = desk.statistics_of(queue.topic)
        self._on_settled = desk.delivery.on_settled
        self._going_back: set[int] = set()  # offsets being sent back
        self._busy: ReceivedMessage | None = None  # handed out in order, or suspended
        self._at_work: ReceivedMessage | None = None  # the busy one, while its handler runs
        self._rested = asyncio.Event()
        self._pulls = PullLoop(
            desk.session,
            desk.puller,
            self,
            self,
            limits=desk.limits,
            may_pull=desk.may_pull,
            may_span=desk.is_orderly,
            count_max=desk.pull_count_max,
            interval_s=desk.pull_interval_s,
        )

    def start(self) -> None:
        """Begin to pull."""
        self._pulls.start()

    async def stop_pulling(self) -> None:
        """Pull no more; what is held stays."""
        await self._pulls.stop()

    async def leave(self) -> int:
        """Let go of the queue; returns the offset up to which all is finished.

        In order, what is being worked on ends first: until then the lock is ours.
        """
        self.is_leaving = True
        await self.stop_pulling()
        while self._at_work:
            self._rested.clear()
            await self._rested.wait()
        return self.process.drop()

    def abandon(self) -> None:
        """Count on the handler at work to end no more."""
        self._rest()

    def advance(self) -> None:
        """Hand out the oldest message, if it is time to."""
        if self._busy is not None or self.is_leaving or self.process.is_dropped:
            return
        head = self.process.head
        if head is not None and self._has_lock():
            self._busy = head
            self._desk.delivery.offer((head,))

    # What whoever calls the handler says.

    def may_begin(self, message: ReceivedMessage) -> bool:
        """Whether the message is still to be consumed; then it counts as started."""
        if message.is_done:
            return False
        if self._desk.is_orderly:
            # The claim comes before the look, since this may be a thread beside the loop: `leave`
            # says so first and looks for claims then, so that one of the two sees the other.
            self._at_work = message
        if self.is_leaving or self.process.is_dropped:
            return False
        if self._desk.is_orderly and not self._has_lock():
            return False
        message.is_started = True
        return True

    def declined(self, message: ReceivedMessage) -> None:
        """It was not begun: the lock is lost, or the queue."""
        if self._busy is message:
            self._busy = None
        if self._at_work is message:
            self._rest()

    def succeeded(self, message: ReceivedMessage) -> None:
        """Its handler returned."""
        self._statistics.successes += 1
        if not self._going_back or message.queue_offset not in self._going_back:
            self.finish(message)

    def spent(self, time_s: float) -> None:
        """Handlers of some of its messages took so long together."""
        self._statistics.spent_s += time_s

    async def failed(self, message: ReceivedMessage, error: Exception) -> None:
        """Its handler raised."""
        self._statistics.failures += 1
        if (reason := rejection(message, error)) is not None:
            log.warning("rejected group=%s %r: %s", self._desk.group, message, reason)
            await self._settle(message, self._reject(message, reason))
            return
        delay_s = error.delay_s if isinstance(error, RetryLater) else None
        if not isinstance(error, RetryLater):
            log.warning("handler failed group=%s %r", self._desk.group, message, exc_info=error)
        await self.nack(message, delay_s)

    # What whoever has the message asks and says.

    def queue_of(self, message: PolledMessage) -> MessageQueue:
        """The queue it came from."""
        return self.queue

    async def ack(self, message: ReceivedMessage) -> None:
        """It has been consumed."""
        self.finish(message)

    async def nack(self, message: ReceivedMessage, delay_s: float | None) -> None:
        """It has not; deliver it again after a while, or give it up."""
        in_order = self._desk.is_orderly
        again = self._try_in_place if in_order else self._try_later
        await self._settle(message, again(message, delay_s))

    async def _settle(self, message: ReceivedMessage, work: Coroutine[Any, Any, None]) -> None:
        """Do what becomes of a message, unless something is under way or nobody asks any more."""
        offset = message.queue_offset
        if message.is_done or offset in self._going_back:
            work.close()
            return
        if self.process.is_dropped:
            work.close()
            self.finish(message)  # whoever has the queue now has the message too
            return
        self._going_back.add(offset)
        try:
            if self._desk.is_broadcast:
                work.close()
                log.warning("dropped, a broadcast is not tried again %r", message)
                self.finish(message)
            else:
                await work
        finally:
            self._going_back.discard(offset)

    async def extend(self, message: ReceivedMessage, for_s: float | None) -> None:
        """It takes longer: the time it may take begins anew."""
        more_s = max(0.0, (for_s or 0.0) - self._desk.timeout_s)
        self.process.extend(message, now_s=self._now_s() + more_s)

    def finish(self, message: ReceivedMessage) -> None:
        """The message needs no more work."""
        if message.is_done:
            return
        if not self.process.finish(message):
            message.is_done = True
        if self._on_settled is not None and message.is_started:
            self._on_settled()
        if self._pulls.is_full:
            self._pulls.finished()
        if self._busy is message:
            self._busy = None
            self._rest()
            self.advance()

    async def _try_later(self, message: ReceivedMessage, delay_s: float | None) -> None:
        is_last = self._desk.send_back.is_last(message)
        if await self._desk.send_back.send_back(message, delay_s):
            self.finish(message)
            if is_last:
                await self._mourn(message)
        else:
            message.reconsume_times += 1
            self._hand_out_again(message, HERE_AGAIN_S)

    async def _reject(self, message: ReceivedMessage, reason: str) -> None:
        if await self._desk.send_back.bury(message, reason):
            self.finish(message)
            await self._mourn(message)
        else:
            self._hand_out_again(message, HERE_AGAIN_S)

    async def _try_in_place(self, message: ReceivedMessage, delay_s: float | None) -> None:
        if self._desk.send_back.is_last(message) and await self._desk.send_back.bury(message):
            self.finish(message)
            await self._mourn(message)
            return
        message.reconsume_times += 1
        wait_s = SUSPEND_S if delay_s is None else delay_s
        self._hand_out_again(message, min(max(wait_s, SUSPEND_MIN_S), SUSPEND_MAX_S))

    def _hand_out_again(self, message: ReceivedMessage, wait_s: float) -> None:
        if message.is_started and self._on_settled is not None:
            self._on_settled()
        message.is_started = False
        self._rest()
        self._desk.session.timers.after(wait_s, lambda: self._offer_again(message))

    def _offer_again(self, message: ReceivedMessage) -> None:
        if self.process.is_dropped or message.is_done:
            return
        if self._desk.is_orderly:
            self._busy = None
            self.advance()
        else:
            self._desk.delivery.offer((message,))

    async def _mourn(self, message: ReceivedMessage) -> None:
        await mourn(self._desk.on_dead, self._desk.group, message)

    def _rest(self) -> None:
        self._at_work = None
        self._rested.set()

    # What the pull loop asks and says.

    def wanted(self) -> tuple[Filter, int] | None:
        """The filter and its version; None while nothing may be pulled."""
        if self._desk.is_orderly and not self._has_lock():
            return None
        return self._desk.filters.get(self.queue.topic)

    def offset_to_commit(self) -> int | None:
        """What to tell the broker along with a pull."""
        return None if self._desk.is_broadcast else self.process.commit_offset or None

    def take(self, fetched: Fetched, spent_s: float) -> None:
        """A pull has been answered."""
        if fetched.status is PullStatus.MOVED:
            log.warning("offset moved queue=%s to=%d", self.queue, fetched.next_offset)
            self._desk.on_moved(self, fetched.next_offset)
            return
        new = self.process.put(fetched.messages, fetched.next_offset, now_s=self._now_s())
        if new:
            self._statistics.pulled(len(new), spent_s)
            # The next pull is on its way before handlers run, so that the broker works meanwhile.
            loop = asyncio.get_running_loop()
            if self._desk.is_orderly:
                loop.call_soon(self.advance)
            else:
                loop.call_soon(self._desk.delivery.offer, new)

    async def meet_again(self, address: Address) -> None:
        """The broker may have forgotten us."""
        await self._desk.membership.meet_again(address)

    def _has_lock(self) -> bool:
        return self._desk.is_broadcast or self.process.has_lock(now_s=self._now_s())

    def _now_s(self) -> float:
        return self._desk.session.clock.monotonic_s()
