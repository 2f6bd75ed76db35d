"""Where a group's progress is kept: with the brokers, for all its members.

A member that reads everything by itself keeps it in a file (`local_offsets.py`). An offset that
cannot be read is an error and never a number: a consumer that starts from an invented offset skips
messages, or reads months of them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from ariane.client.replicas import ask_any
from ariane.client.session import Session
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ConnectionLost
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.offsets import (
    OffsetReply,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)

QUERY_TIMEOUT_S: Final = 5.0

log = logging.getLogger("ariane.client")


class OffsetStore(Protocol):
    """Keeps how far a group has got in each queue."""

    async def read(self, queue: MessageQueue) -> int | None:
        """What was kept for the queue, or None when nothing was; raises when nobody can tell."""
        ...

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool = False) -> None:
        """Keep these offsets too; with `wait`, return when they are kept."""
        ...


class RemoteOffsets:
    """With the broker that has the queue, for all members of a group."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._told: dict[MessageQueue, int] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        """What was kept for the queue; of a young queue the broker says 0 though nothing was."""
        return await self._ask(queue, zero_if_not_found=None)

    async def committed(self, queue: MessageQueue) -> int | None:
        """What was really kept for the queue."""
        return await self._ask(queue, zero_if_not_found=False)

    async def _ask(self, queue: MessageQueue, *, zero_if_not_found: bool | None) -> int | None:
        header = QueryConsumerOffsetHeader(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            zero_if_not_found=zero_if_not_found,
        )
        answer = await ask_any(
            self._session,
            queue,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            timeout_s=QUERY_TIMEOUT_S,
            accept={ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND},
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, answer.ext).offset

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool = False) -> None:
        """Tell the brokers of what is new; one that cannot be reached is told again next time."""
        new = {
            queue: offset
            for queue, offset in offsets.items()
            if wait or self._told.get(queue) != offset
        }
        await asyncio.gather(*(self._tell(queue, new[queue], wait=wait) for queue in new))

    def forget(self, queue: MessageQueue) -> None:
        """Somebody else may tell the broker of the queue now."""
        self._told.pop(queue, None)

    async def _tell(self, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        header = UpdateConsumerOffsetHeader(
            group=self._group, topic=queue.topic, queue_id=queue.queue_id, consume_offset=offset
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        try:
            if wait:
                await ask_any(self._session, queue, code, header, timeout_s=QUERY_TIMEOUT_S)
            else:
                await self._post(queue, header)
        except ClientError as error:
            self._told.pop(queue, None)
            log.info("offset not committed queue=%s offset=%d: %s", queue, offset, error)
        else:
            self._told[queue] = offset

    async def _post(self, queue: MessageQueue, header: UpdateConsumerOffsetHeader) -> None:
        route = await self._session.routes.for_reading(queue.topic)
        failure: ConnectionLost | None = None
        for address in route.replicas(queue.broker_name):
            command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header, one_way=True)
            try:
                await self._session.post(address, command)
                return
            except ConnectionLost as error:
                failure = failure or error
        assert failure is not None, "a broker has an address"
        raise failure
