"""Reading queues at the caller's pace: where to start, what to take, how far it got.

A consumer keeps a position for each queue it reads; only `commit` tells the broker of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from ariane.client.routes import MASTER_ID, Address
from ariane.client.session import Session
from ariane.client.times import Duration, milliseconds_of, renamed, seconds_of
from ariane.codes import PullFlag, RequestCode, ResponseCode
from ariane.errors import InvalidArgument
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import request
from ariane.protocol.headers import Header, decode_header
from ariane.protocol.headers.offsets import (
    MaxOffsetHeader,
    OffsetReply,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from ariane.protocol.headers.pull import PullHeader, PullReply
from ariane.protocol.message import StoredMessage, decode_records
from ariane.protocol.properties import TAGS
from ariane.topics import TOOLS_GROUP, group_fault

COUNT_MAX: Final = 32
EVERYTHING: Final = "*"
OFFSET_TIMEOUT_S: Final = 5.0
PULL_TIMEOUT_S: Final = 10.0  # beyond the time that the broker may hold the request


class PullStatus(StrEnum):
    """What became of a pull."""

    FOUND = "FOUND"
    NO_NEW = "NO_NEW"  # the end of the queue
    NO_MATCH = "NO_MATCH"  # there were messages, none with the tags asked for
    MOVED = "MOVED"  # the offset lies outside the queue; `next_offset` lies inside


_STATUSES: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.MOVED,
}


@dataclass(frozen=True, slots=True)
class Pulled:
    """Messages of one queue, and where the next pull should start."""

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class PullConsumer:
    """Reads queues in the name of a consumer group; made by `Client.pull_consumer`.

    It is no member of the group: members would leave queues to it that nobody asked it to read.
    """

    def __init__(self, session: Session, group: str = TOOLS_GROUP) -> None:
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        self.group = group
        self._session = session
        self._positions: dict[MessageQueue, int] = {}
        self._readers: dict[MessageQueue, int] = {}  # the broker id suggested for the next pull

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic that may be read now."""
        return list((await self._session.routes.for_reading(topic)).readable)

    @renamed(wait_s="wait")
    async def pull(
        self,
        queue: MessageQueue,
        *,
        tags: str = EVERYTHING,
        count_max: int = COUNT_MAX,
        wait: Duration = 0.0,
    ) -> Pulled:
        """Take messages from the queue's position on, and move it past them.

        Without a position yet, starts at what the group committed, else at the first message.
        """
        first = await self.position(queue)
        pulled = await self.read(queue, first, tags=tags, count_max=count_max, wait=wait)
        if self._positions.get(queue) == first:  # else somebody has sought elsewhere meanwhile
            self._positions[queue] = pulled.next_offset
        return pulled

    @renamed(wait_s="wait")
    async def read(
        self,
        queue: MessageQueue,
        queue_offset: int,
        *,
        tags: str = EVERYTHING,
        count_max: int = COUNT_MAX,
        wait: Duration = 0.0,
    ) -> Pulled:
        """Read from an offset on, waiting up to `wait` for the first message to arrive."""
        wait_s = seconds_of(wait)
        header = PullHeader(
            group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            count_max=count_max,
            system_flag=PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait_s > 0 else 0),
            commit_offset=0,
            suspend_ms=round(wait_s * 1000),
            subscription=tags,
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        answer = await self._session.call(
            await self._address(queue, self._readers.get(queue, MASTER_ID)),
            request(RequestCode.PULL_MESSAGE, header),
            timeout_s=wait_s + PULL_TIMEOUT_S,
            accept=_STATUSES,
        )
        outcome = decode_header(PullReply, answer.ext)
        self._readers[queue] = outcome.suggested_broker_id
        return Pulled(
            status=_STATUSES[ResponseCode(answer.code)],
            messages=_with_tags(decode_records(answer.body), tags),
            next_offset=outcome.next_offset,
            min_offset=outcome.min_offset,
            max_offset=outcome.max_offset,
        )

    async def position(self, queue: MessageQueue) -> int:
        """Where the next pull of this queue starts."""
        if queue not in self._positions:
            committed = await self.committed(queue)
            self._positions.setdefault(
                queue, await self.min_offset(queue) if committed is None else committed
            )
        return self._positions[queue]

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Let the next pull start at this offset."""
        self._positions[queue] = queue_offset

    @renamed(moment_ms="moment")
    async def seek_to_time(self, queue: MessageQueue, moment: datetime) -> int:
        """Let the next pull start at the first message stored at this moment or later."""
        self._positions[queue] = await self.offset_at(queue, moment)
        return self._positions[queue]

    async def seek_to_start(self, queue: MessageQueue) -> int:
        """Let the next pull start at the oldest message."""
        self._positions[queue] = await self.min_offset(queue)
        return self._positions[queue]

    async def seek_to_end(self, queue: MessageQueue) -> int:
        """Let the next pull start after the newest message."""
        self._positions[queue] = await self.max_offset(queue)
        return self._positions[queue]

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    @renamed(moment_ms="moment")
    async def offset_at(self, queue: MessageQueue, moment: datetime) -> int:
        """The offset of the first message stored at this moment or later."""
        header = SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=milliseconds_of(moment)
        )
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has got by its own word, or None when it has not said."""
        header = QueryConsumerOffsetHeader(
            group=self.group, topic=queue.topic, queue_id=queue.queue_id, zero_if_not_found=False
        )
        answer = await self._session.call(
            await self._address(queue),
            request(RequestCode.QUERY_CONSUMER_OFFSET, header),
            timeout_s=OFFSET_TIMEOUT_S,
            accept={ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND},
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, answer.ext).offset

    async def commit(self, queue: MessageQueue, consume_offset: int | None = None) -> None:
        """Tell the broker how far the group has got: by default to this consumer's position."""
        header = UpdateConsumerOffsetHeader(
            group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            consume_offset=await self.position(queue) if consume_offset is None else consume_offset,
        )
        await self._session.call(
            await self._address(queue),
            request(RequestCode.UPDATE_CONSUMER_OFFSET, header),
            timeout_s=OFFSET_TIMEOUT_S,
        )

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        answer = await self._session.call(
            await self._address(queue), request(code, header), timeout_s=OFFSET_TIMEOUT_S
        )
        return decode_header(OffsetReply, answer.ext).offset

    async def _address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> Address:
        route = await self._session.routes.for_reading(queue.topic)
        return route.replica(queue.broker_name, broker_id)


def _with_tags(messages: list[StoredMessage], tags: str) -> list[StoredMessage]:
    """The broker compares hashes of tags; two tags may share one, so compare the words too."""
    if tags.strip() in ("", EVERYTHING):
        return messages
    wanted = {tag.strip() for tag in tags.split("||")}
    return [message for message in messages if message.properties.get(TAGS, "") in wanted]
