"""How messages reach the code that consumes them: a handler that awaits, one that blocks, a loop.

A handler that awaits is called by a pool of tasks that live as long as the consumer: a message
needs no task of its own, and a handler that never waits is called straight through a whole
answer. A handler that blocks has threads (`thread_delivery.py`). Whoever loops asks for the next
message.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final, Protocol, cast

from ariane.client.received import ReceivedMessage
from ariane.clock import Clock
from ariane.errors import ClientError, InvalidArgument

STRAIGHT_MAX: Final = 128  # messages handled before the event loop has its turn

log = logging.getLogger("ariane.client")

AsyncHandler = Callable[[ReceivedMessage], Awaitable[Any]]
Handler = Callable[[ReceivedMessage], Any]


class Source(Protocol):
    """The holder of a message, as whoever calls the handler sees it."""

    def may_begin(self, message: ReceivedMessage) -> bool:
        """Whether the message is still to be consumed; then it counts as started."""
        ...

    def declined(self, message: ReceivedMessage) -> None:
        """It was not begun."""
        ...

    def succeeded(self, message: ReceivedMessage) -> None:
        """Its handler returned."""
        ...

    async def failed(self, message: ReceivedMessage, error: Exception) -> None:
        """Its handler raised."""
        ...

    def spent(self, time_s: float) -> None:
        """Handlers of some of its messages took so long together."""
        ...


class Delivery(Protocol):
    """Takes messages to where they are consumed."""

    @property
    def does_waiting_count(self) -> bool:
        """Whether what waits for too long is for others to consume."""
        ...

    def start(self) -> None:
        """Begin to."""
        ...

    def offer(self, messages: Iterable[ReceivedMessage]) -> None:
        """Have these consumed, each as soon as it can be."""
        ...

    @property
    def on_settled(self) -> Callable[[], None] | None:
        """To be told when a message that was begun has ended, if that matters."""
        ...

    async def call(self, message: ReceivedMessage) -> None:
        """Consume one message here and now; raises what the handler raises."""
        ...

    async def drain(self) -> None:
        """Begin no more, and return when what was begun has ended."""
        ...

    def abandon(self) -> None:
        """Do not wait any longer."""
        ...


def is_async(handler: Callable[..., object]) -> bool:
    """Whether calling the handler gives something to await."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is called
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def source_of(message: ReceivedMessage) -> Source:
    """Whoever wants to hear of the message."""
    return cast("Source", message.holder)


