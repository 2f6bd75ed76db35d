"""What a member of a group has been lent and not settled, and what becomes of it.

What is held longer than half its time is asked for again; what was consumed is acknowledged
together with others of the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ariane.client.dead_letters import DeadLetterHook, mourn, rejection
from ariane.client.delivery import Delivery
from ariane.client.lending import COUNT_MAX, INVISIBLE_S, Lender, Lending
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry, RetryLater
from ariane.client.session import Session
from ariane.client.starting import Start
from ariane.errors import ClientError, InvalidArgument

ACK_AGAIN_S: Final = 1.0

R = TypeVar("R")

log = logging.getLogger("ariane.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopOptions:
    """How a group is lent messages."""

    start: Start = Start.LAST
    retry: Retry = field(default_factory=Retry)
    dead_letter: DeadLetterHook | None = None  # called with what was given up here
    invisible_s: float = INVISIBLE_S  # that messages are lent for; renewed while they are held
    timeout_s: float = 900.0  # a message that takes longer is not renewed any more
    drain_s: float = 30.0  # that handlers have to end when the consumer closes

    def __post_init__(self) -> None:
        if not self.invisible_s > 0:
            raise InvalidArgument(f"invisible={self.invisible_s}: messages are lent for some time")


@dataclass(slots=True)
class _Held:
    """A message that is ours for a while."""

    taken_s: float
    until_s: float


class Borrowing:
    """The messages of one consumer that brokers wait to hear of."""

    def __init__(
        self,
        session: Session,
        group: str,
        delivery: Delivery,
        options: PopOptions,
        *,
        held_max: int,
        message_kind: type[ReceivedMessage],
    ) -> None:
        self.group = group
        self.session = session
        self.options = options
        self.room = asyncio.Event()  # for more than is held
        self.lending = Lending(
            session,
            group,
            start=options.start,
            retry=options.retry,
            message_kind=message_kind,
            lender_kind=lambda *which: _Lender(*which, borrowing=self),
        )
        self.is_ending = False
        self._delivery = delivery
        self._held: dict[ReceivedMessage, _Held] = {}
        self._held_max = held_max
        self._acks: list[ReceivedMessage] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def held_count(self) -> int:
        """How many messages are held."""
        return len(self._held)

    def pause(self) -> None:
        """Have no room."""
        self._held_max = -abs(self._held_max)
        self.room.clear()

    def resume(self) -> None:
        """Have room again."""
        self._held_max = abs(self._held_max)
        self._make_room()

    async def take(self, lender: Lender) -> int:
        """Be lent what there is room for; returns how much it was.

        Whole even when its caller is cancelled: what it brings would else be nobody's for a while.
        """
        return await asyncio.shield(self.spawn(self._take(lender)))

    async def _take(self, lender: Lender) -> int:
        count_max = min(COUNT_MAX, max(1, self._held_max - len(self._held)))
        asked_s = self._now_s()
        lent_s = self.options.invisible_s
        found = await self.lending.pop(lender, count_max, lent_s, wait_s=0.0)
        for message in found:
            self._held[message] = _Held(self._now_s(), asked_s + lent_s)
        if len(self._held) >= self._held_max:
            self.room.clear()
        if self.is_ending:
            await asyncio.gather(*map(self._return, found))
        else:
            self._delivery.offer(found)
        return len(found)

    def renew(self) -> None:
        """Ask for more time, or let go."""
        now_s, options = self._now_s(), self.options
        for message, held in list(self._held.items()):
            if now_s - held.taken_s >= options.timeout_s or now_s >= held.until_s:
                log.warning("not settled in time, lent anew group=%s %r", self.group, message)
                self.forget(message)
            elif held.until_s - now_s <= options.invisible_s / 2:
                self.spawn(self.lend_on(message, options.invisible_s))

    async def lend_on(self, message: ReceivedMessage, for_s: float | None) -> None:
        """Have the message for so long from now on."""
        held = self._held.get(message)
        asked_s = self._now_s()
        lent_s = self.options.invisible_s if for_s is None else for_s
        try:
            await self.lending.extend(message, lent_s)
        except ClientError as error:
            log.info("not renewed group=%s %r: %s", self.group, message, error)
        else:
            if held is not None:
                held.until_s = asked_s + lent_s

    # What becomes of messages.

    def is_held(self, message: ReceivedMessage) -> bool:
        """Whether the message is still lent to us; any thread may ask."""
        held = self._held.get(message)
        return held is not None and not message.is_done and self._now_s() < held.until_s

    def forget(self, message: ReceivedMessage) -> None:
        """The message is not ours any more."""
        self._held.pop(message, None)
        self._make_room()

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Tell the broker, together with others of this turn of the loop."""
        if message.is_done:
            self.forget(message)
            return
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        self._acks.append(message)

    def _send_acks(self) -> None:
        acks, self._acks = self._acks, []
        if acks:
            self.spawn(self._acknowledge(acks))

    async def _acknowledge(self, messages: list[ReceivedMessage]) -> None:
        while left := [message for message in messages if self.is_held(message)]:
            try:
                await self.lending.ack(left)
            except ClientError as error:
                log.warning("not acknowledged yet group=%s: %s", self.group, error)
                if self.is_ending:
                    break  # they come again, which is better than to wait for their time here
                await self.session.sleep(ACK_AGAIN_S)
        for message in messages:
            self.forget(message)

    async def failed(self, message: ReceivedMessage, error: Exception) -> None:
        """Its handler raised."""
        try:
            if (reason := rejection(message, error)) is not None:
                log.warning("rejected group=%s %r: %s", self.group, message, reason)
                await self.lending.reject(message, reason)
                await mourn(self.options.dead_letter, self.group, message)
                return
            if not isinstance(error, RetryLater):
                log.warning("handler failed group=%s %r", self.group, message, exc_info=error)
            await self.give_back(message, error.delay_s if isinstance(error, RetryLater) else None)
        except ClientError as failure:  # its time will be up
            log.warning("not given back group=%s %r: %s", self.group, message, failure)
        finally:
            self.forget(message)

    async def give_back(self, message: ReceivedMessage, delay_s: float | None) -> None:
        """Have it lent again after a while, or given up."""
        if await self.lending.give_back(message, delay_s):
            await mourn(self.options.dead_letter, self.group, message)

    async def _return(self, message: ReceivedMessage) -> None:
        """Let others have what was not begun."""
        try:
            await self.lending.extend(message, 1.0)
        except ClientError as error:
            log.info("not returned group=%s %r: %s", self.group, message, error)
        self.forget(message)

    async def settle(self) -> None:
        """Acknowledge what was consumed, and let others have what was not begun."""
        self._send_acks()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        unbegun = [message for message in self._held if not message.is_started]
        await asyncio.gather(*map(self._return, unbegun))

    def _make_room(self) -> None:
        if len(self._held) < self._held_max:
            self.room.set()

    def spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Do this in the background; `settle` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            expected = isinstance(error, ClientError)
            log.log(
                logging.INFO if expected else logging.ERROR,
                "consumer failed group=%s: %s",
                self.group,
                error,
                exc_info=None if expected else error,
            )

    def _now_s(self) -> float:
        return self.session.clock.monotonic_s()


