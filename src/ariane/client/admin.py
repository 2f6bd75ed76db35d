"""Looking after a cluster: its topics, its brokers, and single messages by id or key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from ariane.client.routes import MASTER_ID, Address, TopicRoute
from ariane.client.session import Session
from ariane.client.times import milliseconds_of, renamed
from ariane.client.tracking import Track, TrackType, filters_by_expression, track_of
from ariane.codes import Permission, PullFlag, RequestCode, ResponseCode
from ariane.errors import ClientError, InvalidArgument
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerConnections,
    ConsumeStats,
    GroupList,
    KeyValueTable,
    MessageQueue,
    SubscriptionData,
    TopicList,
    TopicStats,
)
from ariane.protocol.command import Command, request
from ariane.protocol.headers.groups import ConsumerGroupHeader, ConsumeStatsHeader
from ariane.protocol.headers.nameserver import DeleteTopicHeader
from ariane.protocol.headers.pull import PullHeader
from ariane.protocol.headers.query import QueryHeader, ViewHeader
from ariane.protocol.headers.topics import CreateTopicHeader, TopicHeader
from ariane.protocol.headers.transactions import ResumeCheckHeader
from ariane.protocol.limits import FRAME_BYTES_MAX
from ariane.protocol.message import StoredMessage, decode_offset_id, decode_records
from ariane.topics import AUTO_CREATE_TOPIC, DISCARD_TOPIC, TOOLS_GROUP, topic_fault

ADMIN_TIMEOUT_S: Final = 5.0
FOREVER_MS: Final = (1 << 63) - 1
QUEUE_COUNT: Final = 8

MessageType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What one queue holds."""

    queue: MessageQueue
    min_offset: int
    max_offset: int  # the offset that the next message gets
    updated_at_ms: int  # when the last message was stored; 0 when there is none


