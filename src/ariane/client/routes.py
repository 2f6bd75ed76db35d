"""Where a topic's queues live: read from what a name server says, and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from ariane.codes import Permission
from ariane.errors import InvalidArgument, RouteNotFound
from ariane.protocol.bodies import MessageQueue, QueueData, TopicRouteData
from ariane.remoting.client import split_address
from ariane.topics import AUTO_CREATE_TOPIC, is_readable

Address = str  # host:port
MASTER_ID: Final = 0
ROUTES_MAX: Final = 10_000  # that a client remembers; the longest unchanged goes first
DEFAULT_QUEUE_COUNT: Final = 4  # of a topic that the first send creates


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """One topic's queues to write and to read, and the addresses behind their brokers."""

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, Address]]  # broker name -> broker id -> where it listens
    is_provisional: bool = False  # the topic does not exist yet; the first send creates it
    clusters: frozenset[str] = frozenset()  # that its brokers belong to

    def master(self, broker: str) -> Address:
        """Where the broker takes writes."""
        address = self.addresses.get(broker, {}).get(MASTER_ID)
        if address is None:
            raise RouteNotFound(
                f"broker {broker!r} has no master for topic {self.topic!r} now; is it running?"
            )
        return address

    def replica(self, broker: str, broker_id: int = MASTER_ID) -> Address:
        """Where the broker can be read: the replica asked for, else the master, else any."""
        replicas = self.addresses.get(broker, {})
        if not replicas:
            raise RouteNotFound(f"broker {broker!r} is not known to serve topic {self.topic!r}")
        return replicas.get(broker_id) or replicas.get(MASTER_ID) or replicas[min(replicas)]

    def replica_after(self, broker: str, broker_id: int) -> int:
        """Which replica to ask when this one cannot be reached: the next, and in the end the first.

        The first is the master.
        """
        numbers = sorted(self.addresses.get(broker, {})) or [MASTER_ID]
        return next((number for number in numbers if number > broker_id), numbers[0])

    def replicas(self, broker: str) -> list[Address]:
        """Everywhere the broker can be read, the master first."""
        self.replica(broker)  # or RouteNotFound
        return [address for _, address in sorted(self.addresses[broker].items())]


def route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    """What a name server's answer means to a client."""
    addresses = {broker.broker_name: dict(broker.addresses) for broker in data.brokers}
    queues = sorted(
        (entry for entry in data.queues if entry.broker_name in addresses), key=_broker_of
    )
    return TopicRoute(
        topic=topic,
        writable=tuple(
            queue
            for broker, count in _writable_counts(data, queues)
            if MASTER_ID in addresses.get(broker, {})
            for queue in _numbered(topic, broker, count)
        ),
        readable=tuple(
            queue
            for entry in queues
            if is_readable(topic, entry.permission)
            for queue in _numbered(topic, entry.broker_name, entry.read_queue_count)
        ),
        addresses=addresses,
        clusters=frozenset(broker.cluster for broker in data.brokers if broker.cluster),
    )


def provisional_route(topic: str, template: TopicRoute) -> TopicRoute:
    """Where to send the first message of a topic that brokers will create on its arrival."""
    return replace(
        template,
        topic=topic,
        writable=tuple(
            msgspec.structs.replace(queue, topic=topic)
            for queue in template.writable
            if queue.queue_id < DEFAULT_QUEUE_COUNT
        ),
        readable=(),
        is_provisional=True,
    )


def addresses_of(text: str) -> list[Address]:
    """The addresses in `host:port;host:port`; raises ClientError when there are none."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not addresses:
        raise InvalidArgument("no name server given; write HOST:PORT, as in 127.0.0.1:9876")
    for address in addresses:
        split_address(address)
    return addresses


class RouteCache:
    """Routes looked up once and refreshed in place; a route that is gone stays until replaced.

    `look_up` asks a name server and returns None for a topic it does not know.
    """

    def __init__(self, look_up: Callable[[str], Awaitable[TopicRoute | None]]) -> None:
        self._look_up = look_up
        self._routes: dict[str, TopicRoute] = {}
        # The topic's route as it was last heard of; the same object until it changes.
        self.known: Callable[[str], TopicRoute | None] = self._routes.get
        # Each as long as somebody asks or waits: a topic that does not exist leaves nothing behind.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.on_new: Callable[[TopicRoute], None] = lambda route: None
        self.on_change: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[TopicRoute]:
        return iter(list(self._routes.values()))

    async def for_writing(self, topic: str) -> TopicRoute:
        """The topic's route; a provisional one when brokers would create it. Has a queue."""
        route = self._routes.get(topic) or await self._find(topic, may_create=True)
        if not route.writable:
            raise RouteNotFound(f"topic {topic!r} has no queue that may be written to now")
        return route

    async def for_reading(self, topic: str) -> TopicRoute:
        """The topic's route; raises RouteNotFound while it does not exist."""
        route = self._routes.get(topic)
        if route is None or route.is_provisional:
            route = await self._find(topic, may_create=False)
        return route

    async def refresh(self, topic: str) -> None:
        """Ask anew; what was known stays when the name server knows no better."""
        async with self._locks.setdefault(topic, asyncio.Lock()):
            fresh = await self._look_up(topic)
            if fresh is not None:
                self._keep(fresh)

    def forget(self, topic: str) -> None:
        """Know nothing of the topic."""
        self._routes.pop(topic, None)
        self.on_change()

    async def _find(self, topic: str, *, may_create: bool) -> TopicRoute:
        async with self._locks.setdefault(topic, asyncio.Lock()):
            known = self._routes.get(topic)
            if known is not None and (may_create or not known.is_provisional):
                return known  # found while we waited for our turn
            route = await self._look_up(topic)
            if route is None and may_create and topic != AUTO_CREATE_TOPIC:
                template = await self._look_up(AUTO_CREATE_TOPIC)
                route = None if template is None else provisional_route(topic, template)
            if route is None:
                raise RouteNotFound(
                    f"topic {topic!r} does not exist; create it with `ariane topic create {topic}`"
                )
            self._keep(route)
            return route

    def _keep(self, route: TopicRoute) -> None:
        if self._routes.get(route.topic) != route:
            self._routes.pop(route.topic, None)
            self._routes[route.topic] = route
            if len(self._routes) > ROUTES_MAX:  # asked for again when needed
                self._routes.pop(next(iter(self._routes)))
            self.on_change()
        self.on_new(route)


def _writable_counts(data: TopicRouteData, queues: list[QueueData]) -> list[tuple[str, int]]:
    """Brokers and how many queues each takes writes on; an order topic's own list comes first."""
    if data.order_config:
        pairs = (part.rpartition(":") for part in data.order_config.split(";"))
        return [(broker, int(count)) for broker, _, count in pairs if count.isdecimal()]
    return [
        (entry.broker_name, entry.write_queue_count)
        for entry in queues
        if entry.permission & Permission.WRITE
    ]


def _broker_of(entry: QueueData) -> str:
    return entry.broker_name


def _numbered(topic: str, broker: str, count: int) -> Iterator[MessageQueue]:
    return (
        MessageQueue(topic=topic, broker_name=broker, queue_id=number) for number in range(count)
    )
