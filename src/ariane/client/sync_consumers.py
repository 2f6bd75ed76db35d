"""The blocking twins of the consumers, and the messages that they bring.

A handler runs on threads, and what a message is told there is passed on to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, cast

from ariane.client import lite_pull_consumer as lite
from ariane.client import looping, pop_consumer, pull_consumer, push_consumer, simple_consumer
from ariane.client.blocking import Blocking, BlockingScope, blocking, on_loop
from ariane.client.received import Holder, PolledMessage
from ariane.client.received import ReceivedMessage as AsyncMessage
from ariane.client.times import Duration, renamed, seconds_of
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue


class ReceivedMessage(PolledMessage):
    """One message to consume, settled by calls that block; `with message:` settles it too."""

    __slots__ = ("handle",)

    holder: Holder
    handle: str

    @property
    def is_settled(self) -> bool:
        """Whether it has been said what became of it."""
        return self.is_done

    def ack(self) -> None:
        """Say that it has been consumed."""
        self._wait(self.holder.ack(self._awaited))

    @renamed(delay_s="delay")
    def nack(self, delay: Duration | None = None) -> None:
        """Say that it has not been consumed: deliver it again, after `delay` or as is usual."""
        self._wait(self.holder.nack(self._awaited, None if delay is None else seconds_of(delay)))

    @renamed(for_s="duration")
    def extend(self, duration: Duration | None = None) -> None:
        """Ask for more time: so much from now on, or as much again as there was."""
        for_s = None if duration is None else seconds_of(duration)
        self._wait(self.holder.extend(self._awaited, for_s))

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
        else:  # also when interrupted: cancelled is given back
            self.nack()

    @property
    def _awaited(self) -> AsyncMessage:
        """As its holder takes it, who only reads it and notes that it is done."""
        return cast("AsyncMessage", self)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        session = self.holder.session
        if session.loop is None or session.thread is None:
            work.close()
            raise ClientError("the client is closed; the message will be delivered again")
        session.thread.run(work)


def _for_threads(messages: list[AsyncMessage], owner: Any) -> list[ReceivedMessage]:
    """What a blocking client's consumers bring is settled by calls that block."""
    return cast("list[ReceivedMessage]", messages)


class PushConsumer(BlockingScope[push_consumer.PushConsumer]):
    """The blocking twin of `ariane.PushConsumer`."""

    def __init__(self, twin: push_consumer.PushConsumer, owner: Blocking[Any]) -> None:
        super().__init__(twin, owner)
        self.group = twin.group

    start = blocking(push_consumer.PushConsumer.start)
    commit = blocking(push_consumer.PushConsumer.commit)
    subscribe = on_loop(push_consumer.PushConsumer.subscribe)
    unsubscribe = on_loop(push_consumer.PushConsumer.unsubscribe)
    pause = on_loop(push_consumer.PushConsumer.pause)
    resume = on_loop(push_consumer.PushConsumer.resume)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        return self._thread.call(lambda: self._twin.queues)

    @property
    def missing_topics(self) -> list[str]:
        """Topics that are subscribed and do not exist; they are consumed once they do."""
        return self._thread.call(lambda: self._twin.missing_topics)


class PopConsumer(BlockingScope[pop_consumer.PopConsumer]):
    """The blocking twin of `ariane.PopConsumer`."""

    def __init__(self, twin: pop_consumer.PopConsumer, owner: Blocking[Any]) -> None:
        super().__init__(twin, owner)
        self.group = twin.group

    start = blocking(pop_consumer.PopConsumer.start)
    subscribe = on_loop(pop_consumer.PopConsumer.subscribe)
    unsubscribe = on_loop(pop_consumer.PopConsumer.unsubscribe)
    pause = on_loop(pop_consumer.PopConsumer.pause)
    resume = on_loop(pop_consumer.PopConsumer.resume)

    @property
    def held_count(self) -> int:
        """How many messages are lent to this member and not settled."""
        return self._thread.call(lambda: self._twin.held_count)


class Subscription(BlockingScope[looping.Subscription]):
    """Messages of a group's share, one after the other; each is to be settled by `ack` or `nack`.

    with client.subscribe("orders", group="billing") as messages:
        for message in messages:
            with message:
                ...
    """

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        try:
            return cast("ReceivedMessage", self._thread.run(self._twin.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None


class LitePullConsumer(BlockingScope[lite.LitePullConsumer]):
    """The blocking twin of `ariane.LitePullConsumer`."""

    def __init__(self, twin: lite.LitePullConsumer, owner: Blocking[Any]) -> None:
        super().__init__(twin, owner)
        self.group = twin.group

    start = blocking(lite.LitePullConsumer.start)
    poll = blocking(lite.LitePullConsumer.poll)
    commit = blocking(lite.LitePullConsumer.commit)
    committed = blocking(lite.LitePullConsumer.committed)
    assign = blocking(lite.LitePullConsumer.assign)
    queues = blocking(lite.LitePullConsumer.queues)
    seek = blocking(lite.LitePullConsumer.seek)
    seek_to_start = blocking(lite.LitePullConsumer.seek_to_start)
    seek_to_end = blocking(lite.LitePullConsumer.seek_to_end)
    seek_to_time = blocking(lite.LitePullConsumer.seek_to_time)
    position = on_loop(lite.LitePullConsumer.position)
    subscribe = on_loop(lite.LitePullConsumer.subscribe)
    unsubscribe = on_loop(lite.LitePullConsumer.unsubscribe)
    pause = on_loop(lite.LitePullConsumer.pause)
    resume = on_loop(lite.LitePullConsumer.resume)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        return self._thread.call(lambda: self._twin.assignment)


class SimpleConsumer(BlockingScope[simple_consumer.SimpleConsumer]):
    """The blocking twin of `ariane.SimpleConsumer`."""

    def __init__(self, twin: simple_consumer.SimpleConsumer, owner: Blocking[Any]) -> None:
        super().__init__(twin, owner)
        self.group = twin.group

    receive = blocking(simple_consumer.SimpleConsumer.receive, then=_for_threads)
    ack = blocking(simple_consumer.SimpleConsumer.ack)
    subscribe = on_loop(simple_consumer.SimpleConsumer.subscribe)
    unsubscribe = on_loop(simple_consumer.SimpleConsumer.unsubscribe)


class PullConsumer(Blocking[pull_consumer.PullConsumer]):
    """The blocking twin of `ariane.PullConsumer`."""

    def __init__(self, twin: pull_consumer.PullConsumer, owner: Blocking[Any]) -> None:
        super().__init__(twin, owner)
        self.group = twin.group

    queues = blocking(pull_consumer.PullConsumer.queues)
    pull = blocking(pull_consumer.PullConsumer.pull)
    read = blocking(pull_consumer.PullConsumer.read)
    position = blocking(pull_consumer.PullConsumer.position)
    seek = on_loop(pull_consumer.PullConsumer.seek)
    seek_to_time = blocking(pull_consumer.PullConsumer.seek_to_time)
    seek_to_start = blocking(pull_consumer.PullConsumer.seek_to_start)
    seek_to_end = blocking(pull_consumer.PullConsumer.seek_to_end)
    min_offset = blocking(pull_consumer.PullConsumer.min_offset)
    max_offset = blocking(pull_consumer.PullConsumer.max_offset)
    offset_at = blocking(pull_consumer.PullConsumer.offset_at)
    committed = blocking(pull_consumer.PullConsumer.committed)
    commit = blocking(pull_consumer.PullConsumer.commit)
