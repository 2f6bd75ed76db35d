"""A member of a consumer group that has messages brought to it as they arrive.

It takes part in the group (`membership.py`), reads the queues that are its share (`reading.py`)
and has their messages consumed (`delivery.py`). Progress is committed every five seconds, along
with pulls, and when a queue or the consumer goes; a message counts as consumed only once its
handler has returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ariane.client.consumers import Registry
from ariane.client.delivery import Delivery
from ariane.client.inspection import offsets_of, running_info
from ariane.client.locks import RENEW_S, QueueLocks
from ariane.client.membership import Membership
from ariane.client.offset_stores import OffsetStore, RemoteOffsets
from ariane.client.process_queue import Limits
from ariane.client.pulling import Puller
from ariane.client.reading import DeadLetterHook, Desk, Reader
from ariane.client.rebalance import Average, Strategy
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry, SendBack
from ariane.client.session import Session
from ariane.client.starting import Start, first_position
from ariane.client.statistics import SAMPLE_S
from ariane.client.subscription import EVERYTHING, SQL92, Filter, filter_of, subscription_of
from ariane.clock import Timer
from ariane.codes import RequestCode
from ariane.errors import ArianeError, ClientError
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    CheckClientRequest,
    ConsumerData,
    MessageQueue,
    SubscriptionData,
)
from ariane.protocol.bodies.clients import BROADCASTING, CLUSTERING
from ariane.protocol.bodies.consumers import RunningInfo
from ariane.protocol.command import request
from ariane.topics import RETRY_PREFIX, group_fault, retry_topic_of, topic_fault

COMMIT_S: Final = 5.0
STUCK_CHECK_S: Final = 60.0
STUCK_DELAY_S: Final = 10.0

log = logging.getLogger("ariane.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a group is consumed; all its members should have the same."""

    orderly: bool = False  # one message of a queue at a time, in its order
    broadcast: bool = False  # every member gets every message, and none again
    start: Start = Start.LAST
    retry: Retry = field(default_factory=Retry)
    dead_letter: DeadLetterHook | None = None  # called with what was given up
    strategy: Strategy = field(default_factory=Average)
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 900.0  # a message that takes longer is sent back
    drain_s: float = 30.0  # that handlers have to end when the consumer closes
    offsets_directory: Path | None = None  # of a broadcast's progress; in the home by default


