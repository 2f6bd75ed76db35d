"""How an application consumes: by a decorated handler, by a loop over messages, or by hand."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack, cast

import msgspec

from ariane.client.closing import looked_at
from ariane.client.consumers import Registry
from ariane.client.delivery import AsyncHandler, Delivery, Handler, Loop, Tasks, is_async
from ariane.client.keywords import refuse_unknown
from ariane.client.lite_pull_consumer import LitePullConsumer
from ariane.client.process_queue import Limits
from ariane.client.push_consumer import ConsumerOptions, PushConsumer
from ariane.client.reading import DeadLetterHook
from ariane.client.rebalance import Strategy
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry
from ariane.client.session import Session
from ariane.client.simple_consumer import SimpleConsumer
from ariane.client.starting import Start
from ariane.client.subscription import EVERYTHING, topics_of
from ariane.client.thread_delivery import Threads
from ariane.client.times import Duration, deprecated, seconds_of
from ariane.clock import Clock
from ariane.errors import ClientError, InvalidArgument

CONCURRENCY: Final = 20
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

H = TypeVar("H", bound=Callable[..., Any])


class Choices(TypedDict, total=False):
    """What may be chosen for any push consumer; `ConsumerOptions` says what it means."""

    orderly: bool
    broadcast: bool
    start: Start
    retry: Retry
    dead_letter: DeadLetterHook | None
    strategy: Strategy
    limits: Limits
    timeout: Duration
    drain: Duration
    offsets_directory: Path | None


KEYWORDS: Final = {*Choices.__annotations__, "concurrency", "group", "model", "sql", "tags"}


class Subscription:
    """Messages of a group's share, one after the other; each is to be settled by `ack` or `nack`.

    async with client.subscribe("orders", group="billing") as messages:
        async for message in messages:
            async with message:
                ...

    The outer block leaves the group at its end, however it ends.
    """

    def __init__(self, consumer: PushConsumer, loop: Loop) -> None:
        self.consumer = consumer
        self._loop = loop
        self._starting: asyncio.Task[None] | None = None
        self._is_started = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:  # the block is not entered, so nobody else will leave the group
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if not self._is_started and not self._is_closed:
            await self._start()
        message = await self._loop.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """Commit what was settled and leave the group; the loop ends. May be called again."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
        await self.consumer.close()

    async def _start(self) -> None:
        """Wait for the start; who is cancelled meanwhile may wait for it again."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self.consumer.start())
            self._starting.add_done_callback(looked_at)  # who asks for a message is told
        await asyncio.shield(self._starting)
        self._is_started = True

    def __del__(self) -> None:
        if self._starting is None or self._is_closed or self.consumer.is_closing:
            return
        _close_where_it_runs(self._starting, self.consumer)
        warnings.warn(
            f"a loop over messages of group {self.consumer.group!r} was left open; write"
            " `async with client.subscribe(...) as messages:` around it",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )


class Consuming:
    """The part of a client that consumes."""

    session: Session
    message_kind: type[ReceivedMessage] = ReceivedMessage
    may_handlers_await = True

    @cached_property
    def _registry(self) -> Registry:
        return Registry(self.session)

    @cached_property
    def _handlers(self) -> list[PushConsumer]:
        return []

    def push_consumer(
        self,
        group: str,
        handler: Handler,
        *,
        concurrency: int = CONCURRENCY,
        **choices: Unpack[Choices],
    ) -> PushConsumer:
        """A member of the group; subscribe it to topics, then `start` it or use `async with`.

        A handler that is not `async` runs on threads. A message is consumed when its handler
        returns and tried again later when it raises.
        """
        if not self.may_handlers_await and is_async(handler):
            raise ClientError("this client's handlers block; an async one belongs to ariane.Client")
        called = self._traced(handler, group)
        delivery = _delivery_of(called, concurrency=concurrency, clock=self.session.clock)
        return PushConsumer(
            self.session,
            self._registry,
            group,
            delivery,
            _options_of(choices),
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
        **choices: Unpack[Choices],
    ) -> Callable[[H], H]:
        """Decorate a handler; `run` has it called for each message of the topics.

        With a `model` the handler is called with the body, read as JSON of that type, and the
        message.
        """

        def register(handler: H) -> H:
            called = handler if model is None else _reading(handler, model)
            consumer = self.push_consumer(group, called, concurrency=concurrency, **choices)
            for topic in topics_of(topics):
                consumer.subscribe(topic, tags=tags, sql=sql)
            self._handlers.append(consumer)
            return handler

        return register

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
        options = _options_of(choices)
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
        return LitePullConsumer(
            self.session,
            self._registry,
            group,
            auto_commit=auto_commit,
            start=start,
            strategy=strategy,
            limits=limits,
            message_kind=self.message_kind,
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
        return SimpleConsumer(
            self.session,
            group,
            orderly=orderly,
            start=start,
            retry=retry,
            message_kind=self.message_kind,
        )

    def _traced(self, handler: Handler, group: str) -> Handler:
        """The handler as it is called: here, as it is."""
        return handler

    async def open(self) -> None:
        """Begin."""
        await self.session.open()

    async def start_consumers(self) -> None:
        """Have the decorated handlers called from now on."""
        while self._handlers:
            consumer = self._handlers.pop(0)
            try:
                await consumer.start()
            except Exception as error:
                error.add_note(f"the handler of group {consumer.group!r} was not started")
                raise

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


def _options_of(choices: Choices) -> ConsumerOptions:
    given: dict[str, Any] = dict(choices)
    for name in ("timeout", "drain"):
        if f"{name}_s" in given:
            deprecated(f"{name}_s= is called {name}= now, seconds or a timedelta")
            given[name] = given.pop(f"{name}_s")
    refuse_unknown(given, KEYWORDS)
    for name in ("timeout", "drain"):
        if name in given:
            given[f"{name}_s"] = seconds_of(given.pop(name))
    return ConsumerOptions(**given)


def _close_where_it_runs(starting: asyncio.Task[None], consumer: PushConsumer) -> None:
    """Close a consumer that nobody has any more, from whichever thread."""

    def close() -> None:
        starting.cancel()
        consumer.begin_close()

    loop = starting.get_loop()
    with contextlib.suppress(RuntimeError):  # no loop runs here, or that one has ended
        if asyncio.get_running_loop() is loop:
            close()
            return
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(close)


def _delivery_of(handler: Handler, *, concurrency: int, clock: Clock) -> Delivery:
    """The way to call this handler, up to `concurrency` times at once."""
    if concurrency < 1:
        raise InvalidArgument(f"concurrency={concurrency}: at least one message must be handled")
    if is_async(handler):
        return Tasks(cast("AsyncHandler", handler), count=concurrency, clock=clock)
    return Threads(handler, count=concurrency, clock=clock)


def _reading(handler: Callable[..., Any], model: type) -> Handler:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(model)
    if is_async(handler):

        async def call(message: ReceivedMessage) -> None:
            await handler(decoder.decode(message.body), message)

        return call
    return lambda message: handler(decoder.decode(message.body), message)


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
