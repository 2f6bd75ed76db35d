"""Sending: choose a queue, try, and try another when the broker or the network says no.

A send that times out or loses its connection may have been carried out, so a retry can store the
message twice; its `message_id` is the same both times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ariane.client.faults import FaultTable, choose_queue
from ariane.client.messages import (
    BODY_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    Message,
    SendReceipt,
    SendStatus,
    check,
    compressed,
    dressed_properties,
)
from ariane.client.queues import Selector
from ariane.client.routes import DEFAULT_QUEUE_COUNT, TopicRoute
from ariane.client.session import Session
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    ClientError,
    ConnectionLost,
    InvalidMessage,
    RequestFailed,
    RequestTimeout,
)
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import Command, request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2, SendReply
from ariane.protocol.message import BatchEntry, encode_batch, encode_properties
from ariane.topics import AUTO_CREATE_TOPIC, group_fault

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
SEND_TIMEOUT_S: Final = 3.0
STORED: Final = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
# Another broker may well take what this one refused with these (RocketMQ's own set).
RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        204,  # NO_BUYER_ID
        205,  # NOT_IN_CURRENT_UNIT
        ResponseCode.GO_AWAY,
    }
)


class _Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """A message, or a batch, ready to travel to whichever queue is chosen."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    system_flag: int = 0
    flag: int = 0
    is_batch: bool = False


