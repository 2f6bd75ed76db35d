"""Single messages: found by place, key or id, and what became of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from ariane.client.admin.asking import Asking, decoded
from ariane.client.routes import MASTER_ID, Address
from ariane.client.times import milliseconds_of, renamed
from ariane.client.tracking import Track, TrackType, filters_by_expression, track_of
from ariane.codes import PullFlag, RequestCode, ResponseCode
from ariane.errors import ClientError
from ariane.protocol.bodies import GroupList, SubscriptionData
from ariane.protocol.headers.pull import PullHeader
from ariane.protocol.headers.query import QueryHeader, ViewHeader
from ariane.protocol.headers.topics import TopicHeader
from ariane.protocol.headers.transactions import ResumeCheckHeader
from ariane.protocol.message import StoredMessage, decode_offset_id, decode_records
from ariane.topics import DISCARD_TOPIC, TOOLS_GROUP

FOREVER_MS: Final = (1 << 63) - 1


class Messages(Asking):
    """The part of `Admin` that finds and follows messages."""

    async def message(self, offset_message_id: str) -> StoredMessage:
        """The message at the place that its offset id names: a broker's address and log offset."""
        store_host, log_offset = decode_offset_id(offset_message_id)
        answer = await self._ask(
            _address_of(store_host),
            RequestCode.VIEW_MESSAGE_BY_ID,
            ViewHeader(log_offset=log_offset),
        )
        return decode_records(answer.body)[0]

    async def resume_transaction(self, offset_message_id: str) -> None:
        """Have a broker ask again about a message it has put into TRANS_CHECK_MAX_TIME_TOPIC."""
        store_host, _ = decode_offset_id(offset_message_id)
        header = ResumeCheckHeader(topic=DISCARD_TOPIC, message_id=offset_message_id)
        await self._ask(
            _address_of(store_host),
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            header,
        )

    async def track(self, message: StoredMessage) -> list[Track]:
        """What became of a stored message in every group that reads its topic, by group."""
        address = _address_of(message.store_host)
        answer = await self._ask(
            address,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            TopicHeader(topic=message.topic),
        )
        groups = sorted(decoded(answer, GroupList).groups)
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
        answer = await self._ask(
            address,
            RequestCode.PULL_MESSAGE,
            header,
            accept=frozenset({ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}),
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
                self._ask(
                    route.replica(broker, MASTER_ID),
                    RequestCode.QUERY_MESSAGE,
                    header,
                    accept=frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}),
                )
                for broker in sorted(route.addresses)
            )
        )
        found = [message for answer in answers for message in decode_records(answer.body)]
        return sorted(found, key=lambda message: message.stored_at_ms)


def _address_of(host: tuple[str, int]) -> Address:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"
