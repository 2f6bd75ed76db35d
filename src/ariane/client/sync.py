"""The same client for code that blocks: one event loop on a thread of its own does the work.

Every call here is its asyncio twin, run on that loop and waited for; nothing is implemented twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from ariane.client import admin, client, producer, pull_consumer
from ariane.client.admin import FOREVER_MS, QUEUE_COUNT, QueueStats
from ariane.client.messages import Message, SendReceipt
from ariane.client.producer import DEFAULT_GROUP, SEND_TIMEOUT_S
from ariane.client.pull_consumer import COUNT_MAX, EVERYTHING, Pulled
from ariane.client.queues import Selector
from ariane.client.routes import Address, TopicRoute
from ariane.codes import Permission
from ariane.errors import ClientError
from ariane.protocol.bodies import ClusterInfo, MessageQueue
from ariane.protocol.message import StoredMessage
from ariane.topics import TOOLS_GROUP

T = TypeVar("T")


class LoopThread:
    """An event loop that runs on its own thread until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ariane-client", daemon=True
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether work is still taken."""
        return not self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work; the future is this thread's to wait on or to cancel."""
        if not self.is_running:
            work.close()
            raise ClientError("the client is closed; make a new one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # an interrupted caller must not leave the work running
            future.cancel()
            raise

    def stop(self) -> None:
        """Take no more work, and end the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Client:
    """The blocking twin of `ariane.Client`.

    with Client("127.0.0.1:9876") as client:
        client.send("orders", b"...", tags="paid", keys=["42"])
    """

    def __init__(self, name_servers: str) -> None:
        self._client = client.Client(name_servers)
        self._thread = LoopThread()
        self._thread.run(self._client.open())
        self.admin = Admin(self._client.admin, self._thread)

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
        """Take leave of the brokers and end the loop and its thread; may be called again."""
        if self._thread.is_running:
            self._thread.run(self._client.close())
            self._thread.stop()

    def producer(self, group: str = DEFAULT_GROUP, *, retries: int = 2) -> Producer:
        """A producer of the group."""

        async def make() -> producer.Producer:
            return self._client.producer(group, retries=retries)

        return Producer(self._thread.run(make()), self._thread)

    def pull_consumer(self, group: str = TOOLS_GROUP) -> PullConsumer:
        """A reader of queues; without a group one that only looks."""

        async def make() -> pull_consumer.PullConsumer:
            return self._client.pull_consumer(group)

        return PullConsumer(self._thread.run(make()), self._thread)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> SendReceipt:
        """Send one message with the default producer."""
        return self._thread.run(
            self._client.send(
                topic, body, tags=tags, keys=keys, properties=properties, timeout_s=timeout_s
            )
        )


class Producer:
    """The blocking twin of `ariane.client.Producer`."""

    def __init__(self, twin: producer.Producer, thread: LoopThread) -> None:
        self._twin = twin
        self._thread = thread
        self.group = twin.group

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> SendReceipt:
        """Send and wait until a broker has it."""
        return self.submit(message, queue=queue, selector=selector, timeout_s=timeout_s).result()

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> Future[SendReceipt]:
        """Send without waiting; the future ends with the receipt or the error."""
        return self._thread.submit(
            self._twin.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> SendReceipt:
        """Send messages of one topic in one request, next to each other in one queue."""
        return self._thread.run(
            self._twin.send_batch(messages, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without an answer; nobody will tell whether it was stored."""
        self._thread.run(self._twin.send_one_way(message, queue=queue, selector=selector))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues a send to this topic may go to now."""
        return self._thread.run(self._twin.queues(topic))


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


class Admin:
    """The blocking twin of `ariane.client.Admin`."""

    def __init__(self, twin: admin.Admin, thread: LoopThread) -> None:
        self._twin = twin
        self._thread = thread

    def cluster(self) -> ClusterInfo:
        """All brokers that a name server knows, and the clusters they form."""
        return self._thread.run(self._twin.cluster())

    def broker_facts(self, address: Address) -> dict[str, str]:
        """What a broker tells of itself."""
        return self._thread.run(self._twin.broker_facts(address))

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._thread.run(self._twin.topics())

    def system_topics(self) -> set[str]:
        """Topics that exist for clusters and brokers rather than for users."""
        return self._thread.run(self._twin.system_topics())

    def topic_route(self, topic: str) -> TopicRoute:
        """Where the topic's queues are, asked anew."""
        return self._thread.run(self._twin.topic_route(topic))

    def create_topic(
        self,
        topic: str,
        *,
        write_queue_count: int = QUEUE_COUNT,
        read_queue_count: int | None = None,
        permission: int = Permission.READ | Permission.WRITE,
        cluster: str | None = None,
    ) -> list[str]:
        """Create the topic, or change it, on every broker; returns the brokers' names."""
        return self._thread.run(
            self._twin.create_topic(
                topic,
                write_queue_count=write_queue_count,
                read_queue_count=read_queue_count,
                permission=permission,
                cluster=cluster,
            )
        )

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete the topic and its messages on every broker; returns the brokers' names."""
        return self._thread.run(self._twin.delete_topic(topic, cluster=cluster))

    def topic_stats(self, topic: str) -> list[QueueStats]:
        """What each queue of the topic holds, by broker and number."""
        return self._thread.run(self._twin.topic_stats(topic))

    def message(self, offset_message_id: str) -> StoredMessage:
        """The message at the place that its offset id names."""
        return self._thread.run(self._twin.message(offset_message_id))

    def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 32,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
    ) -> list[StoredMessage]:
        """Messages sent with the key, oldest first."""
        return self._thread.run(
            self._twin.find(topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        )

    def find_by_id(self, topic: str, message_id: str) -> list[StoredMessage]:
        """The message with the id its producer gave it; more than one if it was sent again."""
        return self._thread.run(self._twin.find_by_id(topic, message_id))
