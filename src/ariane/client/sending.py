"""Sending: one by one, in batches, with an answer or without, for one producer group."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Mapping, Sequence
from typing import Final, Unpack, cast

from ariane.client.batching import Batcher
from ariane.client.courier import Choice, Courier, Outcome
from ariane.client.faults import SLOW_S
from ariane.client.hot_sends import Waiting
from ariane.client.messages import (
    NOTHING,
    Body,
    Message,
    MessageFields,
    SendReceipt,
    check,
    message_of,
    properties_of,
)
from ariane.client.parcels import Kind, Parcel, pack, pack_batch
from ariane.client.queues import Selector, by_hash
from ariane.client.room import Room
from ariane.client.session import Session
from ariane.client.settings import SendSettings
from ariane.client.times import Duration, seconds_of
from ariane.client.trace import MessageKind, Tracer
from ariane.errors import (
    ConnectionLost,
    InvalidArgument,
    InvalidMessage,
    RequestTimeout,
)
from ariane.protocol.bodies import MessageQueue
from ariane.topics import group_fault

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
SUBMITTED_BYTES_MAX: Final = 64 << 20


class Sending:
    """What a producer sends for consumers to find."""

    def __init__(
        self,
        session: Session,
        group: str,
        settings: SendSettings,
        *,
        tracer: Tracer | None = None,
    ) -> None:
        if fault := group_fault(group):
            raise InvalidArgument(fault)
        self.group = group
        self.settings = settings
        self._session = session
        self._tracer = tracer
        self.courier = Courier(session, group, settings)
        self._batcher: Batcher | None = None
        self._room = Room(SUBMITTED_BYTES_MAX)
        if settings.linger is not None:
            self._batcher = Batcher(session, self.courier, settings, self._room)
        self._is_plain = self._batcher is None and tracer is None
        self._submitted: set[asyncio.Task[SendReceipt]] = set()

    async def send(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send and wait until a broker has it, as safe as that broker's settings make it.

        Takes a topic and a body, or a Message; the fields are those of `Message`. Queues take turns
        unless `queue`, `selector` or a sharding key chooses; then retries keep to the choice.
        """
        if (
            self._is_plain
            and queue is None
            and selector is None
            and self._session.loop is get_running_loop()
        ):
            timeout_s = self.settings.timeout if timeout is None else seconds_of(timeout)
            if fields or isinstance(topic, Message):
                waiting = self._begin(message_of(topic, body, fields), timeout_s)
            else:
                waiting = self.courier.begin(topic, body, "", True, 0, timeout_s)
            if waiting is not None:
                try:
                    outcome = await waiting.future
                except (ConnectionLost, RequestTimeout) as error:
                    outcome = error
                if outcome.__class__ is SendReceipt and waiting.latency_s < SLOW_S:
                    return outcome
                message = message_of(topic, body, fields)
                return await self._go_on(message, waiting, outcome, timeout_s)
        batcher = self._batcher if timeout is None else None
        if batcher is not None and queue is None and selector is None and not fields:
            future = self._join(batcher, topic, body)
            if future is not None:
                return await future
        message = message_of(topic, body, fields)
        choice = choice_of(message, queue, selector)
        if batcher is not None and batcher.takes(message):
            return await (await self._gather(batcher, message, choice))
        return await self._send(message, choice, timeout)

    async def submit(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> asyncio.Future[SendReceipt]:
        """Hand a message over and go on; the future ends with its receipt or its error.

        Waits only while too much that was submitted is still under way.
        """
        if self._room.is_full:
            await self._room.wait()
        batcher = self._batcher if timeout is None else None
        if batcher is not None:
            if batcher.has_left:
                # Who only ever submits would keep the loop from sending what has gathered.
                batcher.has_left = False
                await asyncio.sleep(0)
            if queue is None and selector is None and not fields:
                future = self._join(batcher, topic, body)
                if future is not None:
                    return future
        message = message_of(topic, body, fields)
        choice = choice_of(message, queue, selector)
        if batcher is not None and batcher.takes(message):
            return await self._gather(batcher, message, choice)
        size = len(message.body)
        self._room.take(size)
        task = asyncio.create_task(self._send(message, choice, timeout))
        self._submitted.add(task)
        task.add_done_callback(lambda done: self._ended(done, size))
        return task

    def _ended(self, submitted: asyncio.Task[SendReceipt], size: int) -> None:
        self._submitted.discard(submitted)
        self._room.give(size)

    async def send_one_way(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send without an answer; nobody will tell whether it was stored."""
        message = message_of(topic, body, fields)
        parcel = self._packed(message, kind=Kind.ONE_WAY)
        choice = choice_of(message, queue, selector)
        await self.courier.post(parcel, choice, self.settings.timeout)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request: side by side in one queue, or not at all.

        One receipt for each, in their order.
        """
        started_ms = self._session.clock.wall_ms()
        keys, bytes_max = self._session.unique_keys, self.settings.message_bytes_max
        parcel = pack_batch(messages, keys.next, started_ms, bytes_max)
        sharding_keys = {message.sharding_key for message in messages}
        if len(sharding_keys) > 1 and queue is None and selector is None:
            raise InvalidMessage(
                "a batch goes to one queue, and messages with different sharding keys may not;"
                " send one batch for each key"
            )
        choice = choice_of(messages[0], queue, selector)
        receipts = cast(
            list[SendReceipt],
            await self.courier.deliver(parcel, choice, self._timeout_s(timeout)),
        )
        if self._tracer is not None:
            for message, receipt in zip(messages, receipts, strict=True):
                self._tracer.sent(self.group, message, receipt, started_ms, MessageKind.NORMAL)
        return receipts

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues a send to this topic may go to now."""
        return list((await self._session.routes.for_writing(topic)).writable)

    async def flush(self) -> None:
        """Wait until everything submitted so far has ended, well or not."""
        if self._batcher is not None:
            await self._batcher.flush()
        while self._submitted:
            await asyncio.wait(self._submitted)

    def parcel_alone(self, message: Message) -> Parcel | None:
        """The message packed for a request of its own; None when it is to be gathered or traced."""
        if self._batcher is not None or self._tracer is not None:
            return None
        return self._packed(message)

    async def _send(
        self,
        message: Message,
        choice: Choice,
        timeout: Duration | None,
        *,
        extra: Mapping[str, str] = NOTHING,
        system_flag: int = 0,
        kind: Kind = Kind.PLAIN,
        traced_as: MessageKind | None = None,
    ) -> SendReceipt:
        parcel = self._packed(message, extra=extra, system_flag=system_flag, kind=kind)
        timeout_s = self._timeout_s(timeout)
        receipt = cast(SendReceipt, await self.courier.deliver(parcel, choice, timeout_s))
        if self._tracer is not None:
            self._tracer.sent(self.group, message, receipt, parcel.born_ms, traced_as)
        return receipt

    def _packed(
        self,
        message: Message,
        *,
        extra: Mapping[str, str] = NOTHING,
        system_flag: int = 0,
        kind: Kind = Kind.PLAIN,
    ) -> Parcel:
        now_ms = self._session.clock.wall_ms()
        message_id = self._session.unique_keys.at(now_ms)
        return pack(
            message,
            message_id,
            now_ms,
            self.settings,
            extra=extra,
            system_flag=system_flag,
            kind=kind,
        )

    def _begin(self, message: Message, timeout_s: float) -> Waiting | None:
        """Begin a send of a message that goes to whichever queue is next."""
        if message.sharding_key:
            return None
        check(message, self.settings.message_bytes_max)
        properties = properties_of(message)
        try:
            return self.courier.begin(
                message.topic, message.body, properties, message.wait, message.flag, timeout_s
            )
        except UnicodeEncodeError:
            return None  # the whole way says what is wrong

    async def _go_on(
        self, message: Message, waiting: Waiting, outcome: Outcome, timeout_s: float
    ) -> SendReceipt:
        assert isinstance(waiting.message_ids, str)
        parcel = pack(message, waiting.message_ids, waiting.born_ms, self.settings)
        return await self.courier.go_on(parcel, waiting, outcome, timeout_s)

    def _join(
        self, batcher: Batcher, topic: str | Message, body: Body | None
    ) -> asyncio.Future[SendReceipt] | None:
        """Let a message travel with others that needs no look; None when it needs one."""
        if type(topic) is not str or self._tracer is not None:
            return None
        return batcher.join(topic, body)

    async def _gather(
        self, batcher: Batcher, message: Message, choice: Choice
    ) -> asyncio.Future[SendReceipt]:
        """Let the message travel with others."""
        queue = choice if choice is None or isinstance(choice, MessageQueue) else None
        if queue is not choice:
            queue = await self.courier.queue_for(message.topic, cast(Selector, choice))
        future = batcher.add(message, queue)
        if self._tracer is not None:
            future.add_done_callback(
                self._tracer.when_sent(self.group, message, self._session.clock.wall_ms())
            )
        return future

    def _timeout_s(self, timeout: Duration | None) -> float:
        return self.settings.timeout if timeout is None else seconds_of(timeout)


def choice_of(message: Message, queue: MessageQueue | None, selector: Selector | None) -> Choice:
    """Who chooses the queue: the caller, by name or by rule, else the sharding key, else turns."""
    if queue is not None:
        return queue
    if selector is not None:
        return selector
    return by_hash(message.sharding_key) if message.sharding_key else None