class Tasks:
    """Calls a handler that awaits, from as many tasks as may run at once."""

    does_waiting_count = True
    on_settled = None

    def __init__(self, handler: AsyncHandler, *, count: int, clock: Clock) -> None:
        self._handler = handler
        self._count = count
        self._clock = clock
        self._ready: deque[ReceivedMessage] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._is_waking = False  # an idle task has been woken and has not run yet
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work()) for _ in range(self._count)]

    def offer(self, messages: Iterable[ReceivedMessage]) -> None:
        """Have these consumed."""
        self._ready.extend(messages)
        self._wake()

    async def call(self, message: ReceivedMessage) -> None:
        """Consume one message here and now."""
        await self._handler(message)

    async def drain(self) -> None:
        """Begin no more, and return when what was begun has ended."""
        self._is_stopping = True
        for idle in self._idle:
            idle.set_result(None)
        self._idle.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Cancel the handlers that still run."""
        for task in self._tasks:
            task.cancel()

    def _wake(self) -> None:
        # One at a time: the woken task wakes the next if there is more than it can do, which it
        # only finds out when its handler waits for something.
        if self._idle and not self._is_waking:
            self._is_waking = True
            self._idle.pop().set_result(None)

    async def _work(self) -> None:
        while not self._is_stopping:
            if self._ready:
                try:
                    await self._handle_ready()
                except Exception:  # the message comes again when its time is up; others go on
                    log.exception("what became of a message could not be told")
            else:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
                self._is_waking = False

    async def _handle_ready(self) -> None:
        ready, handler, monotonic_s = self._ready, self._handler, self._clock.monotonic_s
        source: Any = _NOBODY
        left = STRAIGHT_MAX
        begun_s = 0.0
        while ready and not self._is_stopping:
            message = ready.popleft()
            if not self._is_waking and ready:
                self._wake()
            if message.holder is not source:  # the clock is read once for messages of one answer
                ended_s = monotonic_s()
                source.spent(ended_s - begun_s)
                source, begun_s = message.holder, ended_s
            if not source.may_begin(message):
                source.declined(message)
                continue
            try:
                await handler(message)
            except BaseException as error:
                await source.failed(message, failure_of(error))
            else:
                source.succeeded(message)
            left -= 1
            if not left:
                left = STRAIGHT_MAX
                await asyncio.sleep(0)
        source.spent(monotonic_s() - begun_s)


class Loop:
    """Gives messages to whoever asks for the next one, and when is his affair."""

    does_waiting_count = False

    def __init__(self, *, unsettled_max: int | None = None) -> None:
        if unsettled_max is not None and unsettled_max < 1:
            raise InvalidArgument(
                f"concurrency={unsettled_max}: at least one message must be handled"
            )
        self._unsettled_max = unsettled_max
        self._unsettled = 0
        self._ready: deque[ReceivedMessage] = deque()
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._straight = 0

    def start(self) -> None:
        """Nothing runs by itself."""

    def offer(self, messages: Iterable[ReceivedMessage]) -> None:
        """Have these consumed."""
        self._ready.extend(messages)
        self._changed.set()

    def on_settled(self) -> None:
        """One of the messages given out has ended."""
        self._unsettled -= 1
        self._changed.set()

    async def call(self, message: ReceivedMessage) -> None:
        """Cannot be done: there is no handler."""
        raise ClientError("this consumer has no handler; its messages are taken one by one")

    async def next(self) -> ReceivedMessage | None:
        """The next message, or None when there will be no more."""
        while True:
            self._straight += 1
            if self._straight >= STRAIGHT_MAX:
                self._straight = 0
                await asyncio.sleep(0)
            while self._ready and self._has_room and not self._is_stopping:
                message = self._ready.popleft()
                source = source_of(message)
                if source.may_begin(message):
                    self._unsettled += 1
                    return message
                source.declined(message)
            if self._is_stopping:
                return None
            self._changed.clear()
            await self._changed.wait()

    @property
    def _has_room(self) -> bool:
        return self._unsettled_max is None or self._unsettled < self._unsettled_max

    async def drain(self) -> None:
        """Give out no more; who has a message settles it when he likes."""
        self._is_stopping = True
        self._ready.clear()
        self._changed.set()

    def abandon(self) -> None:
        """Nothing runs."""


def failure_of(error: BaseException) -> Exception:
    """What users' code failed with on the event loop; raises what is meant for this task, or all.

    Whatever else it is, it is for one message's account: whoever calls handlers goes on.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        return ClientError("something that the handler waited for was cancelled")
    if isinstance(error, (KeyboardInterrupt, SystemExit)) or _is_closing(error):
        raise error
    return as_exception(error)


def _is_closing(error: BaseException) -> bool:
    """Whether it tells a coroutine, whose loop has ended, that it ends as well."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True


def as_exception(error: BaseException) -> Exception:
    """What users' code raised, as something that may be raised anywhere."""
    if isinstance(error, Exception):
        return error
    failure = ClientError(f"{error!r} was raised, which is no Exception")
    failure.__cause__ = error
    return failure


async def on_thread(
    function: Callable[..., Any], *arguments: Any, threads: Executor | None = None
) -> Any:
    """Call users' code that may block, and await what it gives if that is to be awaited.

    What it raises arrives as an `Exception`. Left to futures, SystemExit would end the event loop,
    and StopIteration would never arrive.
    """

    def call() -> tuple[Any, BaseException | None]:
        try:
            return function(*arguments), None
        except BaseException as error:
            return None, error

    run = contextvars.copy_context().run
    result, error = await asyncio.get_running_loop().run_in_executor(threads, run, call)
    if error is not None:
        raise as_exception(error)
    return await result if inspect.isawaitable(result) else result


class _Nobody:
    """The source before the first message."""

    def spent(self, time_s: float) -> None:
        """Nothing has been."""


_NOBODY: Final = _Nobody()
