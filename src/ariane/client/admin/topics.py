"""A cluster's topics and brokers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from ariane.client.admin.asking import Asking, decoded
from ariane.client.routes import MASTER_ID, Address, TopicRoute
from ariane.codes import Permission, RequestCode
from ariane.errors import InvalidArgument
from ariane.protocol import fastjson
from ariane.protocol.bodies import KeyValueTable, MessageQueue, TopicList, TopicStats
from ariane.protocol.command import request
from ariane.protocol.headers.topics import CreateTopicHeader, TopicHeader
from ariane.topics import AUTO_CREATE_TOPIC, topic_fault

QUEUE_COUNT: Final = 8

MessageType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What one queue holds."""

    queue: MessageQueue
    min_offset: int
    max_offset: int  # the offset that the next message gets
    updated_at_ms: int  # when the last message was stored; 0 when there is none


class Topics(Asking):
    """The part of `Admin` that looks after topics."""

    async def broker_facts(self, address: Address) -> dict[str, str]:
        """What a broker tells of itself: version, rates, disk, offsets."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return fastjson.decode(answer.body, KeyValueTable).table

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        answer = await self._session.ask(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        return sorted(fastjson.decode(answer.body, TopicList).topics)

    async def system_topics(self) -> set[str]:
        """Topics that exist for clusters and brokers rather than for users."""
        answer = await self._session.ask(request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
        return set(fastjson.decode(answer.body, TopicList).topics)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Where the topic's queues are, asked anew."""
        await self._session.routes.refresh(topic)
        return await self._session.routes.for_reading(topic)

    async def create_topic(
        self,
        topic: str,
        *,
        write_queue_count: int = QUEUE_COUNT,
        read_queue_count: int | None = None,
        permission: int = Permission.READ | Permission.WRITE,
        cluster: str | None = None,
        message_type: MessageType | None = None,
    ) -> list[str]:
        """Create the topic, or change it, on every broker; returns the brokers' names.

        A message type is declared; brokers that check types then refuse messages of others.
        """
        if fault := topic_fault(topic):
            raise InvalidArgument(fault)
        header = CreateTopicHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            write_queue_count=write_queue_count,
            read_queue_count=write_queue_count if read_queue_count is None else read_queue_count,
            permission=int(permission),
            system_flag=0,
            attributes=None if message_type is None else f"+message.type={message_type}",
        )
        masters = await self._masters(cluster)
        await self._on_all(
            list(masters.values()), lambda: request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        )
        return list(masters)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete the topic and its messages on every broker; returns the brokers' names."""
        brokers = await self._brokers(cluster)
        addresses = [address for broker in brokers for address in broker.addresses.values()]
        await self._delete_topic(topic, addresses, cluster)
        return [broker.broker_name for broker in brokers]

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """What each queue of the topic holds, by broker and number."""
        route = await self.topic_route(topic)
        answers = await asyncio.gather(
            *(
                self._ask(
                    route.replica(broker, MASTER_ID),
                    RequestCode.GET_TOPIC_STATS_INFO,
                    TopicHeader(topic=topic),
                )
                for broker in sorted(route.addresses)
            )
        )
        found = [
            QueueStats(queue, stats.min_offset, stats.max_offset, stats.last_update_ms)
            for answer in answers
            for queue, stats in decoded(answer, TopicStats).offsets.items()
        ]
        return sorted(found, key=lambda stats: stats.queue)
