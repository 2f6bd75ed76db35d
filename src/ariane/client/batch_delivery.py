"""Handlers that take several messages at a time.

A batch is what waits when a handler is free, up to so many messages; the first of them waits for
others at most so long. It is consumed when the handler returns. When it raises, all its messages
are tried again, each by itself, but for those that the handler has settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ariane.client.delivery import failure_of, is_async, on_thread, source_of
from ariane.client.received import ReceivedMessage
from ariane.client.session import Session
from ariane.clock import Timer
from ariane.errors import InvalidArgument

log = logging.getLogger("ariane.client")

BatchHandler = Callable[[Sequence[ReceivedMessage]], Any]


class Batches:
    """Calls a handler with lists of messages, up to `count` times at once."""

    does_waiting_count = True
    on_settled = None

    def __init__(
        self, handler: BatchHandler, *, session: Session, count: int, size_max: int, wait_s: float
    ) -> None:
        if size_max < 1 or wait_s < 0:
            raise InvalidArgument(f"batch={size_max}, batch_wait={wait_s}: 1 or more, 0 s or more")
        self._handler = handler
        self._session = session
        self._count = count
        self._size_max = size_max
        self._wait_s = wait_s
        self._ready: deque[ReceivedMessage] = deque()
        self._is_stopping = False
        self._is_late = False  # the batch that is gathered has waited long enough
        self._filled = asyncio.Event()
        self._gathering = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Begin to."""
        loop = asyncio.get_running_loop()
        if not is_async(self._handler):
            self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="ariane-consumer")
        self._tasks = [loop.create_task(self._work()) for _ in range(self._count)]

    def offer(self, messages: Iterable[ReceivedMessage]) -> None:
        """Have these consumed."""
        self._ready.extend(messages)
        self._filled.set()

    async def call(self, message: ReceivedMessage) -> None:
        """Consume one message here and now, as a batch of its own."""
        await self._call([message])

    async def drain(self) -> None:
        """Begin no more, and return when what was begun has ended."""
        self._is_stopping = True
        self._ready.clear()
        self._filled.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def abandon(self) -> None:
        """Cancel the handlers that await; a thread cannot be ended from outside."""
        for task in self._tasks:
            task.cancel()

    async def _work(self) -> None:
        while not self._is_stopping:
            async with self._gathering:
                batch = await self._gathered()
            if batch:
                try:
                    await self._handle(batch)
                except Exception:  # they come again when their time is up; others go on
                    log.exception("what became of %d messages could not be told", len(batch))

    async def _gathered(self) -> list[ReceivedMessage]:
        """The next batch; what it holds counts as begun. One worker gathers at a time."""
        batch: list[ReceivedMessage] = []
        late: Timer | None = None
        while len(batch) < self._size_max and not self._is_stopping:
            if self._ready:
                message = self._ready.popleft()
                source = source_of(message)
                if source.may_begin(message):
                    batch.append(message)
                else:
                    source.declined(message)
                continue
            if batch and late is None:
                self._is_late = self._wait_s == 0
                late = self._session.timers.after(self._wait_s, self._call_it_late)
            if batch and self._is_late:
                break
            self._filled.clear()
            await self._filled.wait()
        if late is not None:
            late.cancel()
        return batch

    def _call_it_late(self) -> None:
        self._is_late = True
        self._filled.set()

    async def _handle(self, batch: list[ReceivedMessage]) -> None:
        clock = self._session.clock
        begun_s = clock.monotonic_s()
        error: Exception | None = None
        try:
            await self._call(batch)
        except BaseException as raised:
            error = failure_of(raised)
        each_s = (clock.monotonic_s() - begun_s) / len(batch)
        for message in batch:
            source = source_of(message)
            source.spent(each_s)
            if error is None or message.is_done:
                source.succeeded(message)
            else:
                await source.failed(message, error)

    async def _call(self, batch: list[ReceivedMessage]) -> None:
        if is_async(self._handler):
            await self._handler(batch)
        else:  # one message may come before the consumer has begun
            await on_thread(self._handler, batch, threads=self._threads)
