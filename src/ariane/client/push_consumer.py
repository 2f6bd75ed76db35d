"""A member of a consumer group that has messages brought to it as they arrive.

It takes part in the group (`membership.py`), reads the queues that are its share (`holdings.py`)
and has their messages consumed (`delivery.py`). Progress is committed every five seconds, along
with pulls, and when a queue or the consumer goes; a message counts as consumed only once its
handler has returned.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from ariane.client.closing import Closing
from ariane.client.consumer_options import ConsumerOptions
from ariane.client.consumers import Registry
from ariane.client.delivery import Delivery
from ariane.client.holdings import Holdings
from ariane.client.inspection import offsets_of, running_info
from ariane.client.locks import RENEW_S
from ariane.client.membership import Membership
from ariane.client.offset_stores import RemoteOffsets
from ariane.client.pulling import Puller
from ariane.client.reading import Desk
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import SendBack
from ariane.client.session import Session
from ariane.client.statistics import SAMPLE_S
from ariane.client.subscription import EVERYTHING, SQL92, Filter, filter_of, subscription_of
from ariane.client.tries import ASKED_S
from ariane.clock import Timer
from ariane.codes import RequestCode
from ariane.errors import ClientError, InvalidArgument, RouteNotFound
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

log = logging.getLogger("ariane.client")


class PushConsumer:
    """Consumes topics as a member of a group; made by `Client.push_consumer`."""

    def __init__(
        self,
        session: Session,
        registry: Registry,
        group: str,
        delivery: Delivery,
        options: ConsumerOptions,
        *,
        message_kind: type[ReceivedMessage] = ReceivedMessage,
    ) -> None:
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        self.group = group
        self.options = options
        self.session = session
        self.message_kind = message_kind
        self.started_at_ms = 0
        self._registry = registry
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
            puller=Puller(session, group, message_kind=message_kind),
            delivery=delivery,
            membership=self._membership,
            send_back=SendBack(session, group, options.retry),
            limits=options.limits,
            pull_count_max=options.pull_count_max,
            pull_interval_s=options.pull_interval_s,
            timeout_s=options.timeout_s,
            is_orderly=options.orderly,
            is_broadcast=options.broadcast,
            on_moved=lambda reader, offset: self._holdings.go_on(reader.queue, offset),
            on_dead=options.dead_letter,
            filters={},
        )
        self._holdings = Holdings(self._desk, RemoteOffsets(session, group), options.start)
        self._timers: list[Timer] = []
        self._is_started = False
        self._closing = Closing(
            self._membership.stop,
            self._holdings.stop_pulling,
            self._drain,
            self._holdings.close,
            self._leave,
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
        await self.close()

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Consume the topic too, or with another filter: tags (`a || b`) or an SQL92 expression."""
        if fault := topic_fault(topic):
            raise InvalidArgument(fault)
        self._subscribe(topic, filter_of(tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Consume the topic no more."""
        if self._desk.filters.pop(topic, None) is not None:
            self._changed()
            self._holdings.give_up_topic(topic)

    async def start(self) -> None:
        """Join the group and begin; raises ClientError when a broker refuses the subscription."""
        if self._is_started:
            raise ClientError("the consumer has been started before; make a new one")
        if not self._desk.filters:
            raise ClientError("the consumer has no topic; subscribe it to one")
        self._is_started = True
        if self.options.broadcast:
            from ariane.client.local_offsets import local_offsets  # noqa: PLC0415 - rarely needed

            self._holdings.store = local_offsets(self.group, self.options.offsets_directory)
        else:
            self._subscribe(retry_topic_of(self.group), filter_of())
        await self._registry.add(self)
        if self.is_closing:  # while another consumer of the group was still leaving
            self._registry.remove(self)
            raise ClientError("the consumer was closed before it had begun")
        self.session.before_close.append(self.close)
        self.started_at_ms = self.session.clock.wall_ms()
        self.session.set_consumer(self._data())
        try:
            await self._membership.meet(list(self._desk.filters))
            await self._check_expressions()
            await self._ask_tries()
            self._refuse_if_closing()
            self._desk.delivery.start()
            self._desk.may_pull.set()
            await self._membership.start()
            self._refuse_if_closing()
        except BaseException:
            await self.close()
            raise
        self._schedule()

    async def close(self) -> None:
        """Begin nothing more, let handlers end, commit, and leave the group.

        May be called again; goes on to its end when its caller is cancelled.
        """
        self.begin_close()
        await self._closing.end()

    def begin_close(self) -> None:
        """Close in the background."""
        for timer in self._timers:
            timer.cancel()
        self._closing.begin()

    @property
    def is_closing(self) -> bool:
        """Whether it has been closed, or is about to be."""
        return self._closing.has_begun

    def pause(self) -> None:
        """Pull no more until `resume`; what was pulled is still consumed."""
        self._desk.may_pull.clear()

    def resume(self) -> None:
        """Pull again."""
        self._desk.may_pull.set()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read here now."""
        queues = self._holdings.queues
        return sorted(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))

    @property
    def missing_topics(self) -> list[str]:
        """Topics that are subscribed and do not exist; they are consumed once they do."""
        return sorted(self._membership.missing & self._desk.filters.keys())

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
            self._holdings.go_on(queue, offset)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far each queue of the topic that is read here has been consumed."""
        return offsets_of(self._holdings.processes, topic)

    def running_info(self, *, with_stacks: bool = False) -> RunningInfo:
        """What the consumer is doing."""
        return running_info(
            self.session,
            queues=self._holdings.processes,
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
        await self._holdings.commit()

    def _refuse_if_closing(self) -> None:
        if self.is_closing:
            raise ClientError("the consumer was closed before it had begun")

    # Subscriptions.

    def _subscribe(self, topic: str, wanted: Filter) -> None:
        self._desk.filters[topic] = (wanted, self.session.clock.wall_ms())
        self._changed()

    def _changed(self) -> None:
        if self._is_started and not self.is_closing:
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
            try:
                route = await self.session.routes.for_reading(subscription.topic)
            except RouteNotFound:
                continue  # a topic that does not exist yet is waited for
            body = CheckClientRequest(
                client_id=self.session.client_id, group=self.group, subscription=subscription
            )
            await self.session.call(
                route.replica(min(route.addresses)),
                request(RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.encode(body)),
            )

    async def _ask_tries(self) -> None:
        """Learn how often the group's messages may be tried."""
        await self._desk.send_back.tries.refresh(self._desk.filters)

    async def _take_share(self, topic: str, queues: list[MessageQueue]) -> bool:
        return await self._holdings.take_share(topic, queues)

    # By the clock.

    def _schedule(self) -> None:
        timers, holdings = self.session.timers, self._holdings
        self._timers = [
            timers.every(COMMIT_S, lambda: holdings.spawn(holdings.commit())),
            timers.every(SAMPLE_S, self._sample),
            timers.every(ASKED_S, lambda: holdings.spawn(self._ask_tries())),
        ]
        if not self.options.orderly:
            self._timers.append(timers.every(STUCK_CHECK_S, holdings.send_stuck_back))
        elif not self.options.broadcast:
            renew = timers.every(RENEW_S, lambda: holdings.spawn(holdings.renew_locks()))
            self._timers.append(renew)

    def _sample(self) -> None:
        now_s = self.session.clock.monotonic_s()
        for statistics in self._desk.statistics.values():
            statistics.sample(now_s=now_s)

    async def _leave(self) -> None:
        if self._registry.has(self):  # else the group is another consumer's
            try:
                await self.session.remove_consumer(self.group)
            finally:
                self._registry.remove(self)
                self.session.forget_close(self.close)

    async def _drain(self) -> None:
        drained = asyncio.ensure_future(self._desk.delivery.drain())
        late = asyncio.ensure_future(self.session.sleep(self.options.drain_s))
        await asyncio.wait({drained, late}, return_when=asyncio.FIRST_COMPLETED)
        late.cancel()
        if not drained.done():
            log.warning("handlers did not end in %g s group=%s", self.options.drain_s, self.group)
            self._desk.delivery.abandon()
            self._holdings.abandon()
            await asyncio.wait({drained}, timeout=1.0)
            drained.cancel()