class Admin:
    """Administration of one cluster; `Client.admin`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def cluster(self) -> ClusterInfo:
        """All brokers that a name server knows, and the clusters they form."""
        answer = await self._session.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return fastjson.decode(answer.body, ClusterInfo)

    async def broker_facts(self, address: Address) -> dict[str, str]:
        """What a broker tells of itself: version, rates, disk, offsets."""
        answer = await self._session.call(
            address, request(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_s=ADMIN_TIMEOUT_S
        )
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
        masters = [
            broker for broker in await self._brokers(cluster) if MASTER_ID in broker.addresses
        ]
        await self._on_all(
            [broker.addresses[MASTER_ID] for broker in masters],
            lambda: request(RequestCode.UPDATE_AND_CREATE_TOPIC, header),
        )
        return [broker.broker_name for broker in masters]

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete the topic and its messages on every broker; returns the brokers' names."""
        brokers = await self._brokers(cluster)
        await self._on_all(
            [address for broker in brokers for address in broker.addresses.values()],
            lambda: request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic)),
        )
        await self._on_all(
            self._session.name_servers,
            lambda: request(
                RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicHeader(topic=topic, cluster=cluster)
            ),
        )
        self._session.routes.forget(topic)
        return [broker.broker_name for broker in brokers]

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """What each queue of the topic holds, by broker and number."""
        route = await self.topic_route(topic)
        answers = await asyncio.gather(
            *(
                self._session.call(
                    route.replica(broker, MASTER_ID),
                    request(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic)),
                    timeout_s=ADMIN_TIMEOUT_S,
                )
                for broker in sorted(route.addresses)
            )
        )
        found = [
            QueueStats(queue, stats.min_offset, stats.max_offset, stats.last_update_ms)
            for answer in answers
            for queue, stats in _stats_of(answer).offsets.items()
        ]
        return sorted(found, key=lambda stats: stats.queue)

    async def message(self, offset_message_id: str) -> StoredMessage:
        """The message at the place that its offset id names: a broker's address and log offset."""
        store_host, log_offset = decode_offset_id(offset_message_id)
        answer = await self._session.call(
            _address_of(store_host),
            request(RequestCode.VIEW_MESSAGE_BY_ID, ViewHeader(log_offset=log_offset)),
            timeout_s=ADMIN_TIMEOUT_S,
        )
        return decode_records(answer.body)[0]

    async def resume_transaction(self, offset_message_id: str) -> None:
        """Have a broker ask again about a message it has put into TRANS_CHECK_MAX_TIME_TOPIC."""
        store_host, _ = decode_offset_id(offset_message_id)
        header = ResumeCheckHeader(topic=DISCARD_TOPIC, message_id=offset_message_id)
        await self._session.call(
            _address_of(store_host),
            request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header),
            timeout_s=ADMIN_TIMEOUT_S,
        )

    async def track(self, message: StoredMessage) -> list[Track]:
        """What became of a stored message in every group that reads its topic, by group."""
        address = _address_of(message.store_host)
        answer = await self._session.call(
            address,
            request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic=message.topic)),
            timeout_s=ADMIN_TIMEOUT_S,
        )
        groups = sorted(fastjson.decode(answer.body, GroupList).groups)
        return [await self._track(address, group, message) for group in groups]

    async def _track(self, address: Address, group: str, message: StoredMessage) -> Track:
        try:
            members = await self._members(address, group)
            stats = await self._progress(address, group, message.topic)
            wanted = None if members is None else members.subscriptions.get(message.topic)
            is_wanted = None
            if wanted is not None and filters_by_expression(wanted):
                is_wanted = await self._passes(address, message, wanted)
        except ClientError as error:
            return Track(group, TrackType.UNKNOWN, detail=str(error))
        return track_of(group, message, members, stats, is_wanted=is_wanted)

    async def _members(self, address: Address, group: str) -> ConsumerConnections | None:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answer = await self._session.call(
            address,
            request(code, ConsumerGroupHeader(group=group)),
            timeout_s=ADMIN_TIMEOUT_S,
            accept={ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE},
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        return fastjson.decode(answer.body, ConsumerConnections)

    async def _progress(self, address: Address, group: str, topic: str) -> ConsumeStats:
        header = ConsumeStatsHeader(group=group, topic=topic)
        answer = await self._session.call(
            address,
            request(RequestCode.GET_CONSUME_STATS, header),
            timeout_s=ADMIN_TIMEOUT_S,
        )
        return fastjson.decode(answer.body, ConsumeStats, size_max=FRAME_BYTES_MAX)

    async def _passes(
        self, address: Address, message: StoredMessage, wanted: SubscriptionData
    ) -> bool:
        """Whether the broker lets the message through: a pull that would begin with it tells."""
        header = PullHeader(
            group=TOOLS_GROUP,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            count_max=1,
            system_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_ms=0,
            subscription=wanted.expression,
            expression_type=wanted.expression_type,
        )
        answer = await self._session.call(
            address,
            request(RequestCode.PULL_MESSAGE, header),
            timeout_s=ADMIN_TIMEOUT_S,
            accept={ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY},
        )
        found = decode_records(answer.body)
        return bool(found) and found[0].queue_offset == message.queue_offset

    @renamed(begin_ms="begin", end_ms="end")
    async def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 32,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[StoredMessage]:
        """Messages sent with the key, oldest first; if told so, stored between two moments."""
        header = QueryHeader(
            topic=topic,
            key=key,
            count_max=count_max,
            begin_ms=0 if begin is None else milliseconds_of(begin),
            end_ms=FOREVER_MS if end is None else milliseconds_of(end),
        )
        found = await self._query(header)
        return [message for message in found if key in message.keys][-count_max:]

    async def find_by_id(self, topic: str, message_id: str) -> list[StoredMessage]:
        """The message with the id its producer gave it; more than one if it was sent again."""
        header = QueryHeader(
            topic=topic,
            key=message_id,
            count_max=32,
            begin_ms=0,
            end_ms=FOREVER_MS,
            by_unique_key=True,
        )
        return [m for m in await self._query(header) if m.message_id == message_id]

    async def _query(self, header: QueryHeader) -> list[StoredMessage]:
        route = await self._session.routes.for_reading(header.topic)
        answers = await asyncio.gather(
            *(
                self._session.call(
                    route.replica(broker, MASTER_ID),
                    request(RequestCode.QUERY_MESSAGE, header),
                    timeout_s=ADMIN_TIMEOUT_S,
                    accept={ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND},
                )
                for broker in sorted(route.addresses)
            )
        )
        found = [message for answer in answers for message in decode_records(answer.body)]
        return sorted(found, key=lambda message: message.stored_at_ms)

    async def _brokers(self, cluster: str | None) -> list[BrokerData]:
        info = await self.cluster()
        if cluster is not None and cluster not in info.clusters:
            known = ", ".join(sorted(info.clusters)) or "none"
            raise InvalidArgument(f"no cluster {cluster!r}; there is: {known}")
        names = info.brokers if cluster is None else info.clusters[cluster]
        if not names:
            raise ClientError("the name server knows no broker; start one, then try again")
        return [info.brokers[name] for name in sorted(names)]

    async def _on_all(self, addresses: Sequence[Address], command: Callable[[], Command]) -> None:
        """Have every server carry out the request; the first refusal is raised, after all ended."""
        outcomes = await asyncio.gather(
            *(
                self._session.call(address, command(), timeout_s=ADMIN_TIMEOUT_S)
                for address in addresses
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


def _address_of(host: tuple[str, int]) -> Address:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def _stats_of(answer: Command) -> TopicStats:
    # Objects as keys are not standard JSON, and a topic of many queues is longer than most of it.
    return fastjson.decode(answer.body, TopicStats, size_max=FRAME_BYTES_MAX)