class _Lender(Lender):
    """One broker as the lender of messages that a handler is called with."""

    def __init__(
        self, lending: Lending, topic: str, broker_name: str, *, borrowing: Borrowing
    ) -> None:
        super().__init__(lending, topic, broker_name)
        self._borrowing = borrowing

    def may_begin(self, message: ReceivedMessage) -> bool:
        """Whether the message is still ours; then it counts as started."""
        message.is_started = self._borrowing.is_held(message)
        return message.is_started

    def declined(self, message: ReceivedMessage) -> None:
        """It was not begun: its time is up."""
        self._borrowing.forget(message)

    def succeeded(self, message: ReceivedMessage) -> None:
        """Its handler returned."""
        self._borrowing.acknowledge(message)

    async def failed(self, message: ReceivedMessage, error: Exception) -> None:
        """Its handler raised."""
        await self._borrowing.failed(message, error)

    def spent(self, time_s: float) -> None:
        """Nobody asks for it."""

    async def nack(self, message: ReceivedMessage, delay_s: float | None) -> None:
        """It has not been consumed."""
        await self._borrowing.give_back(message, delay_s)

    async def extend(self, message: ReceivedMessage, for_s: float | None) -> None:
        """It takes longer."""
        await self._borrowing.lend_on(message, for_s)
