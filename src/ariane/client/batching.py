"""Linger batching: sends of one moment travel together and each hears of its own message.

A message waits for others of its topic for `linger_ms` at most; its batch leaves sooner when it is
full. With 0 it waits only for what is sent in the same turn of the event loop. Messages that a
batch cannot hold (delayed, long enough to be compressed, for a retry topic) travel alone.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass, field

from ariane.client.courier import Choice, Courier
from ariane.client.messages import BODY_BYTES_MAX, Message, SendReceipt, body_of, check
from ariane.client.parcels import Kind, Parcel, batch_properties, properties_text
from ariane.client.session import Session
from ariane.client.settings import SendSettings
from ariane.clock import Timer
from ariane.errors import ClientError
from ariane.kernel.client import BatchBody
from ariane.protocol.bodies import MessageQueue
from ariane.topics import is_retry_or_dead_letter

Key = tuple[str, MessageQueue | None, bool]  # topic, the queue if one was chosen, wait


@dataclass(slots=True)
class _Batch:
    """Messages that will travel together."""

    body: BatchBody = field(default_factory=BatchBody)
    message_ids: list[str] = field(default_factory=list)
    futures: list[asyncio.Future[SendReceipt]] = field(default_factory=list)
    timer: Timer | None = None


class Batcher:
    """Gathers the sends of one producer."""

    def __init__(self, session: Session, courier: Courier, settings: SendSettings) -> None:
        assert settings.linger_ms is not None
        self._session = session
        self._courier = courier
        self._settings = settings
        self._linger_s = settings.linger_ms / 1000
        self._bytes_max = min(settings.batch_bytes_max, BODY_BYTES_MAX)
        self._open: dict[Key, _Batch] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """Whether the message may travel with others."""
        return not (
            message.is_delayed
            or is_retry_or_dead_letter(message.topic)
            or (
                self._settings.compression is not None
                and len(message.body) >= self._settings.compress_from_bytes
            )
        )

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendReceipt]:
        """Put the message into a batch; the future ends with its own receipt."""
        check(message)
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
        batch.message_ids.append(message_id)
        future: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        batch.futures.append(future)
        if batch.body.count >= self._settings.batch_count_max or batch.body.size >= self._bytes_max:
            self._send(key)
        return future

    async def flush(self) -> None:
        """Send every batch as it is, and wait until none is on its way."""
        for key in list(self._open):
            self._send(key)
        while self._leaving:
            await asyncio.wait(self._leaving)

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
        leaving = self._session.spawn(
            self._deliver(parcel, queue, batch.futures), f"a batch for {topic}"
        )
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

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