class PushConsumer:
    """Consumes topics as a member of a group; made by `Client.push_consumer`."""

    def __init__(
        self,
        session: Session,
        registry: Registry,
        group: str,
        delivery: Delivery,
        options: ConsumerOptions,
    ) -> None:
        if fault := group_fault(group):
            raise ClientError(fault)
        self.group = group
        self.options = options
        self.session = session
        self.started_at_ms = 0
        self._registry = registry
        self._readers: dict[MessageQueue, Reader] = {}
        self._locks = QueueLocks(session, group)
        self._store: OffsetStore = RemoteOffsets(session, group)
        self._membership = Membership(
            session,
            group,
            strategy=options.strategy,
            is_broadcast=options.broadcast,
            topics=lambda: self._desk.filters,
            on_share=self._take_share,
        )
        self._desk = Desk(
            session=session,
            group=group,
            puller=Puller(session, group),
            delivery=delivery,
            membership=self._membership,
            send_back=SendBack(session, group, options.retry),
            limits=options.limits,
            timeout_s=options.timeout_s,
            is_orderly=options.orderly,
            is_broadcast=options.broadcast,
            on_moved=self._moved,
            on_dead=options.dead_letter,
            filters={},
        )
        self._timers: list[Timer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Consume the topic too, or with another filter: tags (`a || b`) or an SQL92 expression."""
        if fault := topic_fault(topic):
            raise ClientError(fault)
        self._subscribe(topic, filter_of(tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Consume the topic no more."""
        if self._desk.filters.pop(topic, None) is not None:
            self._changed()
            for queue, reader in list(self._readers.items()):
                if queue.topic == topic:
                    self._spawn(self._give_up(reader))

    async def start(self) -> None:
        """Join the group and begin; raises ClientError when a broker refuses the subscription."""
        if self._is_started:
            raise ClientError("the consumer has been started before; make a new one")
        if not self._desk.filters:
            raise ClientError("the consumer has no topic; subscribe it to one")
        self._is_started = True
        if self.options.broadcast:
            from ariane.client.local_offsets import local_offsets  # noqa: PLC0415 - rarely needed

            self._store = local_offsets(self.group, self.options.offsets_directory)
        else:
            self._subscribe(retry_topic_of(self.group), filter_of())
        self._registry.add(self)
        self.session.before_close.append(self.close)
        self.started_at_ms = self.session.clock.wall_ms()
        self.session.set_consumer(self._data())
        try:
            await self._membership.meet(list(self._desk.filters))
            await self._check_expressions()
        except BaseException:
            await self.close()
            raise
        self._desk.delivery.start()
        self._desk.may_pull.set()
        self._membership.start()
        self._schedule()

    async def close(self) -> None:
        """Begin nothing more, let handlers end, commit, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        await self._membership.stop()
        await asyncio.gather(*(reader.stop_pulling() for reader in self._readers.values()))
        await self._drain()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        readers = list(self._readers.values())
        self._readers.clear()
        offsets = {reader.queue: reader.process.drop() for reader in readers}
        await self._store.write(offsets, wait=True)
        await self._locks.unlock(self._locks.held)
        await self.session.remove_consumer(self.group)
        self._registry.remove(self)

    def pause(self) -> None:
        """Pull no more until `resume`; what was pulled is still consumed."""
        self._desk.may_pull.clear()

    def resume(self) -> None:
        """Pull again."""
        self._desk.may_pull.set()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        return sorted(queue for queue in self._readers if not queue.topic.startswith(RETRY_PREFIX))

    @property
    def is_orderly(self) -> bool:
        """Whether the order of queues is kept."""
        return self.options.orderly

    def subscriptions(self) -> list[SubscriptionData]:
        """What is wanted of each topic, as brokers hear of it."""
        return [
            subscription_of(topic, wanted, version)
            for topic, (wanted, version) in self._desk.filters.items()
        ]

    def rebalance(self) -> None:
        """Work out as soon as may be which queues to read."""
        self._membership.hurry()

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere in those of the queues that are read here."""
        for queue, offset in offsets.items():
            reader = self._readers.get(queue)
            if reader is not None and not reader.is_leaving:
                self._moved(reader, offset)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far each queue of the topic that is read here has been consumed."""
        return offsets_of((reader.process for reader in self._readers.values()), topic)

    def running_info(self, *, with_stacks: bool = False) -> RunningInfo:
        """What the consumer is doing."""
        return running_info(
            self.session,
            queues=[reader.process for reader in self._readers.values()],
            statistics=self._desk.statistics,
            subscriptions=self.subscriptions(),
            is_orderly=self.options.orderly,
            started_at_ms=self.started_at_ms,
            with_stacks=with_stacks,
        )

    async def consume_directly(self, message: ReceivedMessage) -> None:
        """Have one message consumed now, whatever waits; raises what its handler raises."""
        await self._desk.delivery.call(message)

    async def commit(self) -> None:
        """Keep the progress made so far."""
        now_s = self.session.clock.monotonic_s()
        await self._store.write(
            {
                queue: reader.process.watch(now_s=now_s)
                for queue, reader in self._readers.items()
                if not reader.process.is_dropped
            }
        )

    # Subscriptions.

    def _subscribe(self, topic: str, wanted: Filter) -> None:
        self._desk.filters[topic] = (wanted, self.session.clock.wall_ms())
        self._changed()

    def _changed(self) -> None:
        if self._is_started and not self._is_closed:
            self.session.set_consumer(self._data())
            self._membership.forget_brokers()
            self._membership.hurry()

    def _data(self) -> ConsumerData:
        return ConsumerData(
            group=self.group,
            consume_from_where=self.options.start.where,
            message_model=BROADCASTING if self.options.broadcast else CLUSTERING,
            subscriptions=self.subscriptions(),
        )

    async def _check_expressions(self) -> None:
        """Ask a broker of each topic whether it understands what is wanted."""
        for subscription in self.subscriptions():
            if subscription.expression_type != SQL92:
                continue
            route = await self.session.routes.for_reading(subscription.topic)
            body = CheckClientRequest(
                client_id=self.session.client_id, group=self.group, subscription=subscription
            )
            await self.session.call(
                route.master(min(route.addresses)),
                request(RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.encode(body)),
            )

    # Queues that come and go.

    async def _take_share(self, topic: str, queues: Sequence[MessageQueue]) -> bool:
        share = set(queues)
        for queue, reader in list(self._readers.items()):
            if queue.topic == topic and queue not in share and not reader.is_leaving:
                log.info("queue given up group=%s queue=%s", self.group, queue)
                if self._needs_locks:
                    self._spawn(self._give_up(reader))  # its handler may take long
                else:
                    await self._give_up(reader)
        wanted = [queue for queue in queues if queue not in self._readers]
        late = share & {queue for queue, reader in self._readers.items() if reader.is_leaving}
        if self._needs_locks and wanted:
            locked, _ = await self._locks.lock(wanted)
        else:
            locked = set(wanted)
        taken = await asyncio.gather(*(self._take(queue) for queue in wanted if queue in locked))
        return len(locked) == len(wanted) and all(taken) and not late

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            position = await first_position(
                self.options.start, queue, self._store, self._desk.puller
            )
        except ArianeError as error:
            # Without the true offset there is no beginning; the next round asks again.
            log.warning("queue not taken group=%s queue=%s: %s", self.group, queue, error)
            return False
        self._begin(queue, position)
        return True

    def _begin(self, queue: MessageQueue, position: int) -> None:
        if self._is_closed or queue.topic not in self._desk.filters:
            return
        log.info("queue taken group=%s queue=%s position=%d", self.group, queue, position)
        reader = self._readers[queue] = Reader(self._desk, queue, position)
        if self._needs_locks:
            reader.process.lock(now_s=self.session.clock.monotonic_s())
        reader.start()

    async def _give_up(self, reader: Reader) -> None:
        offset = await reader.leave()
        if self._readers.get(reader.queue) is reader:
            del self._readers[reader.queue]
        await self._store.write({reader.queue: offset}, wait=True)
        self._forget(reader.queue)
        if self._needs_locks:
            await self._locks.unlock([reader.queue])

    def _moved(self, reader: Reader, offset: int) -> None:
        self._spawn(self._go_on_at(reader, offset))

    async def _go_on_at(self, reader: Reader, offset: int) -> None:
        """Read the queue from elsewhere; what was held of it counts no more."""
        if reader.is_leaving:
            return
        await reader.leave()
        if self._readers.get(reader.queue) is reader:
            await self._store.write({reader.queue: offset}, wait=True)
            self._desk.puller.forget(reader.queue)
            self._begin(reader.queue, offset)

    def _forget(self, queue: MessageQueue) -> None:
        self._desk.puller.forget(queue)
        if isinstance(self._store, RemoteOffsets):
            self._store.forget(queue)

    # By the clock.

    def _schedule(self) -> None:
        timers = self.session.timers
        self._timers = [
            timers.every(COMMIT_S, lambda: self._spawn(self.commit())),
            timers.every(SAMPLE_S, self._sample),
        ]
        if self._needs_locks:
            self._timers.append(timers.every(RENEW_S, lambda: self._spawn(self._renew_locks())))
        if not self.options.orderly:
            self._timers.append(timers.every(STUCK_CHECK_S, self._look_for_stuck))

    @property
    def _needs_locks(self) -> bool:
        return self.options.orderly and not self.options.broadcast

    async def _renew_locks(self) -> None:
        readers = list(self._readers.values())
        locked, unknown = await self._locks.lock([reader.queue for reader in readers])
        now_s = self.session.clock.monotonic_s()
        for reader in readers:
            if reader.queue in locked:
                reader.process.lock(now_s=now_s)
                reader.advance()
            elif reader.queue.broker_name not in unknown:
                log.warning("lock lost group=%s queue=%s", self.group, reader.queue)
                reader.process.unlock()

    def _look_for_stuck(self) -> None:
        now_s = self.session.clock.monotonic_s()
        for reader in self._readers.values():
            for message in reader.process.stuck(now_s=now_s, timeout_s=self.options.timeout_s):
                log.warning(
                    "handler has not ended in %g s, sending back group=%s %r",
                    self.options.timeout_s,
                    self.group,
                    message,
                )
                self._spawn(reader.nack(message, STUCK_DELAY_S))

    def _sample(self) -> None:
        now_s = self.session.clock.monotonic_s()
        for statistics in self._desk.statistics.values():
            statistics.sample(now_s=now_s)

    async def _drain(self) -> None:
        drained = asyncio.ensure_future(self._desk.delivery.drain())
        late = asyncio.ensure_future(self.session.sleep(self.options.drain_s))
        await asyncio.wait({drained, late}, return_when=asyncio.FIRST_COMPLETED)
        late.cancel()
        if not drained.done():
            log.warning("handlers did not end in %g s group=%s", self.options.drain_s, self.group)
            self._desk.delivery.abandon()
            await asyncio.wait({drained}, timeout=1.0)
            drained.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("consumer failed group=%s", self.group, exc_info=error)
