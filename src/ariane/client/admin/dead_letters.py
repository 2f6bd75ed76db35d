"""What groups gave up: looked at, and sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ariane.client.admin.asking import Asking
from ariane.client.pull_consumer import PullConsumer
from ariane.client.retrying import BODY_FLAGS, INNER_GROUP, STORED
from ariane.client.routes import DEFAULT_QUEUE_COUNT
from ariane.codes import RequestCode
from ariane.errors import InvalidArgument, RouteNotFound
from ariane.protocol.command import request
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import StoredMessage
from ariane.protocol.properties import DELAY, HALF, RETRY_TOPIC, WAIT, encode_properties
from ariane.topics import (
    AUTO_CREATE_TOPIC,
    DEAD_LETTER_PREFIX,
    dead_letter_topic_of,
    group_fault,
    retry_topic_of,
    topic_fault,
)

COUNT_MAX: Final = 32
ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
OF_ANOTHER_LIFE: Final = frozenset({HALF, DELAY, "RECONSUME_TIME", "MAX_RECONSUME_TIMES"})
POPS: Final = "CONSUME_POP"


class DeadLetters(Asking):
    """The part of `Admin` that looks after dead letters."""

    async def dead_letters(self, group: str, *, count_max: int = COUNT_MAX) -> list[StoredMessage]:
        """What the group gave up last, oldest first; nothing when it never did."""
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        reader, found = PullConsumer(self._session), list[StoredMessage]()
        try:
            queues = await reader.queues(dead_letter_topic_of(group))
        except RouteNotFound:
            return []
        for queue in queues:
            end = await reader.max_offset(queue)
            first = max(await reader.min_offset(queue), end - count_max)
            while first < end:
                pulled = await reader.read(queue, first, count_max=min(end - first, COUNT_MAX))
                found += pulled.messages
                if pulled.next_offset <= first:
                    break
                first = pulled.next_offset
        return sorted(found, key=lambda letter: letter.stored_at_ms)[-count_max:]

    async def resend(
        self, group: str, letters: Sequence[StoredMessage], *, to: str | None = None
    ) -> None:
        """Have the group, and no other, consume its dead letters again, with all its tries.

        With `to` they go to that topic instead, to all groups that read it. The letters themselves
        stay until their time is up; what is sent again has their message ids.
        """
        fault = group_fault(group) if to is None else topic_fault(to)
        if fault:
            raise InvalidArgument(fault)
        if to is None and await self._pops(group):
            raise InvalidArgument(
                f"group {group!r} pops, and has no way of its own to get a message again;"
                " say to= which topic"
            )
        topic = retry_topic_of(group) if to is None else to
        for letter in letters:
            await self._resend(letter, topic, is_retry=to is None)

    async def _pops(self, group: str) -> bool:
        for address in (await self._masters()).values():
            members = await self._members(address, group)
            if members is not None and members.consume_type == POPS:
                return True
        return False

    async def _resend(self, letter: StoredMessage, topic: str, *, is_retry: bool) -> None:
        properties = {
            name: value
            for name, value in letter.properties.items()
            if name not in OF_ANOTHER_LIFE and not name.startswith("TIMER_")
        }
        properties[WAIT] = "true"
        origin = properties.pop(RETRY_TOPIC, None) or properties.get(ORIGIN_TOPIC)
        if is_retry:
            if not letter.topic.startswith(DEAD_LETTER_PREFIX) or not origin:
                raise InvalidArgument(
                    f"message {letter.message_id} of topic {letter.topic!r} does not say where it"
                    " was sent at first, so it is no dead letter; say to= which topic it goes to"
                )
            properties[RETRY_TOPIC] = origin
        route = await self._session.routes.for_writing(topic)
        queue = self._session.random.choice(route.writable)
        header = SendHeaderV2(
            group=INNER_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_queue_count=DEFAULT_QUEUE_COUNT,
            queue_id=queue.queue_id,
            system_flag=letter.system_flag & BODY_FLAGS,
            born_at_ms=letter.born_at_ms,
            flag=letter.flag,
            properties=encode_properties(properties),
            reconsume_times=0,
            unit_mode=False,
            is_batch=False,
            broker_name=queue.broker_name,
        )
        await self._session.call(
            route.master(queue.broker_name),
            request(RequestCode.SEND_MESSAGE_V2, header, letter.stored_body),
            accept=STORED,
        )
