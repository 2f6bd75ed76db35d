"""How administration asks: one broker, the master of each, or every server there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ariane.client.routes import MASTER_ID, Address
from ariane.client.session import ACCEPT_SUCCESS, Session
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, InvalidArgument
from ariane.protocol import fastjson
from ariane.protocol.bodies import BrokerData, ClusterInfo, ConsumerConnections, ConsumeStats
from ariane.protocol.command import Command, request
from ariane.protocol.headers import Header
from ariane.protocol.headers.groups import ConsumerGroupHeader, ConsumeStatsHeader
from ariane.protocol.headers.nameserver import DeleteTopicHeader
from ariane.protocol.headers.topics import TopicHeader
from ariane.protocol.limits import FRAME_BYTES_MAX

ADMIN_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


class Asking:
    """What every part of `Admin` asks with."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def cluster(self) -> ClusterInfo:
        """All brokers that a name server knows, and the clusters they form."""
        answer = await self._session.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return fastjson.decode(answer.body, ClusterInfo)

    async def _ask(
        self,
        address: Address,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        accept: frozenset[int] = ACCEPT_SUCCESS,
    ) -> Command:
        return await self._session.call(
            address, request(code, header, body), timeout_s=ADMIN_TIMEOUT_S, accept=accept
        )

    async def _masters(self, cluster: str | None = None) -> dict[str, Address]:
        """Where each broker takes writes, by its name."""
        return {
            broker.broker_name: broker.addresses[MASTER_ID]
            for broker in await self._brokers(cluster)
            if MASTER_ID in broker.addresses
        }

    async def _members(self, address: Address, group: str) -> ConsumerConnections | None:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answer = await self._ask(
            address,
            code,
            ConsumerGroupHeader(group=group),
            accept=frozenset({ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE}),
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        return decoded(answer, ConsumerConnections)

    async def _progress(self, address: Address, group: str, topic: str | None) -> ConsumeStats:
        header = ConsumeStatsHeader(group=group, topic=topic)
        answer = await self._ask(
            address,
            RequestCode.GET_CONSUME_STATS,
            header,
        )
        return decoded(answer, ConsumeStats)

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

    async def _delete_topic(
        self, topic: str, addresses: list[Address], cluster: str | None
    ) -> None:
        await self._on_all(
            addresses,
            lambda: request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic)),
        )
        header = DeleteTopicHeader(topic=topic, cluster=cluster)
        await self._on_all(
            self._session.name_servers,
            lambda: request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header),
        )
        self._session.routes.forget(topic)


def decoded(answer: Command, kind: type[T]) -> T:
    """What an answer's body says; tables of many queues are longer than most of it."""
    return fastjson.decode(answer.body, kind, size_max=FRAME_BYTES_MAX)
