"""Linger batching: sends of one moment travel together and each hears of its own message.

A message waits for others of its topic for `linger` at most; its batch leaves sooner when it is
full. With 0 it waits only for what is sent in the same turn of the event loop. Messages that a
batch cannot hold (delayed, long enough to be compressed, for a retry topic) travel alone.

`add` takes any message. `join` is a shortcut for the many that are but a topic and some bytes and
find a batch of their topic open: what they have in common with its first message was checked then.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from ariane.client.courier import Choice, Courier
from ariane.client.hot_sends import BatchBody
from ariane.client.messages import Message, SendReceipt, body_of, check
from ariane.client.parcels import Kind, Parcel, batch_properties, properties_text
from ariane.client.room import Room
from ariane.client.session import Session
from ariane.client.settings import SendSettings
from ariane.clock import Timer
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue
from ariane.topics import is_retry_or_dead_letter

PLAIN_BYTES: Final = 150  # what a message that is but a body takes besides, at most

Key = tuple[str, MessageQueue | None, bool]  # topic, the queue if one was chosen, wait


@dataclass(slots=True)
class _Batch:
    """Messages that will travel together."""

    body: BatchBody = field(default_factory=BatchBody)
    message_ids: list[str] = field(default_factory=list)
    futures: list[asyncio.Future[SendReceipt]] = field(default_factory=list)
    room_bytes: int = 0
    timer: Timer | None = None


class Batcher:
    """Gathers the sends of one producer; what is on its way takes up the room."""

    def __init__(
        self, session: Session, courier: Courier, settings: SendSettings, room: Room
    ) -> None:
        assert settings.linger is not None
        self.has_left = False  # a batch, since this was last set
        self._room = room
        self._session = session
        self._courier = courier
        self._settings = settings
        self._linger_s = settings.linger
        self._bytes_max = min(settings.batch_bytes_max, settings.message_bytes_max)
        self._count_max = settings.batch_count_max
        self._alone_from_bytes = (
            settings.message_bytes_max + 1
            if settings.compression is None
            else settings.compress_from_bytes
        )
        self._open: dict[Key, _Batch] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """Whether the message may travel with others."""
        return not (
            message.is_delayed
            or is_retry_or_dead_letter(message.topic)
            or len(message.body) >= self._alone_from_bytes
        )

    def join(self, topic: str, body: object) -> asyncio.Future[SendReceipt] | None:
        """Put a message without further fields into the open batch; None when it must be added."""
        batch = self._open.get((topic, None, True))
        if (
            batch is None
            or type(body) is not bytes
            or not 0 < len(body) < self._alone_from_bytes
            or batch.body.size + len(body) + PLAIN_BYTES > self._bytes_max
        ):
            return None
        session = self._session
        message_id = batch.body.add_plain(body, session.unique_keys.maker, session.clock.wall_ms())
        return self._enter((topic, None, True), batch, message_id, len(body))

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendReceipt]:
        """Put the message into a batch; the future ends with its own receipt."""
        check(message, self._settings.message_bytes_max)
        body = body_of(message)
        message_id = self._session.unique_keys.next()
        properties = properties_text(message, message_id)
        key = (message.topic, queue, message.wait)
        batch = self._open.get(key)
        # Every character may take four bytes; a batch that might be too long leaves first.
        size = len(body) + len(properties) * 4 + 22
        if batch is not None and batch.body.size + size > self._bytes_max:
            self._send(key)
            batch = None
        if batch is None:
            batch = self._begin(key)
        batch.body.add(body, properties, message.flag)
        return self._enter(key, batch, message_id, len(body))

    async def flush(self) -> None:
        """Send every batch as it is, and wait until none is on its way."""
        for key in list(self._open):
            self._send(key)
        while self._leaving:
            await asyncio.wait(self._leaving)

    def _enter(
        self, key: Key, batch: _Batch, message_id: str, body_bytes: int
    ) -> asyncio.Future[SendReceipt]:
        """Note who waits for a message that is in the batch's body now."""
        batch.message_ids.append(message_id)
        future: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        batch.futures.append(future)
        batch.room_bytes += body_bytes
        self._room.used += body_bytes
        if batch.body.count >= self._count_max or batch.body.size >= self._bytes_max:
            self._send(key)
        return future

    def _begin(self, key: Key) -> _Batch:
        batch = self._open[key] = _Batch()
        batch.timer = self._session.timers.after(self._linger_s, lambda: self._send(key))
        return batch

    def _send(self, key: Key) -> None:
        batch = self._open.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        topic, queue, wait = key
        parcel = Parcel(
            topic,
            batch.body.take(),
            batch_properties(self._session.unique_keys.next(), wait=wait),
            batch.message_ids,
            self._session.clock.wall_ms(),
            kind=Kind.BATCH,
        )
        self.has_left = True
        leaving = self._session.spawn(
            self._deliver(parcel, queue, batch.futures), f"a batch for {topic}"
        )
        self._leaving.add(leaving)
        leaving.add_done_callback(lambda done: self._ended(done, batch.room_bytes))

    def _ended(self, leaving: asyncio.Task[None], room_bytes: int) -> None:
        self._leaving.discard(leaving)
        self._room.give(room_bytes)

    async def _deliver(
        self, parcel: Parcel, choice: Choice, futures: list[asyncio.Future[SendReceipt]]
    ) -> None:
        try:
            receipts = await self._courier.deliver(parcel, choice, self._settings.timeout)
        except ClientError as error:
            for future in futures:
                if not future.done():
                    future.set_exception(copy(error))
            return
        except BaseException:  # nobody may be left waiting
            for future in futures:
                future.cancel()
            raise
        assert isinstance(receipts, list)
        for future, receipt in zip(futures, receipts, strict=True):
            if not future.done():
                future.set_result(receipt)
