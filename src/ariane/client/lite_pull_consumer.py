"""A consumer that is asked for messages: its queues are pulled ahead, the caller polls.

Queues are either the group's share (`subscribe`) or the caller's choice (`assign`). With
`auto_commit` what a poll brought counts as consumed when the next poll begins, and is committed
every five seconds; without it only `commit` tells the brokers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, cast

from ariane.client.closing import Closing
from ariane.client.consumers import Registry
from ariane.client.inspection import running_info
from ariane.client.lite_reading import LiteReader, Shelf
from ariane.client.membership import Membership
from ariane.client.offset_stores import RemoteOffsets
from ariane.client.process_queue import Limits
from ariane.client.pulling import COUNT_MAX, Puller
from ariane.client.rebalance import Average, Strategy
from ariane.client.received import PolledMessage, ReceivedMessage
from ariane.client.session import Session
from ariane.client.starting import Start, first_position
from ariane.client.subscription import (
    EVERYTHING,
    Filter,
    filter_of,
    subscription_of,
)
from ariane.client.times import Duration, milliseconds_of, renamed, seconds_of
from ariane.clock import Timer
from ariane.errors import ArianeError, ClientError, InvalidArgument
from ariane.protocol.bodies import ConsumerData, MessageQueue
from ariane.protocol.bodies.consumers import RunningInfo
from ariane.topics import group_fault, topic_fault

COMMIT_S: Final = 5.0
POLL_S: Final = 5.0

log = logging.getLogger("ariane.client")


class LitePullConsumer:
    """Polls queues for one consumer group; made by `Client.lite_pull_consumer`."""

    is_orderly = False
    message_kind = ReceivedMessage  # which no broker can have it consume

    def __init__(
        self,
        session: Session,
        registry: Registry,
        group: str,
        *,
        auto_commit: bool = True,
        start: Start = Start.LAST,
        strategy: Strategy | None = None,
        limits: Limits | None = None,
    ) -> None:
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        self.group = group
        self._session = session
        self._registry = registry
        self._auto_commit = auto_commit
        self._start = start
        self._store = RemoteOffsets(session, group)
        kind = cast("type[ReceivedMessage]", PolledMessage)  # which nobody here settles
        self._puller = Puller(session, group, is_lite=True, message_kind=kind)
        self._filters: dict[str, tuple[Filter, int]] = {}
        self._topics: set[str] = set()  # subscribed, rather than assigned
        self._readers: dict[MessageQueue, LiteReader] = {}
        self._ready = asyncio.Event()
        self._shelf = Shelf(
            session=session,
            puller=self._puller,
            limits=limits or Limits(),
            filters=self._filters,
            on_ready=self._ready.set,
            on_moved=lambda queue, offset: self.reset({queue: offset}),
        )
        self._membership = Membership(
            session,
            group,
            strategy=strategy or Average(),
            is_broadcast=False,
            topics=lambda: self._topics,
            on_share=self._take_share,
        )
        self._turn = itertools.count()
        self._timers: list[Timer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_at_ms = 0
        self._is_started = False
        self._closing = Closing(
            self._membership.stop, self._end_tasks, self._give_up_queues, self._leave
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._count_polled()
        await self.close()

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Read the group's share of the topic too, or with another filter."""
        if self._readers and not self._topics:
            raise ClientError("queues have been assigned; a consumer is subscribed or assigned")
        self._want(topic, filter_of(tags=tags, sql=sql))
        self._topics.add(topic)
        self._changed()

    def unsubscribe(self, topic: str) -> None:
        """Read the topic no more."""
        if topic in self._topics:
            self._topics.discard(topic)
            self._filters.pop(topic, None)
            self._changed()
            self._count_polled()
            self._spawn(self._keep_only([q for q in self._readers if q.topic != topic]))

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        tags: str = EVERYTHING,
        sql: str | None = None,
    ) -> None:
        """Read exactly these queues, whatever the group does."""
        if self._topics:
            raise ClientError("topics have been subscribed; a consumer is subscribed or assigned")
        self._check_started()
        chosen = list(queues)
        wanted = filter_of(tags=tags, sql=sql)
        for topic in {queue.topic for queue in chosen}:
            self._want(topic, wanted)
        self._changed()
        self._count_polled()
        await self._keep_only(chosen)
        for queue in chosen:
            if queue not in self._readers:
                await self._take(queue)

    async def start(self) -> None:
        """Join the group and begin."""
        if self._is_started:
            raise ClientError("the consumer has been started before; make a new one")
        self._is_started = True
        await self._registry.add(self)
        if self.is_closing:  # while another consumer of the group was still leaving
            self._registry.remove(self)
            raise ClientError("the consumer was closed before it had begun")
        self._session.before_close.append(self.close)
        self._started_at_ms = self._session.clock.wall_ms()
        self._session.set_consumer(self._data())
        try:
            await self._membership.meet(list(self._topics))
            self._refuse_if_closing()
            await self._membership.start()
            self._refuse_if_closing()
        except BaseException:
            await self.close()
            raise
        if self._auto_commit:
            timer = self._session.timers.every(COMMIT_S, lambda: self._spawn(self._commit_polled()))
            self._timers.append(timer)

    async def close(self) -> None:
        """Commit what the polls before the last one brought, if that is ours, and leave.

        May be called again; goes on to its end when its caller is cancelled.
        """
        for timer in self._timers:
            timer.cancel()
        await self._closing.end()

    @property
    def is_closing(self) -> bool:
        """Whether it has been closed, or is about to be."""
        return self._closing.has_begun

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        return sorted(self._readers)

    @renamed(timeout_s="timeout")
    async def poll(
        self, timeout: Duration = POLL_S, *, count_max: int = COUNT_MAX
    ) -> list[PolledMessage]:
        """Messages that are there, or the first to come; none when the time is up."""
        timeout_s = seconds_of(timeout)
        self._check_started()
        self._count_polled()
        await asyncio.sleep(0)  # who polls without a pause must not keep pulls from going on
        if not self._any_ready() and timeout_s > 0:
            await self._wait(timeout_s)
        polled: list[PolledMessage] = []
        readers = [reader for reader in self._readers.values() if reader.has_some()]
        first = next(self._turn) % len(readers) if readers else 0
        for reader in readers[first:] + readers[:first]:
            polled += reader.poll(count_max - len(polled))
        return polled

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell the brokers how far the group has got: to what was polled, or to these offsets."""
        if offsets is None:
            offsets = {queue: reader.position for queue, reader in self._readers.items()}
        await self._store.write(offsets, wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has got by its own word, or None when it has not said."""
        return await self._store.committed(queue)

    def position(self, queue: MessageQueue) -> int:
        """Where the next poll of this queue goes on."""
        return self._reader(queue).position

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on at this offset."""
        reader = self._reader(queue)
        first, end = await asyncio.gather(
            self._puller.min_offset(queue), self._puller.max_offset(queue)
        )
        if not first <= queue_offset <= end:
            raise InvalidArgument(
                f"offset {queue_offset} lies outside the queue's {first} to {end}"
            )
        await reader.seek(queue_offset)

    async def seek_to_start(self, queue: MessageQueue) -> int:
        """Go on at the oldest message."""
        return await self._seek(queue, await self._puller.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> int:
        """Go on after the newest message."""
        return await self._seek(queue, await self._puller.max_offset(queue))

    @renamed(moment_ms="moment")
    async def seek_to_time(self, queue: MessageQueue, moment: datetime) -> int:
        """Go on at the first message stored at this moment or later."""
        moment_ms = milliseconds_of(moment)
        return await self._seek(queue, await self._puller.offset_at(queue, moment_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor poll these queues."""
        for queue in queues:
            self._reader(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and poll these queues again."""
        for queue in queues:
            self._reader(queue).resume()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic that may be read now."""
        return list((await self._session.routes.for_reading(topic)).readable)

    def _refuse_if_closing(self) -> None:
        if self.is_closing:
            raise ClientError("the consumer was closed before it had begun")

    # What brokers ask and say.

    def rebalance(self) -> None:
        """Work out as soon as may be which queues to read."""
        self._membership.hurry()

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere in those of the queues that are read here."""
        for queue, offset in offsets.items():
            if queue in self._readers:
                self._spawn(self._go_on_at(queue, offset))

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far each queue of the topic has been polled."""
        readers = self._readers.items()
        return {queue: reader.position for queue, reader in readers if queue.topic == topic}

    def running_info(self, *, with_stacks: bool = False) -> RunningInfo:
        """What the consumer is doing."""
        return running_info(
            self._session,
            queues=[reader.process for reader in self._readers.values()],
            statistics={},
            subscriptions=self._data().subscriptions,
            is_orderly=False,
            started_at_ms=self._started_at_ms,
            consume_type="CONSUME_ACTIVELY",
            with_stacks=with_stacks,
        )

    async def consume_directly(self, message: ReceivedMessage) -> None:
        """Cannot be done: there is no handler."""
        raise ClientError("this consumer has no handler; its messages are polled")

    # Below: how it is done.

    async def _end_tasks(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give_up_queues(self) -> None:
        offsets = {queue: reader.consumed for queue, reader in self._readers.items()}
        readers = list(self._readers.values())
        self._readers.clear()
        self._ready.set()
        await asyncio.gather(*(reader.close() for reader in readers))
        if self._auto_commit:
            await self._store.write(offsets, wait=True)

    async def _leave(self) -> None:
        if self._registry.has(self):  # else the group is another consumer's
            try:
                await self._session.remove_consumer(self.group)
            finally:
                self._registry.remove(self)
                self._session.forget_close(self.close)

    def _want(self, topic: str, wanted: Filter) -> None:
        if fault := topic_fault(topic):
            raise InvalidArgument(fault)
        self._filters[topic] = (wanted, self._session.clock.wall_ms())

    def _changed(self) -> None:
        if self._is_started and not self.is_closing:
            self._session.add_consumer(self._data())
            self._membership.forget_brokers()
            self._membership.hurry()

    def _data(self) -> ConsumerData:
        return ConsumerData(
            group=self.group,
            consume_from_where=self._start.where,
            consume_type="CONSUME_ACTIVELY",
            subscriptions=[
                subscription_of(topic, wanted, version)
                for topic, (wanted, version) in self._filters.items()
            ],
        )

    def _check_started(self) -> None:
        if not self._is_started or self.is_closing:
            raise ClientError("the consumer is not running; start it, or use `async with`")

    def _reader(self, queue: MessageQueue) -> LiteReader:
        reader = self._readers.get(queue)
        if reader is None:
            raise ClientError(f"{queue} is not read here now; see `assignment`")
        return reader

    def _any_ready(self) -> bool:
        return any(reader.has_some() for reader in self._readers.values())

    async def _wait(self, timeout_s: float) -> None:
        timer = self._session.timers.after(timeout_s, self._ready.set)
        try:
            while not self._any_ready() and not self.is_closing:
                self._ready.clear()
                if timer.due_s <= self._session.clock.monotonic_s():
                    return
                await self._ready.wait()
        finally:
            timer.cancel()

    def _count_polled(self) -> None:
        """The caller asks for something else, so it is done with what it has polled."""
        for reader in self._readers.values():
            reader.consumed = reader.position

    async def _take_share(self, topic: str, queues: Sequence[MessageQueue]) -> bool:
        others = [queue for queue in self._readers if queue.topic != topic]
        await self._keep_only([*others, *queues])
        taken = [await self._take(queue) for queue in queues if queue not in self._readers]
        return all(taken)

    async def _keep_only(self, queues: Iterable[MessageQueue]) -> None:
        for queue in set(self._readers) - set(queues):
            reader = self._readers.pop(queue)
            await reader.close()
            if self._auto_commit:
                await self._store.write({queue: reader.consumed}, wait=True)
            self._store.forget(queue)
            self._puller.forget(queue)

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            position = await first_position(self._start, queue, self._store, self._puller)
        except ArianeError as error:
            log.warning("queue not taken group=%s queue=%s: %s", self.group, queue, error)
            if not self._topics:
                raise
            return False
        if not self.is_closing and queue not in self._readers:
            self._readers[queue] = LiteReader(self._shelf, queue, position)
            self._readers[queue].start()
        return True

    async def _seek(self, queue: MessageQueue, position: int) -> int:
        await self._reader(queue).seek(position)
        return position

    async def _go_on_at(self, queue: MessageQueue, offset: int) -> None:
        log.warning("offset moved group=%s queue=%s to=%d", self.group, queue, offset)
        await self._store.write({queue: offset}, wait=True)
        if queue in self._readers:
            await self._readers[queue].seek(offset)

    async def _commit_polled(self) -> None:
        await self._store.write({queue: reader.consumed for queue, reader in self._readers.items()})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("consumer failed group=%s", self.group, exc_info=error)
