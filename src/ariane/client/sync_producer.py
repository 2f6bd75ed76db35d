"""The blocking twin of `Producer`.

A plain send goes out on the caller's own thread; everything else, and every second attempt, is the
asyncio producer's work on its loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Unpack, cast

from ariane.client import producer
from ariane.client.direct import DirectLines
from ariane.client.loop_thread import LoopThread
from ariane.client.messages import Body, Duration, Message, MessageFields, SendReceipt, message_of
from ariane.client.producer import choice_of
from ariane.client.queues import Selector
from ariane.client.requests import Received
from ariane.client.transactions import Transaction
from ariane.clock import Clock
from ariane.errors import ConnectionLost, RequestFailed, RequestTimeout
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.message import StoredMessage


class Producer:
    """The blocking twin of `ariane.client.Producer`; any thread may use it."""

    def __init__(
        self,
        twin: producer.Producer,
        thread: LoopThread,
        clock: Clock,
        lines: DirectLines | None = None,
    ) -> None:
        self._twin = twin
        self._thread = thread
        self._clock = clock
        self._lines = lines
        self.group = twin.group
        self.settings = twin.settings

    def send(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send and wait until a broker has it."""
        message = message_of(topic, body, fields)
        parcel = None if self._lines is None else self._twin.parcel_alone(message)
        if self._lines is None or parcel is None:
            return self._thread.run(
                self._twin.send(message, queue=queue, selector=selector, timeout=timeout)
            )
        self._thread.check()
        courier = self._twin.courier
        choice = choice_of(message, queue, selector)
        timeout_s = self.settings.timeout if timeout is None else timeout
        asked_s = self._clock.monotonic_s()
        target = courier.target_now(parcel, choice, asked_s)
        if target is None:
            target = self._thread.run(courier.target(parcel, choice))
        try:
            receipt = self._lines.send(target, parcel, timeout_s)
        except (ConnectionLost, RequestTimeout, RequestFailed) as error:
            again = courier.deliver_again(parcel, choice, asked_s + timeout_s, target, error)
            return cast(SendReceipt, self._thread.run(again))
        courier.answered(target, asked_s, self._clock.monotonic_s())
        return receipt

    def submit(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> Future[SendReceipt]:
        """Send without waiting; the future ends with the receipt or the error."""
        return self._thread.submit(
            self._twin.send(topic, body, queue=queue, selector=selector, timeout=timeout, **fields)
        )

    def send_one_way(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send without an answer; nobody will tell whether it was stored."""
        self._thread.run(
            self._twin.send_one_way(topic, body, queue=queue, selector=selector, **fields)
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request: side by side in one queue, or not at all."""
        return self._thread.run(
            self._twin.send_batch(messages, queue=queue, selector=selector, timeout=timeout)
        )

    @contextmanager
    def transaction(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        check_after: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> Iterator[Transaction]:
        """A message that consumers see if the block around it succeeds, and only then."""
        transaction = self._twin.transaction(
            topic,
            body,
            queue=queue,
            selector=selector,
            timeout=timeout,
            check_after=check_after,
            **fields,
        )
        self._thread.run(transaction.__aenter__())
        try:
            yield transaction
        except BaseException as error:
            self._thread.run(transaction.__aexit__(type(error), error, error.__traceback__))
            raise
        self._thread.run(transaction.__aexit__(None, None, None))

    def request(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> StoredMessage:
        """Send a message and wait for the reply that its consumer makes."""
        return self._thread.run(
            self._twin.request(
                topic, body, queue=queue, selector=selector, timeout=timeout, **fields
            )
        )

    def reply(
        self,
        to: Received,
        body: Body,
        *,
        timeout: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        return self._thread.run(self._twin.reply(to, body, timeout=timeout, **fields))

    def recall(self, what: SendReceipt | str, *, timeout: float | None = None) -> str:
        """Take back a delayed message: by its receipt, or by its recall handle."""
        return self._thread.run(self._twin.recall(what, timeout=timeout))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues a send to this topic may go to now."""
        return self._thread.run(self._twin.queues(topic))

    def flush(self) -> None:
        """Wait until everything submitted so far has ended, well or not."""
        self._thread.run(self._twin.flush())
