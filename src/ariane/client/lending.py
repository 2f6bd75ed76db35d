"""Being lent messages by brokers, by RocketMQ's pop: any number share a topic, queue or no queue.

A message that is not acknowledged while it is invisible to others is lent again, to anybody; as
often as its group says, then its broker makes a dead letter of it. Nothing is kept here: brokers
know what is lent to whom, and for how long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ariane.client.popping import Handle, batch_acks, give_handles
from ariane.client.received import PolledMessage, ReceivedMessage
from ariane.client.records import decode
from ariane.client.retrying import LEVEL_DELAYS_S, Retry, SendBack
from ariane.client.routes import MASTER_ID, Address
from ariane.client.session import Session
from ariane.client.starting import Start
from ariane.client.subscription import EVERYTHING, Filter, filter_of, subscription_of
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, InvalidArgument
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerData, MessageQueue, SubscriptionData
from ariane.protocol.bodies.pop import BatchAckBody
from ariane.protocol.command import request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleHeader,
    ChangeInvisibleReply,
    NotificationHeader,
    NotificationReply,
    PopHeader,
    PopReply,
)
from ariane.protocol.headers.retry import SendBackHeader
from ariane.topics import group_fault, topic_fault

COUNT_MAX: Final = 32  # what brokers lend at a time
INVISIBLE_S: Final = 60.0
WAIT_S: Final = 15.0
ANSWER_S: Final = 10.0  # beyond the time that the broker may hold the request
ANY_QUEUE: Final = -1
DEAD: Final = -1  # the delay level that makes a dead letter
FIRST_DELAY: Final = 2  # position of the delay after the first try

_NOTHING: Final = frozenset(
    {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND}
)
_ANSWERS: Final = _NOTHING | {ResponseCode.SUCCESS}
# A message that is not there any more need not be acknowledged.
_ACKED: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})

log = logging.getLogger("ariane.client")


class Lender:
    """One broker as the lender of a topic's messages."""

    def __init__(self, lending: Lending, topic: str, broker_name: str) -> None:
        self.session = lending.session
        self.topic = topic
        self.broker_name = broker_name
        self.attempt_id: str | None = None  # of a pop whose answer was lost
        self._lending = lending

    def queue_of(self, message: PolledMessage) -> MessageQueue:
        """The queue it came from."""
        return MessageQueue(
            topic=self.topic, broker_name=self.broker_name, queue_id=message.queue_id
        )

    async def ack(self, message: ReceivedMessage) -> None:
        """It has been consumed."""
        await self._lending.ack([message])

    async def nack(self, message: ReceivedMessage, delay_s: float | None) -> None:
        """It has not; lend it again after a while, or make a dead letter of it."""
        await self._lending.give_back(message, delay_s)

    async def extend(self, message: ReceivedMessage, for_s: float | None) -> None:
        """It takes longer."""
        await self._lending.extend(message, for_s)