class Producer:
    """Sends messages as a member of one producer group; made by `Client.producer`."""

    def __init__(self, session: Session, group: str = DEFAULT_GROUP, *, retries: int = 2) -> None:
        if fault := group_fault(group):
            raise ClientError(fault)
        self.group = group
        self.retries = retries
        self._session = session
        self._faults = FaultTable()
        self._turn = session.random.randrange(1 << 16)
        session.add_producer(group)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> SendReceipt:
        """Send and wait until a broker has it, as safe as that broker's settings make it.

        Queues take turns unless `queue` or `selector` chooses; then retries keep to the choice.
        """
        return await self._deliver(self._parcel(message), queue, selector, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> SendReceipt:
        """Send messages of one topic in one request, next to each other in one queue."""
        return await self._deliver(self._batch(messages), queue, selector, timeout_s)

    async def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without waiting; nobody will tell whether it was stored."""
        parcel = self._parcel(message)
        route = await self._session.routes.for_writing(parcel.topic)
        chosen = self._choose(route, queue, selector, None)
        command = self._command(parcel, chosen, one_way=True)
        await self._session.post(route.master(chosen.broker_name), command)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues a send to this topic may go to now."""
        return list((await self._session.routes.for_writing(topic)).writable)

    async def _deliver(
        self,
        parcel: _Parcel,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float,
    ) -> SendReceipt:
        clock = self._session.clock
        deadline_s = clock.monotonic_s() + timeout_s
        tried: list[str] = []
        while True:
            route = await self._session.routes.for_writing(parcel.topic)
            chosen = self._choose(route, queue, selector, tried[-1] if tried else None)
            remaining_s = deadline_s - clock.monotonic_s()
            try:
                return await self._attempt(parcel, route, chosen, remaining_s)
            except (ConnectionLost, RequestTimeout, RequestFailed) as error:
                tried.append(chosen.broker_name)
                is_final = isinstance(error, RequestFailed) and error.code not in RETRIED_CODES
                is_late = clock.monotonic_s() >= deadline_s
                if is_final or is_late or len(tried) > self.retries:
                    raise _explained(error, parcel.topic, tried) from error
                self._session.refresh_route(parcel.topic)

    async def _attempt(
        self, parcel: _Parcel, route: TopicRoute, queue: MessageQueue, timeout_s: float
    ) -> SendReceipt:
        clock = self._session.clock
        start_s = clock.monotonic_s()
        try:
            answer = await self._session.call(
                route.master(queue.broker_name),
                self._command(parcel, queue),
                timeout_s=timeout_s,
                accept=STORED,
            )
        except ClientError:
            self._faults.failed(queue.broker_name, now_s=clock.monotonic_s())
            raise
        now_s = clock.monotonic_s()
        self._faults.answered(queue.broker_name, now_s - start_s, now_s=now_s)
        stored = decode_header(SendReply, answer.ext)
        return SendReceipt(
            status=STORED[ResponseCode(answer.code)],
            message_id=parcel.message_id,
            offset_message_id=stored.message_id,
            queue=replace(queue, queue_id=stored.queue_id),
            queue_offset=stored.queue_offset,
        )

    def _choose(
        self,
        route: TopicRoute,
        queue: MessageQueue | None,
        selector: Selector | None,
        last_broker: str | None,
    ) -> MessageQueue:
        if queue is not None:
            return queue
        if selector is not None:
            return selector(route.writable)
        self._turn += 1
        now_s = self._session.clock.monotonic_s()
        return choose_queue(
            route.writable, self._turn, self._faults, now_s=now_s, last_broker=last_broker
        )

    def _parcel(self, message: Message) -> _Parcel:
        check(message)
        unique_key = self._session.unique_keys.next()
        body, system_flag = compressed(message.body)
        return _Parcel(
            topic=message.topic,
            body=body,
            properties=_properties_text(message, unique_key),
            message_id=unique_key,
            system_flag=system_flag,
            flag=message.flag,
        )

    def _batch(self, messages: Sequence[Message]) -> _Parcel:
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise InvalidMessage(
                f"a batch goes to one topic, this one names {sorted(topics) or 'none'};"
                " send one batch for each"
            )
        entries, keys = [], []
        for message in messages:
            check(message)
            keys.append(self._session.unique_keys.next())
            entries.append(
                BatchEntry(
                    flag=message.flag,
                    body=message.body,
                    properties=_properties_text(message, keys[-1]),
                )
            )
        body = encode_batch(entries)
        if len(body) > BODY_BYTES_MAX:
            raise InvalidMessage(
                f"a batch of {len(body):,} bytes is over the {BODY_BYTES_MAX:,} a broker takes;"
                " send it in smaller batches"
            )
        properties = encode_properties(
            {
                "UNIQ_KEY": self._session.unique_keys.next(),
                "WAIT": "true" if all(message.wait for message in messages) else "false",
            }
        )
        return _Parcel(
            topic=topics.pop(),
            body=body,
            properties=properties,
            message_id=",".join(keys),
            is_batch=True,
        )

    def _command(self, parcel: _Parcel, queue: MessageQueue, *, one_way: bool = False) -> Command:
        header = SendHeaderV2(
            group=self.group,
            topic=parcel.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_queue_count=DEFAULT_QUEUE_COUNT,
            queue_id=queue.queue_id,
            system_flag=parcel.system_flag,
            born_at_ms=self._session.clock.wall_ms(),
            flag=parcel.flag,
            properties=parcel.properties,
            reconsume_times=0,
            unit_mode=False,
            is_batch=parcel.is_batch,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if parcel.is_batch else RequestCode.SEND_MESSAGE_V2
        return request(code, header, parcel.body, one_way=one_way)


def _properties_text(message: Message, unique_key: str) -> str:
    text = encode_properties(dressed_properties(message, unique_key))
    # A character takes at most four bytes, so a short text need not be encoded to be measured.
    if len(text) * 4 > PROPERTIES_BYTES_MAX and len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(
            f"properties, tags and keys take {len(text.encode()):,} bytes of at most"
            f" {PROPERTIES_BYTES_MAX:,}; put what is long into the body"
        )
    return text


_ADVICE: Final[dict[type[ClientError], str]] = {
    RequestTimeout: "it may have been stored, and sending it again may store it twice",
    ConnectionLost: "is the broker running and reachable from here?",
}


def _explained(error: ClientError, topic: str, tried: Sequence[str]) -> ClientError:
    """The same error, telling what was tried and what to do."""
    count = f"{len(tried)} attempts" if len(tried) > 1 else "one attempt"
    brokers = ", ".join(dict.fromkeys(tried))
    what = f"sending to {topic!r} failed after {count} ({brokers}): "
    if isinstance(error, RequestFailed):
        return RequestFailed.of(error.code, what + error.remark)
    return type(error)(f"{what}{error}; {_ADVICE[type(error)]}")
