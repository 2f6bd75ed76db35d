"""What the driver asks of a cluster: which queues there are, and what can be read of each.

Asked of name servers and brokers, Apache's or ours, one request for each topic and broker, all at
once; or, where there is no broker to ask, of a store's files (`store_cluster.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from ariane.client import Client
from ariane.client.loop_thread import LoopThread
from ariane.client.pull_consumer import PullConsumer
from ariane.client.routes import MASTER_ID, Address, TopicRoute
from ariane.codes import Permission, RequestCode
from ariane.errors import (
    BrokerBusy,
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    RequestTimeout,
    RouteNotFound,
)
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue, TopicStats
from ariane.protocol.bodies.statistics import QueueEntries
from ariane.protocol.bodies.tables import SubscriptionGroupConfig
from ariane.protocol.command import request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.offsets import (
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
    TimestampReply,
)
from ariane.protocol.headers.query import ConsumeQueueHeader
from ariane.protocol.headers.topics import CreateTopicHeader, TopicHeader
from ariane.protocol.limits import FRAME_BYTES_MAX
from ariane.spark.bytes.contract import AccessOptions, QueueBounds
from ariane.spark.offsets import Queue
from ariane.spark.options import Selection
from ariane.spark.store_cluster import StoreCluster
from ariane.spark.survey import Cluster, Survey, assigned
from ariane.topics import is_system_topic, reply_topic_of, retry_topic_of

T = TypeVar("T")

SAMPLE_COUNT: Final = (
    32  # entries looked at, at each end of a range, to tell how large messages are
)
FIRST_PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
PASSING: Final = (ConnectionLost, RequestTimeout, BrokerBusy, BrokerUnavailable)

log = logging.getLogger("ariane.spark")


def cluster_of(access: AccessOptions) -> Cluster:
    """The cluster that the options name; opens no connection yet."""
    if access.name_servers:
        return BrokerCluster(access)
    from ariane.spark.bytes.direct import store_metadata  # noqa: PLC0415 - maps files; few need it

    return StoreCluster(store_metadata(access))


class BrokerCluster:
    """A cluster asked through its name servers."""

    def __init__(self, access: AccessOptions) -> None:
        self._access = access
        self._client = Client(";".join(access.name_servers))
        self._session = self._client.session
        self._mirrors: dict[str, PullConsumer] = {}
        self._groups_made: dict[tuple[str, Address], asyncio.Future[None]] = {}
        self._thread = LoopThread()
        self._thread.run(self._client.open())

    def close(self) -> None:
        """Take leave of the brokers and end the thread."""
        if self._thread.is_running:
            self._thread.run(self._client.close())
            self._thread.stop()

    def survey(
        self, selection: Selection, *, known: Collection[Queue] = (), may_miss: bool = False
    ) -> Survey:
        """The queues chosen. A broker of `known` queues that is away is given time to come back."""

        async def look() -> Survey:
            return await self._survey(selection, known, may_miss=may_miss)

        # A query that runs waits out the restart of a broker; one that starts tells at once.
        patience_s = self._access.timeout_s if known else 0.0
        return self._thread.run(self._persist(look, patience_s, lambda survey: not survey.away))

    def offsets_at(self, times: Mapping[Queue, int]) -> dict[Queue, int]:
        """The first offset stored at or after a moment (ms); the queue's end when there is none."""

        async def search() -> dict[Queue, int]:
            found = await asyncio.gather(*(self._offset_at(q, ms) for q, ms in times.items()))
            return dict(zip(times, found, strict=True))

        return self._thread.run(self._persist(search))

    def oldest_ms(self, queues: Collection[Queue]) -> dict[Queue, int]:
        """When the oldest message of each was stored."""

        async def ask() -> dict[Queue, int]:
            found = await asyncio.gather(*map(self._oldest_ms, queues))
            return dict(zip(queues, found, strict=True))

        try:
            return self._thread.run(self._persist(ask, self._access.timeout_s))
        except ClientError as error:  # who asks does so as a precaution
            log.info("it cannot be told how old queues are: %s", error)
            return {}

    def record_bytes(self, ranges: Mapping[Queue, tuple[int, int]]) -> dict[Queue, float]:
        """How large the messages of each range are on average, by a sample."""

        async def sample() -> dict[Queue, float]:
            means = await asyncio.gather(*(self._mean(q, *ends) for q, ends in ranges.items()))
            return dict(zip(ranges, means, strict=True))

        return self._thread.run(self._persist(sample))

    def mirror(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Tell brokers how far a group has got; what fails is logged, and told again next time."""
        self._thread.run(self._mirror(group, offsets))

    # On the loop.

    async def _persist(
        self,
        work: Callable[[], Awaitable[T]],
        patience_s: float = 0.0,
        is_whole: Callable[[T], bool] = lambda result: True,
    ) -> T:
        """Do the work, and again while it fails for a reason that may pass and there is patience.

        A result that is not whole is no failure, but worth waiting for a better one.
        """
        clock = self._session.clock
        begun_s = clock.monotonic_s()
        tries = 0
        while True:
            has_waited = clock.monotonic_s() - begun_s >= patience_s
            is_last = tries >= self._access.retries and has_waited
            try:
                result = await work()
                if is_last or is_whole(result):
                    return result
            except PASSING as error:
                if is_last:
                    raise
                log.info("asking again: %s", error)
            await self._session.sleep(min(FIRST_PAUSE_S * 2**tries, PAUSE_MAX_S))
            tries += 1

    async def _survey(
        self, selection: Selection, known: Collection[Queue], *, may_miss: bool
    ) -> Survey:
        topics = await self._topics(selection)
        routes = await asyncio.gather(*(self._route(topic) for topic in topics))
        read_before = {queue.topic for queue in known}
        for topic, route in zip(topics, routes, strict=True):
            if route is None and topic not in read_before and not may_miss:
                raise RouteNotFound(
                    f"topic {topic!r} does not exist; create it with `ariane topic create {topic}`"
                )
        layouts = await asyncio.gather(*(self._layout(route) for route in routes if route))
        layout = {queue: bounds for part, _ in layouts for queue, bounds in part.items()}
        stored_ms: dict[str, int] = {}
        for _, times in layouts:
            for broker, moment_ms in times.items():
                stored_ms[broker] = max(moment_ms, stored_ms.get(broker, 0))
        if selection.queues is not None:
            layout = assigned(selection.queues, layout, selection.queues if may_miss else known)
        gone = {queue.broker for queue in known if queue not in layout}
        registered = (await self._client.admin.cluster()).brokers if gone else {}
        away = frozenset(gone - registered.keys())
        return Survey(dict(sorted(layout.items())), away, stored_ms)

    async def _topics(self, selection: Selection) -> list[str]:
        if selection.queues is not None:
            return sorted({queue.topic for queue in selection.queues})
        if selection.pattern is None:
            return list(selection.topics)
        admin = self._client.admin
        topics, systems = await asyncio.gather(admin.topics(), admin.system_topics())
        systems |= {reply_topic_of(name) for name in systems}  # clusters are among them
        return selection.among({t for t in topics if t not in systems and not is_system_topic(t)})

    async def _route(self, topic: str) -> TopicRoute | None:
        """The topic's route as it is now; what was known before does not count."""
        self._session.routes.forget(topic)
        try:
            return await self._session.routes.for_reading(topic)
        except RouteNotFound:
            return None

    async def _layout(self, route: TopicRoute) -> tuple[dict[Queue, QueueBounds], dict[str, int]]:
        """The topic's queues, and when the youngest message of each broker was stored."""
        brokers = sorted({queue.broker_name for queue in route.readable})
        answers = await asyncio.gather(*(self._stats(route, broker) for broker in brokers))
        stats = dict(zip(brokers, answers, strict=True))
        layout = {}
        for queue in route.readable:
            found = stats[queue.broker_name].offsets.get(queue)
            if found is None:  # old brokers leave out queues that are read and not written to
                bounds = await self._bounds(queue)
            else:
                bounds = QueueBounds(found.min_offset, found.max_offset)
            layout[Queue(queue.topic, queue.broker_name, queue.queue_id)] = bounds
        return layout, {
            broker: max((each.last_update_ms for each in found.offsets.values()), default=0)
            for broker, found in stats.items()
        }

    async def _bounds(self, queue: MessageQueue) -> QueueBounds:
        consumer = self._client.pull_consumer()
        return QueueBounds(await consumer.min_offset(queue), await consumer.max_offset(queue))

    async def _stats(self, route: TopicRoute, broker: str) -> TopicStats:
        answer = await self._session.call(
            route.replica(broker, MASTER_ID),
            request(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=route.topic)),
            timeout_s=self._access.timeout_s,
        )
        return fastjson.decode(answer.body, TopicStats, size_max=FRAME_BYTES_MAX)

    async def _offset_at(self, queue: Queue, moment_ms: int) -> int:
        header = SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=moment_ms
        )
        answer = await self._session.call(
            await self._address(queue),
            request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header),
            timeout_s=self._access.timeout_s,
        )
        return decode_header(OffsetReply, answer.ext).offset

    async def _oldest_ms(self, queue: Queue) -> int:
        answer = await self._session.call(
            await self._address(queue),
            request(
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                QueueHeader(topic=queue.topic, queue_id=queue.queue_id),
            ),
            timeout_s=self._access.timeout_s,
        )
        return decode_header(TimestampReply, answer.ext).timestamp_ms

    async def _mean(self, queue: Queue, first: int, end: int) -> float:
        """The mean size of messages at both ends of the range."""
        heads = {first, max(first, end - SAMPLE_COUNT)}
        samples = await asyncio.gather(
            *(self._sizes(queue, head, min(SAMPLE_COUNT, end - head)) for head in heads)
        )
        sizes = [size for sample in samples for size in sample if size > 0]
        return sum(sizes) / len(sizes) if sizes else 0.0

    async def _sizes(self, queue: Queue, first: int, count: int) -> list[int]:
        header = ConsumeQueueHeader(
            topic=queue.topic, queue_id=queue.queue_id, queue_offset=first, count_max=count
        )
        answer = await self._session.call(
            await self._address(queue),
            request(RequestCode.QUERY_CONSUME_QUEUE, header),
            timeout_s=self._access.timeout_s,
        )
        return [entry.size for entry in fastjson.decode(answer.body, QueueEntries).entries]

    async def _mirror(self, group: str, offsets: Mapping[Queue, int]) -> None:
        if group not in self._mirrors:
            self._mirrors[group] = self._client.pull_consumer(group)
        consumer = self._mirrors[group]
        outcomes = await asyncio.gather(
            *(self._commit(consumer, queue, offset) for queue, offset in offsets.items()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, ClientError):
                log.warning("offset not mirrored group=%s: %s", group, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _commit(self, consumer: PullConsumer, queue: Queue, offset: int) -> None:
        address = await self._address(queue)
        making = self._groups_made.get((consumer.group, address))
        if making is None:
            making = asyncio.ensure_future(self._make_group(consumer.group, queue.broker, address))
            self._groups_made[consumer.group, address] = making
        try:
            await asyncio.shield(making)
        except ClientError:
            self._groups_made.pop((consumer.group, address), None)  # tried again with the next
            raise
        await consumer.commit(_message_queue(queue), offset)

    async def _make_group(self, group: str, broker: str, address: Address) -> None:
        """Have a broker know a group, and its retry topic, by which tools find it.

        Nobody joins the group for that: it may have members, and they keep their queues.
        """
        retry_topic = retry_topic_of(group)
        try:
            route = await self._session.routes.for_reading(retry_topic)
            if broker in route.addresses:
                return
        except RouteNotFound:
            pass  # nobody was ever a member
        topic = CreateTopicHeader(
            topic=retry_topic,
            read_queue_count=1,
            write_queue_count=1,
            permission=int(Permission.READ | Permission.WRITE),
        )
        config = fastjson.encode(SubscriptionGroupConfig(name=group))
        for command in (
            request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config),
            request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic),
        ):
            await self._session.call(address, command, timeout_s=self._access.timeout_s)

    async def _address(self, queue: Queue) -> Address:
        route = await self._session.routes.for_reading(queue.topic)
        return route.replica(queue.broker, MASTER_ID)


def _message_queue(queue: Queue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker, queue_id=queue.queue_id)
