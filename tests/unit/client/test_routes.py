"""What a name server's answer means to a client, and how long it is believed."""

import pytest

from ariane.client.routes import RouteCache, TopicRoute, addresses_of, provisional_route, route_of
from ariane.errors import ArianeError, RouteNotFound
from ariane.protocol.bodies import BrokerData, QueueData, TopicRouteData

A = BrokerData(broker_name="a", cluster="c", addresses={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
SLAVE_ONLY = BrokerData(broker_name="b", cluster="c", addresses={1: "10.0.0.3:10911"})


def queues(broker: str, *, permission: int = 6, read: int = 2, write: int = 2) -> QueueData:
    return QueueData(
        broker_name=broker, permission=permission, read_queue_count=read, write_queue_count=write
    )


def numbers(found: tuple[object, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in found]  # type: ignore[attr-defined]


CASES = {
    "read and write counts differ": (
        TopicRouteData(brokers=[A], queues=[queues("a", read=1, write=3)]),
        [("a", 0), ("a", 1), ("a", 2)],
        [("a", 0)],
    ),
    "read only": (
        TopicRouteData(brokers=[A], queues=[queues("a", permission=4)]),
        [],
        [("a", 0), ("a", 1)],
    ),
    "write only": (
        TopicRouteData(brokers=[A], queues=[queues("a", permission=2)]),
        [("a", 0), ("a", 1)],
        [],
    ),
    "no master": (
        TopicRouteData(brokers=[SLAVE_ONLY], queues=[queues("b")]),
        [],
        [("b", 0), ("b", 1)],
    ),
    "a broker nobody knows": (TopicRouteData(brokers=[A], queues=[queues("z")]), [], []),
    "an order topic": (
        TopicRouteData(brokers=[A], queues=[queues("a", write=8)], order_config="a:1;z:4"),
        [("a", 0)],
        [("a", 0), ("a", 1)],
    ),
    "no queues": (TopicRouteData(brokers=[A], queues=[queues("a", read=0, write=0)]), [], []),
}


@pytest.mark.parametrize(("data", "writable", "readable"), CASES.values(), ids=CASES)
def test_routes(
    data: TopicRouteData, writable: list[tuple[str, int]], readable: list[tuple[str, int]]
) -> None:
    route = route_of("t", data)
    assert numbers(route.writable) == writable
    assert numbers(route.readable) == readable


def test_dead_letters_may_be_read_though_routes_say_write_only() -> None:
    data = TopicRouteData(brokers=[A], queues=[queues("a", permission=2)])
    assert numbers(route_of("%DLQ%g", data).readable) == [("a", 0), ("a", 1)]
    closed = TopicRouteData(brokers=[A], queues=[queues("a", permission=0)])
    assert numbers(route_of("%DLQ%g", closed).readable) == []


def test_replicas_stand_in_for_reads_and_not_for_writes() -> None:
    route = route_of(
        "t", TopicRouteData(brokers=[A, SLAVE_ONLY], queues=[queues("a"), queues("b")])
    )
    assert route.master("a") == "10.0.0.1:10911"
    assert route.replica("a", 1) == "10.0.0.2:10911"
    assert route.replica("a", 9) == "10.0.0.1:10911"
    assert route.replica("b", 0) == "10.0.0.3:10911"
    with pytest.raises(RouteNotFound, match="no master"):
        route.master("b")
    with pytest.raises(RouteNotFound, match="'z'"):
        route.replica("z", 0)


def test_a_topic_to_be_created_gets_four_queues_at_most() -> None:
    template = route_of("TBW102", TopicRouteData(brokers=[A], queues=[queues("a", write=8)]))
    route = provisional_route("new", template)
    assert numbers(route.writable) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    assert {queue.topic for queue in route.writable} == {"new"}
    assert route.is_provisional
    assert not route.readable


def test_name_server_lists() -> None:
    assert addresses_of(" 10.0.0.1:9876; ns:9877 ;") == ["10.0.0.1:9876", "ns:9877"]
    assert addresses_of("[::1]:9876") == ["[::1]:9876"]


@pytest.mark.parametrize("text", ["", ";", "localhost", "host:", "host:0", "host:70000", ":9876"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ArianeError, match=r"(?i)host:port"):
        addresses_of(text)


class Asked:
    """A name server that knows these topics and counts who asks."""

    def __init__(self, **known: int) -> None:
        self.known = known
        self.topics: list[str] = []

    async def __call__(self, topic: str) -> TopicRoute | None:
        self.topics.append(topic)
        if topic not in self.known:
            return None
        count = self.known[topic]
        return route_of(
            topic, TopicRouteData(brokers=[A], queues=[queues("a", read=count, write=count)])
        )


async def test_a_route_is_asked_for_once_and_refreshed_in_place() -> None:
    asked = Asked(t=2)
    cache = RouteCache(asked)
    assert len((await cache.for_writing("t")).writable) == 2
    assert len((await cache.for_reading("t")).readable) == 2
    assert asked.topics == ["t"]
    asked.known["t"] = 5
    await cache.refresh("t")
    assert len((await cache.for_writing("t")).writable) == 5
    del asked.known["t"]
    await cache.refresh("t")
    assert len((await cache.for_writing("t")).writable) == 5  # a name server that forgot is no news


async def test_a_provisional_route_is_for_writing_only() -> None:
    asked = Asked(TBW102=8)
    cache = RouteCache(asked)
    assert (await cache.for_writing("new")).is_provisional
    with pytest.raises(RouteNotFound, match="ariane topic create new"):
        await cache.for_reading("new")
    asked.known["new"] = 4
    assert not (await cache.for_reading("new")).is_provisional
    assert not (await cache.for_writing("new")).is_provisional


async def test_without_automatic_creation_an_unknown_topic_cannot_be_written() -> None:
    with pytest.raises(RouteNotFound, match="does not exist"):
        await RouteCache(Asked()).for_writing("new")


async def test_a_topic_without_queues_cannot_be_written() -> None:
    with pytest.raises(RouteNotFound, match="no queue"):
        await RouteCache(Asked(t=0)).for_writing("t")


async def test_topics_asked_for_once_do_not_stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.client.routes.ROUTES_MAX", 3)

    async def look_up(topic: str) -> TopicRoute | None:
        if topic.startswith("no"):
            return None
        return route_of(topic, TopicRouteData(brokers=[A], queues=[queues("a")]))

    cache = RouteCache(look_up)
    for number in range(100):
        await cache.for_reading(f"t{number}")
        with pytest.raises(RouteNotFound):
            await cache.for_reading(f"no{number}")
    assert [route.topic for route in cache] == ["t97", "t98", "t99"]
    assert len(cache._locks) == 0
