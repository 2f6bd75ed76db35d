"""Asking brokers for the messages of queues, on behalf of one group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ariane.client.pull_consumer import OFFSET_TIMEOUT_S, PullStatus
from ariane.client.received import Origin, ReceivedMessage
from ariane.client.records import decode
from ariane.client.replicas import ask_any
from ariane.client.routes import MASTER_ID, Address
from ariane.client.session import Session
from ariane.client.subscription import TAG, Filter
from ariane.codes import PullFlag, RequestCode, ResponseCode
from ariane.errors import ConnectionLost, RequestTimeout
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import request
from ariane.protocol.headers import Header, decode_header
from ariane.protocol.headers.offsets import (
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
)
from ariane.protocol.headers.pull import PullHeader, PullReply

COUNT_MAX: Final = 32
BYTES_MAX: Final = 256 << 10
SUSPEND_S: Final = 15.0  # how long a broker may hold a pull that finds nothing
ANSWER_S: Final = 15.0  # and how much longer its answer may take

STATUSES: Final = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCH,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.MOVED,
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a pull brought, and where the next one should start."""

    status: PullStatus
    messages: list[ReceivedMessage]  # those that the filter accepts
    next_offset: int
    min_offset: int
    max_offset: int


class Puller:
    """Pulls for one group; knows for each queue which replica of the broker to ask."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        is_lite: bool = False,
        message_kind: type[ReceivedMessage] = ReceivedMessage,
    ) -> None:
        self._session = session
        self._group = group
        self.message_kind = message_kind
        self._is_lite = is_lite
        self._code = RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE
        self._replicas: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        position: int,
        wanted: Filter,
        *,
        holder: Origin,
        version: int,
        commit_offset: int | None = None,
        count_max: int = COUNT_MAX,
    ) -> Fetched:
        """Messages from `position` on; waits for the first while there is none.

        The broker takes the filter from our heartbeats; `version` says which one is meant.
        """
        broker_id = self._replicas.get(queue, MASTER_ID)
        route = await self._session.routes.for_reading(queue.topic)
        address = route.replica(queue.broker_name, broker_id)
        flag = int(PullFlag.SUSPEND)
        if commit_offset is not None and broker_id == MASTER_ID:
            flag |= PullFlag.COMMIT_OFFSET
        if self._is_lite:
            flag |= PullFlag.LITE_PULL | PullFlag.SUBSCRIPTION
        header = PullHeader(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=position,
            count_max=count_max,
            system_flag=flag,
            commit_offset=commit_offset or 0,
            suspend_ms=int(SUSPEND_S * 1000),
            subscription_version=version,
            subscription=wanted.expression if self._is_lite or wanted.kind != TAG else None,
            expression_type=wanted.kind,
            bytes_max=BYTES_MAX,
            request_source=-1,
            broker_name=queue.broker_name,
        )
        try:
            answer = await self._session.call(
                address,
                request(self._code, header),
                timeout_s=SUSPEND_S + ANSWER_S,
                accept=STATUSES,
            )
        except (ConnectionLost, RequestTimeout):
            self._replicas[queue] = route.replica_after(queue.broker_name, broker_id)
            raise
        outcome = decode_header(PullReply, answer.ext)
        self._replicas[queue] = outcome.suggested_broker_id
        return Fetched(
            STATUSES[answer.code],
            wanted.accepted(decode(answer.body, self.message_kind, holder)),
            outcome.next_offset,
            outcome.min_offset,
            outcome.max_offset,
        )

    def forget(self, queue: MessageQueue) -> None:
        """Begin with the master when the queue is read again."""
        self._replicas.pop(queue, None)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def offset_at(self, queue: MessageQueue, moment_ms: int) -> int:
        """The offset of the first message stored at this moment or later."""
        header = SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=moment_ms
        )
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def address(self, queue: MessageQueue) -> Address:
        """Where the queue is read: the replica that pulls go to now."""
        route = await self._session.routes.for_reading(queue.topic)
        return route.replica(queue.broker_name, self._replicas.get(queue, MASTER_ID))

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        answer = await ask_any(self._session, queue, code, header, timeout_s=OFFSET_TIMEOUT_S)
        return decode_header(OffsetReply, answer.ext).offset
