"""Messages to loop over: the consumer behind them, and what becomes of it when they are left."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from types import TracebackType
from typing import Self

from ariane.client.closing import looked_at
from ariane.client.delivery import Loop
from ariane.client.push_consumer import PushConsumer
from ariane.client.received import ReceivedMessage


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
