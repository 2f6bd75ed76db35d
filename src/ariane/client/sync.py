"""The same client for code that blocks: one event loop on a thread of its own does the work.

Every call here is its asyncio twin, run on that loop and waited for; nothing is implemented twice.
Any thread may use a client. In a forked child it opens again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, Unpack

from ariane.client import client, producer, pull_consumer
from ariane.client.direct import DirectLines
from ariane.client.loop_thread import LoopThread
from ariane.client.messages import Body, Duration, Message, MessageFields, SendReceipt
from ariane.client.producer import DEFAULT_GROUP
from ariane.client.pull_consumer import COUNT_MAX, EVERYTHING, Pulled
from ariane.client.queues import Selector
from ariane.client.requests import Received
from ariane.client.settings import SendOptions
from ariane.client.sync_admin import Admin
from ariane.client.sync_consumers import (
    LitePullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    Subscription,
)
from ariane.client.sync_consuming import Consuming
from ariane.client.sync_producer import Producer
from ariane.client.transactions import Decision, Transaction
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.message import StoredMessage
from ariane.topics import TOOLS_GROUP

__all__ = [
    "Admin",
    "Client",
    "LitePullConsumer",
    "LoopThread",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "SimpleConsumer",
    "Subscription",
]

BlockingChecker = Callable[[StoredMessage], Decision]


class Client(Consuming):
    """The blocking twin of `ariane.Client`.

    with Client("127.0.0.1:9876") as client:
        client.send("orders", b"...", tags="paid", keys="42")
    """

    def __init__(
        self,
        name_servers: str,
        *,
        group: str = DEFAULT_GROUP,
        **options: Unpack[SendOptions],
    ) -> None:
        self._client = client.Client(name_servers, group=group, **options)
        self._clock = self._client.session.clock
        self._thread = LoopThread()
        self._lines = DirectLines(self._clock)
        twin = self._client.producer(group)  # before it opens: nobody need hear of it yet
        self._producer = Producer(twin, self._thread, self._clock, self._lines)
        self.admin = Admin(self._client.admin, self._thread)
        self._thread.run(self._client.open())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what is under way, take leave of the brokers, and end the loop and its thread.

        May be called again.
        """
        if self._thread.is_running:
            self._thread.run(self._client.close())
            self._thread.stop()
            self._lines.close()

    # Sending. Each is the method of `Producer`, for this client's own group.

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
        return self._producer.send(
            topic, body, queue=queue, selector=selector, timeout=timeout, **fields
        )

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
        return self._producer.submit(
            topic, body, queue=queue, selector=selector, timeout=timeout, **fields
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
        self._producer.send_one_way(topic, body, queue=queue, selector=selector, **fields)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request: side by side in one queue, or not at all."""
        return self._producer.send_batch(messages, queue=queue, selector=selector, timeout=timeout)

    def transaction(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        group: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        check_after: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> AbstractContextManager[Transaction]:
        """A message that consumers see if the block around it succeeds, and only then."""
        own = self._producer if group is None else self.producer(group)
        return own.transaction(
            topic,
            body,
            queue=queue,
            selector=selector,
            timeout=timeout,
            check_after=check_after,
            **fields,
        )

    def checker(self, group: str) -> Callable[[BlockingChecker], BlockingChecker]:
        """Let the function below answer what became of the group's transactions.

        It runs on a thread of its own, is given the message and returns True to commit, False to
        roll back, None when it cannot tell yet.
        """

        def register(checker: BlockingChecker) -> BlockingChecker:
            async def check(message: StoredMessage) -> Decision:
                return await asyncio.to_thread(checker, message)

            async def add() -> None:
                self._client.checker(group)(check)

            self._thread.run(add())
            return checker

        return register

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
        return self._producer.request(
            topic, body, queue=queue, selector=selector, timeout=timeout, **fields
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
        return self._producer.reply(to, body, timeout=timeout, **fields)

    def recall(self, what: SendReceipt | str, *, timeout: float | None = None) -> str:
        """Take back a delayed message: by its receipt, or by its recall handle."""
        return self._producer.recall(what, timeout=timeout)

    def producer(self, group: str = DEFAULT_GROUP, **options: Unpack[SendOptions]) -> Producer:
        """A producer of another group, or with other options than this client has."""

        async def make() -> producer.Producer:
            return self._client.producer(group, **options)

        return Producer(self._thread.run(make()), self._thread, self._clock, self._lines)

    # Reading.

    def pull_consumer(self, group: str = TOOLS_GROUP) -> PullConsumer:
        """A reader of queues; without a group one that only looks."""

        async def make() -> pull_consumer.PullConsumer:
            return self._client.pull_consumer(group)

        return PullConsumer(self._thread.run(make()), self._thread)


class PullConsumer:
    """The blocking twin of `ariane.client.PullConsumer`."""

    def __init__(self, twin: pull_consumer.PullConsumer, thread: LoopThread) -> None:
        self._twin = twin
        self._thread = thread
        self.group = twin.group

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic that may be read now."""
        return self._thread.run(self._twin.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        *,
        tags: str = EVERYTHING,
        count_max: int = COUNT_MAX,
        wait_s: float = 0.0,
    ) -> Pulled:
        """Take messages from the queue's position on, and move it past them."""
        return self._thread.run(
            self._twin.pull(queue, tags=tags, count_max=count_max, wait_s=wait_s)
        )

    def read(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        tags: str = EVERYTHING,
        count_max: int = COUNT_MAX,
        wait_s: float = 0.0,
    ) -> Pulled:
        """Read from an offset on, waiting up to `wait_s` for the first message to arrive."""
        return self._thread.run(
            self._twin.read(queue, queue_offset, tags=tags, count_max=count_max, wait_s=wait_s)
        )

    def position(self, queue: MessageQueue) -> int:
        """Where the next pull of this queue starts."""
        return self._thread.run(self._twin.position(queue))

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Let the next pull start at this offset."""

        async def seek() -> None:
            self._twin.seek(queue, queue_offset)

        self._thread.run(seek())

    def seek_to_time(self, queue: MessageQueue, moment_ms: int) -> int:
        """Let the next pull start at the first message stored at this moment or later."""
        return self._thread.run(self._twin.seek_to_time(queue, moment_ms))

    def seek_to_start(self, queue: MessageQueue) -> int:
        """Let the next pull start at the oldest message."""
        return self._thread.run(self._twin.seek_to_start(queue))

    def seek_to_end(self, queue: MessageQueue) -> int:
        """Let the next pull start after the newest message."""
        return self._thread.run(self._twin.seek_to_end(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return self._thread.run(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._thread.run(self._twin.max_offset(queue))

    def offset_at(self, queue: MessageQueue, moment_ms: int) -> int:
        """The offset of the first message stored at this moment or later."""
        return self._thread.run(self._twin.offset_at(queue, moment_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has got by its own word, or None when it has not said."""
        return self._thread.run(self._twin.committed(queue))

    def commit(self, queue: MessageQueue, consume_offset: int | None = None) -> None:
        """Tell the broker how far the group has got."""
        self._thread.run(self._twin.commit(queue, consume_offset))
