"""What is done around every send and around every call of a handler.

A middleware brackets: it is entered before and left after, with the error if there was one. It does
not await, so one serves the asyncio client, the blocking one and handlers on threads alike; what
it sets in context variables is seen by the handler.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from ariane.client.delivery import Handler, is_async
from ariane.client.messages import Body, Message, MessageFields, SendReceipt, message_of
from ariane.client.producer import Producer
from ariane.client.queues import Selector
from ariane.client.times import Duration
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from ariane.client.parcels import Parcel
    from ariane.client.received import PolledMessage


@dataclass(slots=True)
class Outgoing:
    """A message on its way out; a middleware may put another in its place."""

    message: Message
    group: str  # the producer's
    is_half: bool = False  # of a transaction, which may still be rolled back
    receipt: SendReceipt | None = None  # once a broker has it; one-way sends get none


class Middleware:
    """Override one of these, or both; each gives something for a `with` block."""

    def sending(self, outgoing: Outgoing) -> AbstractContextManager[object]:
        """What is around a send: all its attempts, until its receipt or its error."""
        return contextlib.nullcontext()

    def handling(self, message: PolledMessage, group: str) -> AbstractContextManager[object]:
        """What is around one call of a consumer group's handler."""
        return contextlib.nullcontext()


def handled(handler: Handler, group: str, middleware: Sequence[Middleware]) -> Handler:
    """The handler, with all middleware around it; the first is the outermost."""

    @contextmanager
    def around(message: Any) -> Iterator[None]:
        with ExitStack() as stack:
            for one in message if isinstance(message, list) else [message]:  # or a batch of them
                for each in middleware:
                    stack.enter_context(each.handling(one, group))
            yield

    if is_async(handler):

        async def awaiting(message: Any) -> None:
            with around(message):
                await handler(message)

        return awaiting

    def calling(message: Any) -> Any:
        with around(message):
            return handler(message)

    return calling


class BracketedProducer(Producer):
    """A producer with middleware: each of its sends goes the whole way."""

    def __init__(self, *arguments: Any, middleware: Sequence[Middleware], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._middleware = middleware
        self._is_plain = False

    def parcel_alone(self, message: Message) -> Parcel | None:
        """None: nothing is sent from outside the loop."""
        return None

    async def send_one_way(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send without an answer; nobody will tell whether it was stored."""
        with self._around([message_of(topic, body, fields)]) as (outgoing,):
            await super().send_one_way(outgoing.message, queue=queue, selector=selector)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request: side by side in one queue, or not at all."""
        with self._around(messages) as batch:
            receipts = await super().send_batch(
                [outgoing.message for outgoing in batch],
                queue=queue,
                selector=selector,
                timeout=timeout,
            )
            for outgoing, receipt in zip(batch, receipts, strict=True):
                outgoing.receipt = receipt
            return receipts
        raise _swallowed()

    async def _send(
        self, message: Message, choice: Any, timeout: Duration | None, **how: Any
    ) -> SendReceipt:
        is_half = bool(how.get("system_flag"))
        with self._around([message], is_half=is_half) as (outgoing,):
            outgoing.receipt = await super()._send(outgoing.message, choice, timeout, **how)
            return outgoing.receipt
        raise _swallowed()

    def _join(self, *arguments: Any) -> None:
        """Nothing is gathered before its middleware has seen it."""

    async def _gather(
        self, batcher: Any, message: Message, choice: Any
    ) -> asyncio.Future[SendReceipt]:
        gather = super()._gather

        async def gathered() -> SendReceipt:
            with self._around([message]) as (outgoing,):
                outgoing.receipt = await (await gather(batcher, outgoing.message, choice))
                return outgoing.receipt
            raise _swallowed()

        task = asyncio.create_task(gathered())
        self._submitted.add(task)
        task.add_done_callback(self._submitted.discard)
        return task

    @contextmanager
    def _around(
        self, messages: Iterable[Message], *, is_half: bool = False
    ) -> Iterator[list[Outgoing]]:
        batch = [Outgoing(message, self.group, is_half) for message in messages]
        with ExitStack() as stack:
            for outgoing in batch:
                for each in self._middleware:
                    stack.enter_context(each.sending(outgoing))
            yield batch


def _swallowed() -> ClientError:
    """Without a receipt nobody may take the message for stored."""
    return ClientError(
        "the send failed, and a middleware kept its error to itself; look at the error that left"
        " its `sending` block"
    )
