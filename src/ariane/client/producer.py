"""A producer: what it sends (`sending.py`), and what it does besides with brokers and consumers."""

from __future__ import annotations

import asyncio
import math
from typing import Unpack

from ariane.client.messages import Body, Message, MessageFields, SendReceipt, message_of
from ariane.client.parcels import Kind
from ariane.client.queues import Selector
from ariane.client.requests import Received, Requests, reply_properties
from ariane.client.sending import DEFAULT_GROUP, Sending, choice_of
from ariane.client.session import Session
from ariane.client.settings import SendSettings
from ariane.client.times import Duration, seconds_of
from ariane.client.trace import MessageKind, Tracer
from ariane.client.transactions import FIRST_CHECK_PROPERTY, Checkers, Transaction
from ariane.codes import RequestCode, SystemFlag
from ariane.errors import InvalidMessage, ProtocolError, RouteNotFound
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.recall import RecallHeader, RecallReply
from ariane.protocol.message import StoredMessage
from ariane.protocol.properties import HALF, PRODUCER_GROUP
from ariane.protocol.recall_handle import decode_recall_handle

__all__ = ["DEFAULT_GROUP", "Producer", "choice_of"]


class Producer(Sending):
    """Sends messages as a member of one producer group; made by `Client.producer`."""

    def __init__(
        self,
        session: Session,
        group: str,
        settings: SendSettings,
        *,
        requests: Requests,
        checkers: Checkers,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(session, group, settings, tracer=tracer)
        self._requests = requests
        self._checkers = checkers
        self.topics: set[str] = set()  # that must be there when it starts

    async def start(self) -> None:
        """Look for the topics that the producer was made for; raises RouteNotFound.

        A client that opens does it for its producers. Sends would find out too, but later.
        """
        faults = await asyncio.gather(*map(self._fault_of, sorted(self.topics)))
        if found := [fault for fault in faults if fault is not None]:
            raise RouteNotFound(f"producer {self.group!r} cannot start: {'; '.join(found)}")

    async def _fault_of(self, topic: str) -> str | None:
        try:
            route = await self._session.routes.for_reading(topic)
        except RouteNotFound as error:
            return str(error)
        return None if route.writable else f"topic {topic!r} has no queue to write to now"

    def transaction(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
        check_after: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> Transaction:
        """A message that consumers see if the block around it succeeds, and only then.

        The group needs a checker (`Client.checker`), for transactions whose end is lost. When no
        answer tells whether the half message was stored, it is not sent again. `check_after` is how
        long the block may take before the broker first asks, if not as long as its settings say.
        """
        message = message_of(topic, body, fields)
        if message.is_delayed:
            raise InvalidMessage("the message of a transaction cannot be delayed")
        self._checkers.must_know(self.group)
        extra = {HALF: "true", PRODUCER_GROUP: self.group}
        if check_after is not None:
            extra[FIRST_CHECK_PROPERTY] = str(math.ceil(seconds_of(check_after)))
        timeout_s = self._timeout_s(timeout)

        async def prepare() -> SendReceipt:
            return await self._send(
                message,
                choice_of(message, queue, selector),
                timeout_s,
                extra=extra,
                system_flag=SystemFlag.TRANSACTION_PREPARED,
                traced_as=MessageKind.HALF,
            )

        return Transaction(
            self._session, self.group, message, prepare, timeout_s=timeout_s, tracer=self._tracer
        )

    async def request(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> StoredMessage:
        """Send a message and wait for the reply that its consumer makes."""
        message = message_of(topic, body, fields)
        pending = self._requests.begin(self._timeout_s(timeout))
        self._session.add_producer(self.group)
        with pending as reply:
            await self._requests.be_known(message.topic)
            choice = choice_of(message, queue, selector)
            await self._send(message, choice, pending.remaining_s, extra=pending.properties)
            return await reply

    async def reply(
        self,
        to: Received,
        body: Body,
        *,
        timeout: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        topic, properties = reply_properties(to)
        return await self._send(
            message_of(topic, body, fields),
            None,
            timeout,
            extra=properties,
            kind=Kind.REPLY,
        )

    async def recall(self, what: SendReceipt | str, *, timeout: Duration | None = None) -> str:
        """Take back a message whose time has not come: by its receipt, or by its recall handle.

        Returns the id of what was taken back.
        """
        text = what.recall_handle if isinstance(what, SendReceipt) else what
        if not text:
            raise InvalidMessage(
                "the broker gave no recall handle; it does for messages with delay= or deliver_at=,"
                " if it can recall them at all"
            )
        try:
            handle = decode_recall_handle(text)
        except ProtocolError as error:
            raise InvalidMessage(str(error)) from error
        route = await self._session.routes.for_writing(handle.topic)
        header = RecallHeader(
            group=self.group,
            topic=handle.topic,
            recall_handle=text,
            broker_name=handle.broker_name,
        )
        answer = await self._session.call(
            route.master(handle.broker_name),
            request(RequestCode.RECALL_MESSAGE, header),
            timeout_s=self._timeout_s(timeout),
        )
        return decode_header(RecallReply, answer.ext).message_id
