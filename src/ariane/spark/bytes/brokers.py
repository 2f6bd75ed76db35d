"""Where brokers are: asked of the name servers, and remembered for a while."""

from __future__ import annotations

from typing import Final

from ariane.client.routes import MASTER_ID, TopicRoute, route_of
from ariane.clock import Clock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    AccessImpossible,
    ConnectionLost,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
)
from ariane.protocol import fastjson
from ariane.protocol.bodies import TopicRouteData
from ariane.protocol.headers.topics import TopicHeader
from ariane.spark.bytes.link import Links

REMEMBERED_S: Final = 30.0


class Brokers:
    """Addresses of brokers by topic and name."""

    def __init__(self, links: Links, clock: Clock) -> None:
        self._links = links
        self._clock = clock
        self._routes: dict[tuple[tuple[str, ...], str], tuple[float, TopicRoute]] = {}

    def address(self, name_servers: tuple[str, ...], topic: str, broker: str, wait_s: float) -> str:
        """Where the broker's master listens, or another that can be read; or RouteNotFound."""
        key = (name_servers, topic)
        asked_s, route = self._routes.get(key, (-REMEMBERED_S, None))
        if route is None or self._clock.monotonic_s() - asked_s >= REMEMBERED_S:
            route = self._ask(name_servers, topic, wait_s)
            self._routes[key] = (self._clock.monotonic_s(), route)
        return route.replica(broker, MASTER_ID)

    def forget(self) -> None:
        """Ask anew next time: a broker was not where it was said to be."""
        self._routes.clear()

    def _ask(self, name_servers: tuple[str, ...], topic: str, wait_s: float) -> TopicRoute:
        if not name_servers:
            raise AccessImpossible(
                "brokers cannot be asked without their name servers; set namesrv"
            )
        failures = []
        for address in name_servers:
            try:
                link = self._links.get(address, wait_s)
                try:
                    answer = link.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=topic))
                finally:
                    self._links.put_back(link)
            except (ConnectionLost, RequestTimeout) as error:
                failures.append(str(error))
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                raise RouteNotFound(f"topic {topic!r} does not exist")
            if answer.code != ResponseCode.SUCCESS:
                raise RequestFailed.of(answer.code, f"{answer.remark} [{address}]")
            return route_of(topic, fastjson.decode(bytes(answer.body), TopicRouteData))
        raise ConnectionLost(f"no name server answers: {'; '.join(failures)}")
