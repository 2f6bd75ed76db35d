"""The blocking twins of the consumers, and of the messages they bring.

A handler runs on threads, and what a message is told there is passed on to the loop's thread.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from ariane.client import consuming, lite_pull_consumer, push_consumer, simple_consumer
from ariane.client.lite_pull_consumer import POLL_S
from ariane.client.loop_thread import LoopThread
from ariane.client.pulling import COUNT_MAX
from ariane.client.received import ReceivedMessage as AsyncMessage
from ariane.client.simple_consumer import INVISIBLE_S, WAIT_S
from ariane.client.subscription import EVERYTHING
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue

T = TypeVar("T")


class ReceivedMessage(AsyncMessage):
    """One message to consume, settled by calls that block; `with message:` settles it too."""

    __slots__ = ()

    def ack(self) -> None:  # type: ignore[override]  # the same, for those who cannot await
        """Say that it has been consumed."""
        self._wait(self.holder.ack(self))

    def nack(self, delay_s: float | None = None) -> None:  # type: ignore[override]
        """Say that it has not been consumed: deliver it again, after `delay_s` or as is usual."""
        self._wait(self.holder.nack(self, delay_s))

    def extend(self, for_s: float | None = None) -> None:  # type: ignore[override]
        """Ask for more time, as much again as there was or `for_s`."""
        self._wait(self.holder.extend(self, for_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_done:
            return
        if kind is None:
            self.ack()
        elif issubclass(kind, Exception):
            self.nack()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        loop = self.holder.session.loop
        if loop is None:
            work.close()
            raise ClientError("the client is closed; the message will be delivered again")
        asyncio.run_coroutine_threadsafe(work, loop).result()


class _Twin(ABC):
    """What all blocking consumers share."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def _on_loop(self, work: Any, *arguments: Any, **named: Any) -> Any:
        """Call a plain function where its tables may be touched."""

        async def call() -> Any:
            return work(*arguments, **named)

        return self._thread.run(call())


class PushConsumer(_Twin):
    """The blocking twin of `ariane.client.PushConsumer`."""

    def __init__(self, twin: push_consumer.PushConsumer, thread: LoopThread) -> None:
        super().__init__(thread)
        self._twin = twin
        self.group = twin.group

    def __enter__(self) -> Self:
        self.start()
        return self

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Consume the topic too, or with another filter."""
        self._on_loop(self._twin.subscribe, topic, tags=tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Consume the topic no more."""
        self._on_loop(self._twin.unsubscribe, topic)

    def start(self) -> None:
        """Join the group and begin."""
        self._thread.run(self._twin.start())

    def close(self) -> None:
        """Begin nothing more, let handlers end, commit, and leave the group."""
        self._thread.run(self._twin.close())

    def pause(self) -> None:
        """Pull no more until `resume`."""
        self._on_loop(self._twin.pause)

    def resume(self) -> None:
        """Pull again."""
        self._on_loop(self._twin.resume)

    def commit(self) -> None:
        """Keep the progress made so far."""
        self._thread.run(self._twin.commit())

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        return cast("list[MessageQueue]", self._on_loop(lambda: self._twin.queues))


class Subscription(_Twin):
    """Messages of a group's share, one after the other, for a `for` loop."""

    def __init__(self, twin: consuming.Subscription, thread: LoopThread) -> None:
        super().__init__(thread)
        self._twin = twin

    def __enter__(self) -> Self:
        self._thread.run(self._twin.__aenter__())
        return self

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        try:
            return cast("ReceivedMessage", self._thread.run(self._twin.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Commit what was settled and leave the group; the loop ends."""
        self._thread.run(self._twin.close())


class LitePullConsumer(_Twin):
    """The blocking twin of `ariane.client.lite_pull_consumer.LitePullConsumer`."""

    def __init__(self, twin: lite_pull_consumer.LitePullConsumer, thread: LoopThread) -> None:
        super().__init__(thread)
        self._twin = twin
        self.group = twin.group

    def __enter__(self) -> Self:
        self.start()
        return self

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Read the group's share of the topic too, or with another filter."""
        self._on_loop(self._twin.subscribe, topic, tags=tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Read the topic no more."""
        self._on_loop(self._twin.unsubscribe, topic)

    def assign(
        self, queues: Iterable[MessageQueue], *, tags: str = EVERYTHING, sql: str | None = None
    ) -> None:
        """Read exactly these queues, whatever the group does."""
        self._thread.run(self._twin.assign(queues, tags=tags, sql=sql))

    def start(self) -> None:
        """Join the group and begin."""
        self._thread.run(self._twin.start())

    def close(self) -> None:
        """Commit what was polled, unless that is the caller's business, and leave the group."""
        self._thread.run(self._twin.close())

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        return cast("list[MessageQueue]", self._on_loop(lambda: self._twin.assignment))

    def poll(
        self, timeout_s: float = POLL_S, *, count_max: int = COUNT_MAX
    ) -> list[ReceivedMessage]:
        """Messages that are there, or the first to come; none when the time is up."""
        polled = self._thread.run(self._twin.poll(timeout_s, count_max=count_max))
        return cast("list[ReceivedMessage]", polled)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell the brokers how far the group has got."""
        self._thread.run(self._twin.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has got by its own word, or None when it has not said."""
        return self._thread.run(self._twin.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """Where the next poll of this queue goes on."""
        return cast("int", self._on_loop(self._twin.position, queue))

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on at this offset."""
        self._thread.run(self._twin.seek(queue, queue_offset))

    def seek_to_start(self, queue: MessageQueue) -> int:
        """Go on at the oldest message."""
        return self._thread.run(self._twin.seek_to_start(queue))

    def seek_to_end(self, queue: MessageQueue) -> int:
        """Go on after the newest message."""
        return self._thread.run(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, moment_ms: int) -> int:
        """Go on at the first message stored at this moment or later."""
        return self._thread.run(self._twin.seek_to_time(queue, moment_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor poll these queues."""
        self._on_loop(self._twin.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and poll these queues again."""
        self._on_loop(self._twin.resume, queues)

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic that may be read now."""
        return self._thread.run(self._twin.queues(topic))


class SimpleConsumer(_Twin):
    """The blocking twin of `ariane.client.simple_consumer.SimpleConsumer`."""

    def __init__(self, twin: simple_consumer.SimpleConsumer, thread: LoopThread) -> None:
        super().__init__(thread)
        self._twin = twin
        self.group = twin.group

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Receive messages of the topic too, or with another filter."""
        self._on_loop(self._twin.subscribe, topic, tags=tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Receive messages of the topic no more."""
        self._on_loop(self._twin.unsubscribe, topic)

    def close(self) -> None:
        """Leave the group; what was received may still be acknowledged."""
        self._thread.run(self._twin.close())

    def receive(
        self,
        count_max: int = COUNT_MAX,
        *,
        invisible_s: float = INVISIBLE_S,
        wait_s: float = WAIT_S,
    ) -> list[ReceivedMessage]:
        """Up to so many messages, lent for `invisible_s`; none when none came within `wait_s`."""
        received = self._thread.run(
            self._twin.receive(count_max, invisible_s=invisible_s, wait_s=wait_s)
        )
        return cast("list[ReceivedMessage]", received)

    def ack(self, messages: Sequence[ReceivedMessage]) -> None:
        """Say that these have been consumed."""
        self._thread.run(self._twin.ack(messages))