class Lending:
    """What one group is lent, for whoever consumes it."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        orderly: bool = False,
        start: Start = Start.LAST,
        retry: Retry | None = None,
        message_kind: type[ReceivedMessage] = ReceivedMessage,
        lender_kind: Callable[[Lending, str, str], Lender] = Lender,
    ) -> None:
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        self.group = group
        self.session = session
        self.message_kind = message_kind
        self._lender_kind = lender_kind
        self._orderly = orderly
        self._start = start
        self._retry = retry or Retry()
        self._send_back = SendBack(session, group, self._retry)
        self._filters: dict[str, tuple[Filter, int]] = {}
        self._lenders: dict[tuple[str, str], Lender] = {}

    def subscribe(self, topic: str, *, tags: str = EVERYTHING, sql: str | None = None) -> None:
        """Be lent messages of the topic too, or with another filter; brokers hear with `meet`."""
        if fault := topic_fault(topic):
            raise InvalidArgument(fault)
        self._filters[topic] = (filter_of(tags=tags, sql=sql), self.session.clock.wall_ms())

    def unsubscribe(self, topic: str) -> bool:
        """Be lent messages of the topic no more; whether it was subscribed."""
        return self._filters.pop(topic, None) is not None

    def meet(self) -> None:
        """Be a member of the group, as subscribed."""
        self.session.add_consumer(self._data())

    async def leave(self) -> None:
        """Be a member no more; what was lent may still be acknowledged."""
        await self.session.remove_consumer(self.group)

    def subscriptions(self) -> list[SubscriptionData]:
        """What is wanted of each topic, as brokers hear of it."""
        return [
            subscription_of(topic, wanted, version)
            for topic, (wanted, version) in self._filters.items()
        ]

    @property
    def topics(self) -> list[str]:
        """What is subscribed."""
        return list(self._filters)

    async def ack(self, messages: Iterable[ReceivedMessage]) -> None:
        """Say that these have been consumed."""
        open_ = [message for message in messages if not message.is_done]
        if len(open_) == 1:
            await self._ack_one(open_[0])
        elif open_:
            await self._ack_many(open_)
        for message in open_:
            message.is_done = True

    async def give_back(self, message: ReceivedMessage, delay_s: float | None = None) -> bool:
        """Say that it has not: lend it again after a while; True when it is a dead letter now."""
        if message.is_done:
            return False
        await self._send_back.tries.refresh(self._filters)
        if self._send_back.is_last(message):
            await self._bury(message)
            await self.ack([message])
            return True
        tries = message.reconsume_times
        if delay_s is None:
            delay_s = self._retry.delay_s(tries)
        if delay_s is None:
            delay_s = LEVEL_DELAYS_S[min(FIRST_DELAY + tries, len(LEVEL_DELAYS_S) - 1)]
        await self._change(message, delay_s)
        message.is_done = True
        return False

    async def reject(self, message: ReceivedMessage, reason: str) -> None:
        """Make a dead letter of a message that no try would help."""
        if not await self._send_back.bury(message, reason):
            await self._bury(message)  # without the reason
        await self.ack([message])

    async def extend(self, message: ReceivedMessage, for_s: float | None = None) -> None:
        """Be lent the message for `for_s` from now on, or as long again as it was."""
        if not message.is_done:
            lent_s = Handle.of(message.handle).invisible_ms / 1000
            await self._change(message, lent_s if for_s is None else for_s)

    async def lenders(self) -> list[Lender]:
        """Every broker of every topic."""
        lenders = [lender for topic in self.topics for lender in await self.lenders_of(topic)]
        if not lenders:
            raise ClientError("no broker has a queue of the topics that may be read now")
        return lenders

    async def lenders_of(self, topic: str) -> list[Lender]:
        """Every broker of the topic."""
        route = await self.session.routes.for_reading(topic)
        brokers = sorted({queue.broker_name for queue in route.readable})
        for broker in brokers:
            if (topic, broker) not in self._lenders:
                self._lenders[topic, broker] = self._lender_kind(self, topic, broker)
        return [self._lenders[topic, broker] for broker in brokers]

    async def pop(
        self, lender: Lender, count_max: int, invisible_s: float, *, wait_s: float
    ) -> list[ReceivedMessage]:
        """Up to so many messages of one broker; none when none came in time."""
        wanted, _ = self._filters.get(lender.topic, (Filter(), 0))
        if self._orderly and lender.attempt_id is None:
            lender.attempt_id = f"{self.session.random.getrandbits(128):032x}"
        header = PopHeader(
            group=self.group,
            topic=lender.topic,
            queue_id=ANY_QUEUE,
            count_max=count_max,
            invisible_ms=round(invisible_s * 1000),
            poll_ms=round(wait_s * 1000),
            born_ms=0,  # the broker's clock counts
            init_mode=0 if self._start.where == Start.FIRST.where else 1,
            expression_type=wanted.kind,
            expression=wanted.expression,
            is_ordered=self._orderly,
            attempt_id=lender.attempt_id,
        )
        answer = await self.session.call(
            await self._address(lender.topic, lender.broker_name),
            request(RequestCode.POP_MESSAGE, header),
            timeout_s=wait_s + ANSWER_S,
            accept=_ANSWERS,
        )
        lender.attempt_id = None  # what was asked for has been answered
        if answer.code in _NOTHING:
            return []
        messages = decode(answer.body, self.message_kind, lender)
        give_handles(
            messages,
            decode_header(PopReply, answer.ext),
            topic=lender.topic,
            broker_name=lender.broker_name,
        )
        accepted = wanted.accepted(messages)
        if len(accepted) < len(messages):  # tags that only share a hash are nobody's to keep
            await self.ack(set(messages) - set(accepted))
        return accepted

    async def notified(self, lender: Lender, wait_s: float) -> bool:
        """Wait until the broker has something; False when the time is up, or it cannot be asked."""
        header = NotificationHeader(
            group=self.group,
            topic=lender.topic,
            queue_id=ANY_QUEUE,
            poll_ms=round(wait_s * 1000),
            is_ordered=self._orderly,
        )
        try:
            answer = await self.session.call(
                await self._address(lender.topic, lender.broker_name),
                request(RequestCode.NOTIFICATION, header),
                timeout_s=wait_s + ANSWER_S,
            )
        except ClientError as error:
            log.info("no notification broker=%s: %s", lender.broker_name, error)
            await self.session.sleep(min(wait_s, 1.0))
            return False
        return decode_header(NotificationReply, answer.ext).has_message

    # Settling.

    async def _ack_one(self, message: ReceivedMessage) -> None:
        lender, handle = _lender(message), Handle.of(message.handle)
        header = AckHeader(
            group=self.group,
            topic=handle.stored_topic(lender.topic, self.group),
            queue_id=handle.queue_id,
            extra_info=message.handle,
            queue_offset=handle.queue_offset,
        )
        await self.session.call(
            await self._address(lender.topic, handle.broker_name),
            request(RequestCode.ACK_MESSAGE, header),
            accept=_ACKED,
        )

    async def _ack_many(self, messages: list[ReceivedMessage]) -> None:
        told = [(_lender(message).topic, message.handle) for message in messages]
        for (topic, broker), acks in batch_acks(told, self.group).items():
            body = BatchAckBody(acks=acks, broker_name=broker)
            await self.session.call(
                await self._address(topic, broker),
                request(RequestCode.BATCH_ACK_MESSAGE, body=fastjson.encode(body)),
                accept=_ACKED,
            )

    async def _change(self, message: ReceivedMessage, invisible_s: float) -> None:
        """Let the message be seen again in so long; it has a new handle then."""
        lender, handle = _lender(message), Handle.of(message.handle)
        header = ChangeInvisibleHeader(
            group=self.group,
            topic=handle.stored_topic(lender.topic, self.group),
            queue_id=handle.queue_id,
            extra_info=message.handle,
            queue_offset=handle.queue_offset,
            invisible_ms=round(invisible_s * 1000),
        )
        answer = await self.session.call(
            await self._address(lender.topic, handle.broker_name),
            request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header),
        )
        changed = decode_header(ChangeInvisibleReply, answer.ext)
        message.handle = str(
            handle.renewed(
                popped_ms=changed.popped_ms,
                invisible_ms=changed.invisible_ms,
                revive_queue_id=changed.revive_queue_id,
            )
        )

    async def _bury(self, message: ReceivedMessage) -> None:
        lender = _lender(message)
        header = SendBackHeader(
            log_offset=message.log_offset,
            group=self.group,
            delay_level=DEAD,
            origin_message_id=message.message_id,
            origin_topic=lender.topic,
            reconsume_times_max=self._retry.max,
            broker_name=lender.broker_name,
        )
        await self.session.call(
            await self._address(lender.topic, lender.broker_name),
            request(RequestCode.CONSUMER_SEND_MSG_BACK, header),
        )
        log.warning("dead letter group=%s %r", self.group, message)

    def _data(self) -> ConsumerData:
        return ConsumerData(
            group=self.group,
            consume_from_where=self._start.where,
            consume_type="CONSUME_POP",
            subscriptions=self.subscriptions(),
        )

    async def _address(self, topic: str, broker_name: str) -> Address:
        route = await self.session.routes.for_reading(topic)
        return route.replica(broker_name, MASTER_ID)

    def _now_s(self) -> float:
        return self.session.clock.monotonic_s()


def _lender(message: ReceivedMessage) -> Lender:
    assert isinstance(message.holder, Lender)
    return message.holder
