"""How an application consumes: by a decorated handler, by a loop over messages, or by hand."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from ariane.client.choosing import (
    AllChoices,
    Choices,
    PopChoices,
    delivery_of,
    options_of,
    pop_options_of,
    reading,
)
from ariane.client.consumers import Registry
from ariane.client.delivery import Delivery, Loop, is_async
from ariane.client.looping import Subscription
from ariane.client.process_queue import Limits
from ariane.client.push_consumer import PushConsumer
from ariane.client.rebalance import Strategy
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry
from ariane.client.session import Session
from ariane.client.starting import Start
from ariane.client.subscription import EVERYTHING, topics_of
from ariane.client.times import Duration
from ariane.errors import ClientError, InvalidArgument

if TYPE_CHECKING:  # imported when one is made
    from ariane.client.lite_pull_consumer import LitePullConsumer
    from ariane.client.pop_consumer import PopConsumer
    from ariane.client.simple_consumer import SimpleConsumer

    Handling = PushConsumer | PopConsumer

CONCURRENCY: Final = 20
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

H = TypeVar("H", bound=Callable[..., Any])


@dataclass(slots=True)
class _Registered:
    """A decorated handler that is yet to be started."""

    name: str
    make: Callable[[], Handling]
    consumer: Handling


class Consuming:
    """The part of a client that consumes."""

    session: Session
    message_kind: type[ReceivedMessage] = ReceivedMessage
    may_handlers_await = True

    @cached_property
    def _registry(self) -> Registry:
        return Registry(self.session)

    @cached_property
    def _handlers(self) -> list[_Registered]:
        return []

    def push_consumer(
        self,
        group: str,
        handler: Callable[..., Any],
        *,
        concurrency: int = CONCURRENCY,
        batch: int | None = None,
        batch_wait: Duration = 0.0,
        **choices: Unpack[Choices],
    ) -> PushConsumer:
        """A member of the group; subscribe it to topics, then `start` it or use `async with`.

        A handler that is not `async` runs on threads. A message is consumed when its handler
        returns and tried again later when it raises. With `batch` the handler is called with lists
        of up to so many messages, whose first has waited for others at most for `batch_wait`.
        """
        options = options_of(choices)
        if batch is not None and options.orderly:
            raise InvalidArgument("a batch has no order; leave out batch=, or orderly=True")
        return PushConsumer(
            self.session,
            self._registry,
            group,
            self._delivery_of(handler, group, concurrency, batch, batch_wait),
            options,
            message_kind=self.message_kind,
        )

    def pop_consumer(
        self,
        group: str,
        handler: Callable[..., Any],
        *,
        concurrency: int = CONCURRENCY,
        batch: int | None = None,
        batch_wait: Duration = 0.0,
        **choices: Unpack[PopChoices],
    ) -> PopConsumer:
        """A member of the group that is lent messages: balanced by message, not by queue.

        Members may be more than queues, and one that hangs holds up what it has been lent, for
        `invisible` at most. There is no order. The rest is as with `push_consumer`.
        """
        from ariane.client.pop_consumer import PopConsumer  # noqa: PLC0415 - as above

        return PopConsumer(
            self.session,
            self._registry,
            group,
            self._delivery_of(handler, group, concurrency, batch, batch_wait),
            pop_options_of(choices),
            concurrency=concurrency * (batch or 1),
            message_kind=self.message_kind,
        )

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        tags: str = EVERYTHING,
        sql: str | None = None,
        model: type | None = None,
        concurrency: int = CONCURRENCY,
        batch: int | None = None,
        batch_wait: Duration = 0.0,
        pop: bool = False,
        **choices: Unpack[AllChoices],
    ) -> Callable[[H], H]:
        """Decorate a handler; `run` has it called for each message of the topics.

        With a `model` the handler is called with the body, read as JSON of that type, and the
        message; one that cannot be read is a dead letter at once. With `batch` it is called with
        lists of messages. With `pop` messages are lent, as to `pop_consumer`.
        """
        if batch is not None and model is not None:
            raise InvalidArgument("a handler of batches reads bodies by itself; leave out model=")
        make_consumer: Callable[..., Handling] = self.pop_consumer if pop else self.push_consumer

        def register(handler: H) -> H:
            called = handler if model is None else reading(handler, model)

            def make() -> Handling:
                consumer = make_consumer(
                    group,
                    called,
                    concurrency=concurrency,
                    batch=batch,
                    batch_wait=batch_wait,
                    **choices,
                )
                for topic in topics_of(topics):
                    consumer.subscribe(topic, tags=tags, sql=sql)
                return consumer

            name = getattr(handler, "__qualname__", repr(handler))
            self._handlers.append(_Registered(name, make, make()))
            return handler

        return register

    def _delivery_of(
        self,
        handler: Callable[..., Any],
        group: str,
        concurrency: int,
        batch: int | None,
        batch_wait: Duration,
    ) -> Delivery:
        if not self.may_handlers_await and is_async(handler):
            raise ClientError("this client's handlers block; an async one belongs to ariane.Client")
        called = self._traced(handler, group, is_batch=batch is not None)
        return delivery_of(
            called, self.session, concurrency=concurrency, batch=batch, batch_wait=batch_wait
        )

    def subscribe(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        tags: str = EVERYTHING,
        sql: str | None = None,
        concurrency: int | None = None,
        **choices: Unpack[Choices],
    ) -> Subscription:
        """Messages to loop over; at most `concurrency` of them unsettled at a time."""
        loop = Loop(unsettled_max=concurrency)
        options = options_of(choices)
        consumer = PushConsumer(
            self.session, self._registry, group, loop, options, message_kind=self.message_kind
        )
        for topic in topics_of(topics):
            consumer.subscribe(topic, tags=tags, sql=sql)
        return Subscription(consumer, loop)

    def lite_pull_consumer(
        self,
        group: str,
        *,
        auto_commit: bool = True,
        start: Start = Start.LAST,
        strategy: Strategy | None = None,
        limits: Limits | None = None,
    ) -> LitePullConsumer:
        """A member of the group that is polled; subscribe it, or start it and assign queues."""
        from ariane.client.lite_pull_consumer import LitePullConsumer  # noqa: PLC0415 - as above

        return LitePullConsumer(
            self.session,
            self._registry,
            group,
            auto_commit=auto_commit,
            start=start,
            strategy=strategy,
            limits=limits,
        )

    def simple_consumer(
        self,
        group: str,
        *,
        orderly: bool = False,
        start: Start = Start.LAST,
        retry: Retry | None = None,
    ) -> SimpleConsumer:
        """A member of the group that is lent messages; subscribe it, then `receive`."""
        from ariane.client.simple_consumer import SimpleConsumer  # noqa: PLC0415 - as above

        return SimpleConsumer(
            self.session,
            group,
            orderly=orderly,
            start=start,
            retry=retry,
            message_kind=self.message_kind,
        )

    def _traced(
        self, handler: Callable[..., Any], group: str, *, is_batch: bool
    ) -> Callable[..., Any]:
        """The handler as it is called: here, as it is."""
        return handler

    async def open(self) -> None:
        """Begin."""
        await self.session.open()

    async def start_consumers(self) -> None:
        """Have the decorated handlers called from now on."""
        while self._handlers:
            first = self._handlers[0]
            try:
                await first.consumer.start()
            except Exception as error:
                error.add_note(
                    f"the handler {first.name!r} of group {first.consumer.group!r} was not started"
                )
                first.consumer = first.make()  # what has failed to start is spent
                raise
            del self._handlers[0]

    async def run(self) -> None:
        """Have the decorated handlers called until SIGINT or SIGTERM; then end in good order.

        if __name__ == "__main__":
            asyncio.run(client.run())
        """
        if not self._handlers:
            raise ClientError("no handler to run; decorate one with @client.consumer(...)")
        async with contextlib.AsyncExitStack() as stack:
            if not self.session.is_open:
                await self.open()
                stack.push_async_callback(self.session.close)
            with _signalled() as stop:
                await self.start_consumers()
                await stop.wait()
            # A second signal is for those who do not want to wait for handlers to end.


@contextlib.contextmanager
def _signalled() -> Iterator[asyncio.Event]:
    """An event that the first signal to end sets; outside the main thread only cancelling ends."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    caught = []
    for number in SIGNALS:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.set)
            caught.append(number)
    try:
        yield stop
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
