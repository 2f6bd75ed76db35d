"""Where the queues of a topic are, on all brokers, as the name servers tell it.

A broker that assigns queues to consumers must know those of the others too. What a name server says
is believed for a few seconds; without one, or when none answers, a broker knows its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ariane.codes import Permission, RequestCode, ResponseCode
from ariane.errors import ClientError, ProtocolError, RequestFailed
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue, TopicRouteData
from ariane.protocol.command import request
from ariane.protocol.headers.topics import TopicHeader

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState

LOGGER: Final = logging.getLogger("ariane.broker")

BELIEVED_S: Final = 5.0
TIMEOUT_S: Final = 2.0
TOPICS_MAX: Final = 10_000

Found = Callable[[list[MessageQueue] | None], None]  # None: there is no such topic


class TopicRoutes:
    """The queues of topics, asked for once in a while."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._known: dict[str, tuple[float, list[MessageQueue] | None]] = {}
        self._asking: dict[str, list[Found]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        state.topics.on_change.append(self._changed)

    def find(self, topic: str, found: Found) -> None:
        """Call back with the queues of a topic that may be read, at once or when known."""
        registration = self._state.registration
        known = self._known.get(topic)
        if known is not None and known[0] > self._state.clock.monotonic_s():
            found(known[1])
        elif registration is None or not registration.links:
            found(self._own(topic))
        elif topic in self._asking:
            self._asking[topic].append(found)
        else:
            self._asking[topic] = [found]
            task = asyncio.get_running_loop().create_task(self._ask(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _changed(self, topic: str) -> None:
        self._known.pop(topic, None)

    async def _ask(self, topic: str) -> None:
        try:
            queues = await self._ask_name_servers(topic)
        except (ClientError, ProtocolError) as error:
            LOGGER.info("no name server told where topic=%s is reason=%s", topic, error)
            queues = self._own(topic)
        if len(self._known) >= TOPICS_MAX:
            self._known.clear()
        self._known[topic] = (self._state.clock.monotonic_s() + BELIEVED_S, queues)
        for found in self._asking.pop(topic):
            found(queues)

    async def _ask_name_servers(self, topic: str) -> list[MessageQueue] | None:
        registration = self._state.registration
        assert registration is not None
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=topic))
        answer = await registration.ask(command, TIMEOUT_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RequestFailed(answer.code, answer.remark or "")
        route = fastjson.decode(answer.body, TopicRouteData)
        return [
            MessageQueue(broker_name=data.broker_name, queue_id=queue_id, topic=topic)
            for data in route.queues
            if data.permission & Permission.READ
            for queue_id in range(data.read_queue_count)
        ]

    def _own(self, topic: str) -> list[MessageQueue] | None:
        config = self._state.topics.get(topic)
        if config is None:
            return None
        count = config.read_queue_count if config.permission & Permission.READ else 0
        name = self._state.config.name
        return [MessageQueue(broker_name=name, queue_id=n, topic=topic) for n in range(count)]
