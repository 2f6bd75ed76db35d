"""Where the sends of one producer group can go: the queues of a topic, ready to be written to."""

from __future__ import annotations

from typing import Final

from ariane.client.hot_sends import Target
from ariane.client.parcels import Kind
from ariane.client.routes import DEFAULT_QUEUE_COUNT, TopicRoute
from ariane.codes import PROTOCOL_VERSION, FrameFlag, RequestCode
from ariane.errors import InvalidMessage
from ariane.protocol.bodies import MessageQueue
from ariane.topics import AUTO_CREATE_TOPIC

LANGUAGE: Final = "PYTHON"
_CODES: Final = {
    Kind.PLAIN: RequestCode.SEND_MESSAGE_V2,
    Kind.ONE_WAY: RequestCode.SEND_MESSAGE_V2,
    Kind.BATCH: RequestCode.SEND_BATCH_MESSAGE,
    Kind.REPLY: RequestCode.SEND_REPLY_MESSAGE_V2,
}


class Outlet:
    """One topic's writable queues for one kind of request; good as long as its route is."""

    def __init__(self, route: TopicRoute, group: str, kind: Kind) -> None:
        self.route = route
        self._group = group
        self._kind = kind
        self.brokers = [queue.broker_name for queue in route.writable]
        self.targets = [self._target(queue) for queue in route.writable]
        self.has_others = len(set(self.brokers)) > 1  # brokers that could take the next attempt
        self._by_queue = dict(zip(route.writable, self.targets, strict=True))

    def target_of(self, queue: MessageQueue) -> Target:
        """The target that a queue is; it need not be one of the route's."""
        target = self._by_queue.get(queue)
        if target is None:
            if not isinstance(queue, MessageQueue) or queue.topic != self.route.topic:
                # The request would carry the queue's topic, and the message be stored there.
                raise InvalidMessage(
                    f"{queue} is no queue of the message's topic {self.route.topic!r};"
                    " choose one of `producer.queues(topic)`"
                )
            target = self._by_queue[queue] = self._target(queue)
        return target

    def _target(self, queue: MessageQueue) -> Target:
        return Target(
            queue,
            self.route.master(queue.broker_name),
            code=_CODES[self._kind],
            group=self._group,
            default_topic=AUTO_CREATE_TOPIC,
            default_queue_count=DEFAULT_QUEUE_COUNT,
            is_batch=self._kind is Kind.BATCH,
            flag=FrameFlag.ONE_WAY if self._kind is Kind.ONE_WAY else 0,
            language=LANGUAGE,
            version=PROTOCOL_VERSION,
        )
