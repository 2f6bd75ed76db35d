"""Handlers that are traced: RocketMQ's trace topic hears when each message begins and ends.

The handler is wrapped, so that consumers without traces pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ariane.client.delivery import Handler, is_async
from ariane.client.retrying import RetryLater
from ariane.client.trace import Tracer, consumed_line, consuming_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ariane.client.batch_delivery import BatchHandler
    from ariane.client.received import ReceivedMessage
    from ariane.client.session import Session

    Batch = Sequence[ReceivedMessage]

SUCCESS: Final = 0
EXCEPTION: Final = 2
FAILED: Final = 4


class Begun(NamedTuple):
    """A message that a handler is called with."""

    request_id: str
    keys: tuple[str, ...]
    at_s: float


class HandlerTrace:
    """Tells of the messages that one group's handler is called with, from whatever thread."""

    def __init__(self, session: Session, tracer: Tracer, group: str) -> None:
        self._session = session
        self._tracer = tracer
        self._group = group

    def begun(self, message: ReceivedMessage) -> Begun | None:
        """Tell that a message begins; None when its broker wants no traces."""
        if message.find(b"TRACE_ON") == "false":
            return None
        at_ms = self._session.clock.wall_ms()
        found = Begun(
            self._session.unique_keys.at(at_ms),
            tuple((message.find(b"KEYS") or "").split()),
            self._session.clock.monotonic_s(),
        )
        line = consuming_line(
            at_ms=at_ms,
            region=message.find(b"MSG_REGION") or "",
            group=self._group,
            request_id=found.request_id,
            message_id=message.message_id,
            reconsume_times=message.reconsume_times,
            keys=found.keys,
        )
        self._soon(self._tracer.add, line)
        return found

    def ended(
        self, begun: Begun | None, message: ReceivedMessage, error: BaseException | None = None
    ) -> None:
        """Tell how it ended."""
        if begun is None:
            return
        outcome = FAILED if isinstance(error, RetryLater) else EXCEPTION
        line = consumed_line(
            at_ms=self._session.clock.wall_ms(),
            group=self._group,
            request_id=begun.request_id,
            message_id=message.message_id,
            cost_ms=round((self._session.clock.monotonic_s() - begun.at_s) * 1000),
            is_success=error is None,
            keys=begun.keys,
            outcome=SUCCESS if error is None else outcome,
        )
        self._soon(self._tracer.add, line)

    def _soon(self, call: Callable[..., object], *arguments: object) -> None:
        if self._session.loop is not None:
            self._session.loop.call_soon_threadsafe(call, *arguments)


def traced(handler: Handler, trace: HandlerTrace) -> Handler:
    """The handler, with each of its calls told of."""
    if is_async(handler):
        return _traced_async(handler, trace)

    def call(message: ReceivedMessage) -> Any:
        begun = trace.begun(message)
        try:
            result = handler(message)
        except BaseException as error:
            trace.ended(begun, message, error)
            raise
        trace.ended(begun, message)
        return result

    return call


def _traced_async(
    handler: Callable[[ReceivedMessage], Awaitable[Any]], trace: HandlerTrace
) -> Handler:
    async def call(message: ReceivedMessage) -> None:
        begun = trace.begun(message)
        try:
            await handler(message)
        except BaseException as error:
            trace.ended(begun, message, error)
            raise
        trace.ended(begun, message)

    return call


def traced_batch(handler: BatchHandler, trace: HandlerTrace) -> BatchHandler:
    """The handler of batches, with each message of its calls told of."""

    def end(begun: list[Begun | None], batch: Batch, error: BaseException | None) -> None:
        for one, message in zip(begun, batch, strict=True):
            trace.ended(one, message, error)

    if is_async(handler):

        async def awaiting(batch: Batch) -> None:
            begun = [trace.begun(message) for message in batch]
            try:
                await handler(batch)
            except BaseException as error:
                end(begun, batch, error)
                raise
            end(begun, batch, None)

        return awaiting

    def calling(batch: Batch) -> Any:
        begun = [trace.begun(message) for message in batch]
        try:
            result = handler(batch)
        except BaseException as error:
            end(begun, batch, error)
            raise
        end(begun, batch, None)
        return result

    return calling
