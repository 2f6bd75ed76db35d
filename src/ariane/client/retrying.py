"""What becomes of a message whose handler failed: later, again, and in the end a dead letter.

The broker that has the message puts it into the group's retry topic (`%RETRY%group`) when asked to
(CONSUMER_SEND_MSG_BACK). When it cannot, the message is sent there as a new one.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ariane.client.dead_letters import REASON, reason_text
from ariane.client.received import ReceivedMessage
from ariane.client.routes import DEFAULT_QUEUE_COUNT, MASTER_ID
from ariane.client.session import Session
from ariane.client.times import Duration, renamed, seconds_of
from ariane.client.tries import Tries
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError
from ariane.protocol.command import request
from ariane.protocol.headers.retry import SendBackHeader
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.properties import (
    DELAY,
    HALF,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    encode_properties,
)
from ariane.topics import AUTO_CREATE_TOPIC, retry_topic_of

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
SEND_BACK_TIMEOUT_S: Final = 5.0
BY_TRIES: Final = 0  # the delay level that lets the broker choose: 3 and one more for each try
FIRST_LEVEL: Final = 3
BODY_FLAGS: Final = 0x701  # compressed, and how
STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
# What brokers take for levels 1 to 18 unless they are told otherwise.
LEVEL_DELAYS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip

log = logging.getLogger("ariane.client")


class RetryLater(Exception):
    """Raised by a handler to have its message delivered again, after `delay` or as is usual."""

    @renamed(delay_s="delay")
    def __init__(self, delay: Duration | None = None) -> None:
        self.delay_s = None if delay is None else seconds_of(delay)
        super().__init__("later" if self.delay_s is None else f"in {self.delay_s:g} s")


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often a message that failed is tried again, and after how long."""

    max: int | None = None  # tries after the first, then a dead letter; None: as the group is set
    delays: Sequence[Duration] = ()  # before each try, the last one for all more; none: 10 s to 2 h

    @renamed(delays_s="delays")
    def __init__(self, max: int | None = None, delays: Sequence[Duration] = ()) -> None:
        object.__setattr__(self, "max", max)
        object.__setattr__(self, "delays", delays)

    def delay_s(self, tries: int) -> float | None:
        """How long to wait after so many tries that failed before; None: as brokers do."""
        if not self.delays:
            return None
        return seconds_of(self.delays[min(tries, len(self.delays) - 1)])


def level_of(delay_s: float | None) -> int:
    """The delay level that waits at least so long, as far as there is one."""
    if delay_s is None:
        return BY_TRIES
    return min(bisect_left(LEVEL_DELAYS_S, delay_s), len(LEVEL_DELAYS_S) - 1) + 1


class SendBack:
    """Gives messages of one group back to the brokers."""

    def __init__(self, session: Session, group: str, retry: Retry) -> None:
        self._session = session
        self._group = group
        self._retry = retry
        self.tries = Tries(session, group, retry.max)

    def is_last(self, message: ReceivedMessage) -> bool:
        """Whether the message has been tried as often as it may be."""
        return message.reconsume_times >= self.tries.max

    async def send_back(self, message: ReceivedMessage, delay_s: float | None) -> bool:
        """Have the message delivered again, or made a dead letter; False if no broker took it."""
        if delay_s is None:
            delay_s = self._retry.delay_s(message.reconsume_times)
        level = level_of(delay_s)
        try:
            await self._give_back(message, level)
        except ClientError as error:
            log.info("message not sent back, sending it anew message=%r: %s", message, error)
            level = level or FIRST_LEVEL + message.reconsume_times
            return await self._send_anew(message, level=level, tries_max=self._retry.max)
        return True

    async def bury(self, message: ReceivedMessage, reason: str | None = None) -> bool:
        """Make a dead letter of a message, whatever its tries; False if it was not taken.

        It is sent with one try more than it says it may have. Brokers that are asked to take it
        back would give one that keeps order another try, and keep no reason.
        """
        return await self._send_anew(message, tries_max=message.reconsume_times, reason=reason)

    async def _give_back(self, message: ReceivedMessage, level: int) -> None:
        queue = message.queue
        route = await self._session.routes.for_reading(queue.topic)
        header = SendBackHeader(
            log_offset=message.log_offset,
            group=self._group,
            delay_level=level,
            origin_message_id=message.message_id,
            origin_topic=message.topic,
            reconsume_times_max=self._retry.max,
            broker_name=queue.broker_name,
        )
        await self._session.call(
            route.replica(queue.broker_name, MASTER_ID),
            request(RequestCode.CONSUMER_SEND_MSG_BACK, header),
            timeout_s=SEND_BACK_TIMEOUT_S,
        )

    async def _send_anew(
        self,
        message: ReceivedMessage,
        *,
        tries_max: int | None,
        level: int = 0,
        reason: str | None = None,
    ) -> bool:
        topic = retry_topic_of(self._group)
        # It has been committed and has waited for its time; neither happens twice.
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in (HALF, DELAY) and not name.startswith("TIMER_")
        }
        properties |= {RETRY_TOPIC: message.topic, WAIT: "true"}
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        if level:
            properties[DELAY] = str(level)
        if reason is not None:
            properties[REASON] = reason_text(reason)
        try:
            route = await self._session.routes.for_writing(topic)
            queues = route.writable  # of a topic to be made only the first is sure to be there
            queue = queues[0] if route.is_provisional else self._session.random.choice(queues)
            header = SendHeaderV2(
                group=INNER_GROUP,
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_queue_count=DEFAULT_QUEUE_COUNT,
                queue_id=queue.queue_id,
                system_flag=message.system_flag & BODY_FLAGS,
                born_at_ms=self._session.clock.wall_ms(),
                flag=message.flag,
                properties=encode_properties(properties),
                reconsume_times=message.reconsume_times + 1,
                unit_mode=False,
                reconsume_times_max=tries_max,
                is_batch=False,
                broker_name=queue.broker_name,
            )
            command = request(RequestCode.SEND_MESSAGE_V2, header, message.stored_body)
            await self._session.call(
                route.master(queue.broker_name),
                command,
                timeout_s=SEND_BACK_TIMEOUT_S,
                accept=STORED,
            )
        except ClientError as error:
            log.warning("message not given back, will be tried here message=%r: %s", message, error)
            return False
        return True
