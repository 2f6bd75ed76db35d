"""A member of a group whose handler is lent messages, by RocketMQ's pop: balanced by message.

Every member asks every broker for what its handlers can soon take, whatever queue it is in. So more
members than queues are of use, and a queue whose reader hangs is nobody's problem. What is held
longer than half its time is asked for again; what is not acknowledged is lent to somebody else.
There is no order, and no broadcast.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from ariane.client.borrowing import Borrowing, PopOptions
from ariane.client.closing import Closing
from ariane.client.consumers import Registry
from ariane.client.delivery import Delivery
from ariane.client.inspection import running_info
from ariane.client.lending import WAIT_S, Lender
from ariane.client.received import ReceivedMessage
from ariane.client.session import Session
from ariane.client.subscription import EVERYTHING
from ariane.clock import Timer
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.bodies.consumers import RunningInfo

LOOK_S: Final = 20.0  # between two looks for brokers and topics that are new
FAILED_S: Final = 1.0  # until a broker that could not be asked is asked again
FAILED_MAX_S: Final = 8.0
RENEWALS: Final = 4  # looks at what is held, within the time that messages are lent for

log = logging.getLogger("ariane.client")


class PopConsumer:
    """Has a handler called with messages it is lent; made by `Client.pop_consumer`."""

    def __init__(
        self,
        session: Session,
        registry: Registry,
        group: str,
        delivery: Delivery,
        options: PopOptions,
        *,
        concurrency: int,
        message_kind: type[ReceivedMessage] = ReceivedMessage,
    ) -> None:
        self.group = group
        self.options = options
        self.session = session
        self.message_kind = message_kind
        self.started_at_ms = 0
        self._registry = registry
        self._delivery = delivery
        self._borrowing = Borrowing(
            session,
            group,
            delivery,
            options,
            held_max=2 * concurrency,
            message_kind=message_kind,
        )
        self._lending = self._borrowing.lending
        self._takers: dict[Lender, asyncio.Task[None]] = {}
        self._timers: list[Timer] = []
        self._is_started = False
        self._closing = Closing(self._stop_taking, self._drain, self._borrowing.settle, self._leave)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Consume the topic too, or with another filter: tags (`a || b`) or an SQL92 expression."""
        self._lending.subscribe(topic, tags=tags, sql=sql)
        if self._is_started:
            self._lending.meet()
            self._look()

    def unsubscribe(self, topic: str) -> None:
        """Consume the topic no more."""
        if self._lending.unsubscribe(topic) and self._is_started:
            self._lending.meet()
            self._look()

    async def start(self) -> None:
        """Join the group and begin."""
        if self._is_started:
            raise ClientError("the consumer has been started before; make a new one")
        if not self._lending.topics:
            raise ClientError("the consumer has no topic; subscribe it to one")
        self._is_started = True
        await self._registry.add(self)
        if self.is_closing:  # while another consumer of the group was still leaving
            self._registry.remove(self)
            raise ClientError("the consumer was closed before it had begun")
        self.session.before_close.append(self.close)
        self.started_at_ms = self.session.clock.wall_ms()
        self._lending.meet()
        self._delivery.start()
        self._borrowing.resume()
        renew_s = self.options.invisible_s / RENEWALS
        self._timers = [
            self.session.timers.every(LOOK_S, self._look),
            self.session.timers.every(renew_s, self._borrowing.renew),
        ]
        self._look()

    async def close(self) -> None:
        """Begin nothing more, let handlers end, acknowledge, and leave the group.

        May be called again; goes on to its end when its caller is cancelled.
        """
        self.begin_close()
        await self._closing.end()

    def begin_close(self) -> None:
        """Close in the background."""
        for timer in self._timers:
            timer.cancel()
        self._closing.begin()

    @property
    def is_closing(self) -> bool:
        """Whether it has been closed, or is about to be."""
        return self._closing.has_begun

    @property
    def is_orderly(self) -> bool:
        """Whether the order of queues is kept."""
        return False

    @property
    def held_count(self) -> int:
        """How many messages are lent to this member and not settled."""
        return self._borrowing.held_count

    def pause(self) -> None:
        """Be lent nothing more until `resume`."""
        self._borrowing.pause()

    def resume(self) -> None:
        """Be lent messages again."""
        self._borrowing.resume()

    # What administrators ask, by way of a broker.

    def rebalance(self) -> None:
        """The group has changed, which changes nothing here."""

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Brokers know where to go on."""

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Brokers know how far the group has got."""
        return {}

    def running_info(self, *, with_stacks: bool = False) -> RunningInfo:
        """What the consumer is doing."""
        return running_info(
            self.session,
            queues=(),
            statistics={},
            subscriptions=self._lending.subscriptions(),
            is_orderly=False,
            started_at_ms=self.started_at_ms,
            consume_type="CONSUME_POP",
            with_stacks=with_stacks,
        )

    async def consume_directly(self, message: ReceivedMessage) -> None:
        """Have one message consumed now, whatever waits; raises what its handler raises."""
        await self._delivery.call(message)

    # Being lent.

    def _look(self) -> None:
        """Ask every broker of every topic from now on."""
        self._borrowing.spawn(self._begin_taking())

    async def _begin_taking(self) -> None:
        for topic in self._lending.topics:
            try:
                lenders = await self._lending.lenders_of(topic)
            except ClientError as error:
                log.warning("nothing is lent yet topic=%s group=%s: %s", topic, self.group, error)
                continue
            for lender in lenders:
                taker = self._takers.get(lender)
                if not self.is_closing and (taker is None or taker.done()):
                    self._takers[lender] = self._borrowing.spawn(self._take(lender))

    async def _take(self, lender: Lender) -> None:
        wait_s = FAILED_S
        while not self.is_closing and lender.topic in self._lending.topics:
            await self._borrowing.room.wait()
            try:
                if not await self._borrowing.take(lender):
                    await self._lending.notified(lender, WAIT_S)
                wait_s = FAILED_S
            except ClientError as error:
                log.warning("nothing lent group=%s %s: %s", self.group, lender.broker_name, error)
                self.session.refresh_route(lender.topic)
                await self.session.sleep(wait_s)
                wait_s = min(wait_s * 2, FAILED_MAX_S)

    # Ending.

    async def _stop_taking(self) -> None:
        self._borrowing.is_ending = True
        for taker in self._takers.values():
            taker.cancel()
        await asyncio.gather(*self._takers.values(), return_exceptions=True)

    async def _drain(self) -> None:
        drained = asyncio.ensure_future(self._delivery.drain())
        late = asyncio.ensure_future(self.session.sleep(self.options.drain_s))
        await asyncio.wait({drained, late}, return_when=asyncio.FIRST_COMPLETED)
        late.cancel()
        if not drained.done():
            log.warning("handlers did not end in %g s group=%s", self.options.drain_s, self.group)
            self._delivery.abandon()
            await asyncio.wait({drained}, timeout=1.0)
            drained.cancel()

    async def _leave(self) -> None:
        if self._registry.has(self):
            try:
                await self._lending.leave()
            finally:
                self._registry.remove(self)
                self.session.forget_close(self.close)
