"""A consumer that is lent messages one call after the other; the lending is in `lending.py`."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from ariane.client.closing import Closing
from ariane.client.lending import COUNT_MAX, INVISIBLE_S, WAIT_S, Lender, Lending
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry
from ariane.client.session import Session
from ariane.client.starting import Start
from ariane.client.subscription import EVERYTHING
from ariane.client.times import Duration, renamed, seconds_of
from ariane.errors import ClientError, InvalidArgument

log = logging.getLogger("ariane.client")

AGAIN_S: Final = 0.1  # until a broker that answered early, with nothing, is asked again


class SimpleConsumer:
    """Is lent messages for one group; made by `Client.simple_consumer`."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        orderly: bool = False,
        start: Start = Start.LAST,
        retry: Retry | None = None,
        message_kind: type[ReceivedMessage] = ReceivedMessage,
    ) -> None:
        self.group = group
        self.session = session
        self._lending = Lending(
            session,
            group,
            orderly=orderly,
            start=start,
            retry=retry,
            message_kind=message_kind,
        )
        self._turn = itertools.count()
        self._closing = Closing(self._lending.leave)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Receive messages of the topic too, or with another filter."""
        self._lending.subscribe(topic, tags=tags, sql=sql)
        self._lending.meet()

    def unsubscribe(self, topic: str) -> None:
        """Receive messages of the topic no more."""
        if self._lending.unsubscribe(topic):
            self._lending.meet()

    async def close(self) -> None:
        """Leave the group; what was received may still be acknowledged."""
        await self._closing.end()

    @renamed(invisible_s="invisible", wait_s="wait")
    async def receive(
        self,
        count_max: int = COUNT_MAX,
        *,
        invisible: Duration = INVISIBLE_S,
        wait: Duration = WAIT_S,
    ) -> list[ReceivedMessage]:
        """Up to so many messages, lent for `invisible`; none when none came within `wait`."""
        invisible_s, wait_s = seconds_of(invisible), seconds_of(wait)
        self._check(count_max, invisible_s)
        deadline_s = self.session.clock.monotonic_s() + wait_s
        while True:
            lenders = await self._lenders()
            if len(lenders) == 1:
                left_s = max(0.0, deadline_s - self.session.clock.monotonic_s())
                found = await self._lending.pop(lenders[0], count_max, invisible_s, wait_s=left_s)
            else:
                found = await self._pop_any(lenders, count_max, invisible_s)
            if found or self._closing.has_begun or self.session.clock.monotonic_s() >= deadline_s:
                return found
            if len(lenders) > 1:
                await self._wait_for_any(lenders, deadline_s - self.session.clock.monotonic_s())
            else:  # too many wait there, or its clock runs ahead
                await self.session.sleep(AGAIN_S)

    async def ack(self, messages: Iterable[ReceivedMessage]) -> None:
        """Say that these have been consumed."""
        await self._lending.ack(messages)

    async def give_back(self, message: ReceivedMessage, delay_s: float | None = None) -> None:
        """Say that it has not: lend it again after a while, or make a dead letter of it."""
        await self._lending.give_back(message, delay_s)

    async def extend(self, message: ReceivedMessage, for_s: float | None = None) -> None:
        """Be lent the message for `for_s` from now on, or as long again as it was."""
        await self._lending.extend(message, for_s)

    # Receiving.

    def _check(self, count_max: int, invisible_s: float) -> None:
        if not self._lending.topics:
            raise ClientError("the consumer has no topic; subscribe it to one")
        if not 1 <= count_max <= COUNT_MAX:
            raise InvalidArgument(f"count_max={count_max}: brokers lend 1 to {COUNT_MAX} at a time")
        if invisible_s <= 0:
            raise InvalidArgument(f"invisible={invisible_s}: messages are lent for some time")

    async def _lenders(self) -> list[Lender]:
        """Every broker of every topic, another one first each time."""
        lenders = await self._lending.lenders()
        first = next(self._turn) % len(lenders)
        return lenders[first:] + lenders[:first]

    async def _pop_any(
        self, lenders: list[Lender], count_max: int, invisible_s: float
    ) -> list[ReceivedMessage]:
        """What the first lender with something has; those that fail are left out."""
        failures: list[ClientError] = []
        for lender in lenders:
            try:
                found = await self._lending.pop(lender, count_max, invisible_s, wait_s=0.0)
            except ClientError as error:
                log.info("pop failed broker=%s: %s", lender.broker_name, error)
                failures.append(error)
            else:
                if found:
                    return found
        if len(failures) == len(lenders):
            raise failures[0]
        return []

    async def _wait_for_any(self, lenders: list[Lender], wait_s: float) -> None:
        """Return when some lender has something, or the time is up."""
        waits = {
            asyncio.ensure_future(self._lending.notified(lender, wait_s)) for lender in lenders
        }
        try:
            while waits:
                done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if any(wait.result() for wait in done):
                    return
        finally:
            for wait in waits:
                wait.cancel()
