"""Calling handlers that block, each on a thread, while the event loop goes on."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from queue import SimpleQueue

from ariane.client.delivery import Handler, as_exception, on_thread, source_of
from ariane.client.received import ReceivedMessage
from ariane.clock import Clock

log = logging.getLogger("ariane.client")


class _Outcome:
    """What a thread has to tell of a message."""

    __slots__ = ("error", "message", "spent_s", "was_begun")

    def __init__(
        self,
        message: ReceivedMessage,
        *,
        was_begun: bool = True,
        error: Exception | None = None,
        spent_s: float = 0.0,
    ) -> None:
        self.message = message
        self.was_begun = was_begun
        self.error = error
        self.spent_s = spent_s


class Threads:
    """Calls a handler that blocks, from as many threads as may run at once."""

    does_waiting_count = True
    on_settled = None

    def __init__(self, handler: Handler, *, count: int, clock: Clock) -> None:
        self._handler = handler
        self._count = count
        self._clock = clock
        self._ready: SimpleQueue[ReceivedMessage | None] = SimpleQueue()
        self._outcomes: deque[_Outcome] = deque()
        self._is_collecting = False  # the loop has been told and has not looked yet
        self._is_stopping = False
        self._alive = 0
        self._ended = asyncio.Event()
        self._failures: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to."""
        self._loop = asyncio.get_running_loop()
        self._alive = self._count
        for number in range(self._count):
            name = f"ariane-consumer-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def offer(self, messages: Iterable[ReceivedMessage]) -> None:
        """Have these consumed."""
        for message in messages:
            self._ready.put(message)

    async def call(self, message: ReceivedMessage) -> None:
        """Consume one message here and now, on a thread that does nothing else."""
        self._loop = asyncio.get_running_loop()
        await on_thread(self._handle, message)

    async def drain(self) -> None:
        """Begin no more, and return when what was begun has ended."""
        self._is_stopping = True
        for _ in range(self._count):
            self._ready.put(None)
        if self._alive:
            await self._ended.wait()
        self._collect()
        await asyncio.gather(*self._failures, return_exceptions=True)

    def abandon(self) -> None:
        """Leave the threads alone: a thread cannot be ended from outside."""

    def _work(self) -> None:
        while (message := self._ready.get()) is not None and not self._is_stopping:
            if not source_of(message).may_begin(message):
                self._report(_Outcome(message, was_begun=False))
                continue
            begun_s = self._clock.monotonic_s()
            failure = None
            try:
                self._handle(message)
            except BaseException as error:  # whatever users raise is for their message's account
                failure = as_exception(error)
            spent_s = self._clock.monotonic_s() - begun_s
            self._report(_Outcome(message, error=failure, spent_s=spent_s))
        self._tell(self._thread_ended)

    def _handle(self, message: ReceivedMessage) -> None:
        result = self._handler(message)
        if inspect.isawaitable(result):  # from a function that only passes one on
            asyncio.run_coroutine_threadsafe(_awaited(result), self._loop).result()

    def _report(self, outcome: _Outcome) -> None:
        self._outcomes.append(outcome)
        if not self._is_collecting:
            self._is_collecting = True
            self._tell(self._collect)

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            log.info("a handler ended after the event loop")

    def _thread_ended(self) -> None:
        self._alive -= 1
        if not self._alive:
            self._ended.set()

    def _collect(self) -> None:
        self._is_collecting = False  # before looking: what comes later tells again
        while self._outcomes:
            outcome = self._outcomes.popleft()
            message, source = outcome.message, source_of(outcome.message)
            if not outcome.was_begun:
                source.declined(message)
                continue
            source.spent(outcome.spent_s)
            if outcome.error is None:
                source.succeeded(message)
            else:
                work = source.failed(message, outcome.error)
                task = self._loop.create_task(work)
                self._failures.add(task)
                task.add_done_callback(self._failures.discard)


async def _awaited(result: Awaitable[object]) -> None:
    await result
