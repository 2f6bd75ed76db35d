"""Messages as consumers get them, and how one says what became of it.

What a lite pull consumer polls is only read: its progress is a position. Every message that a
member of a group receives is settled once, by `ack` or `nack`; what was not is delivered again some
day. `async with message:` does it by how the block ends.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol, Self

from ariane.client.records import Record
from ariane.client.session import Session
from ariane.client.times import Duration, renamed, seconds_of
from ariane.codes import SystemFlag
from ariane.protocol.compression import inflate_body
from ariane.protocol.identifiers import Host, decode_host, encode_offset_id
from ariane.protocol.message import BODY_BYTES_MAX
from ariane.protocol.message_queue import MessageQueue
from ariane.protocol.readable import Readable
from ariane.topics import RETRY_PREFIX


class Origin(Protocol):
    """Whoever gave a message out."""

    def queue_of(self, message: PolledMessage) -> MessageQueue:
        """The queue it came from."""
        ...


class Holder(Origin, Protocol):
    """Whoever gave a message out and waits to hear what became of it."""

    @property
    def session(self) -> Session:
        """The client that it came to."""
        ...

    async def ack(self, message: ReceivedMessage) -> None:
        """It has been consumed."""
        ...

    async def nack(self, message: ReceivedMessage, delay_s: float | None) -> None:
        """It has not; deliver it again after a while."""
        ...

    async def extend(self, message: ReceivedMessage, for_s: float | None) -> None:
        """It takes longer."""
        ...


class PolledMessage(Record, Readable):
    """One message to read; nobody waits to hear what became of it."""

    __slots__ = ("inflated_body",)

    holder: Origin

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes back from a group's retry topic."""
        topic = self.stored_topic
        if topic.startswith(RETRY_PREFIX):
            return self.find(b"RETRY_TOPIC") or topic
        return topic

    @property
    def queue(self) -> MessageQueue:
        """The queue it came from."""
        return self.holder.queue_of(self)

    @property
    def body(self) -> bytes:
        """The body as its producer had it; raises ProtocolError when it cannot be inflated."""
        if not self.system_flag & SystemFlag.COMPRESSED:
            return self.stored_body
        try:
            return self.inflated_body
        except AttributeError:
            self.inflated_body: bytes = inflate_body(
                self.stored_body, self.system_flag, size_max=BODY_BYTES_MAX
            )
            return self.inflated_body

    @property
    def message_id(self) -> str:
        """The id the producer gave it, or else the offset id."""
        return self.find(b"UNIQ_KEY") or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that says where the record is."""
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def tags(self) -> str | None:
        """The tag it was sent with."""
        return self.find(b"TAGS")

    @property
    def keys(self) -> list[str]:
        """The keys it was sent with."""
        return (self.find(b"KEYS") or "").split()

    @property
    def sharding_key(self) -> str | None:
        """What its order was kept by."""
        return self.find(b"__SHARDINGKEY")

    @property
    def born_host(self) -> Host:
        """Where it was sent from."""
        return decode_host(self.born_host_bytes)

    @property
    def store_host(self) -> Host:
        """The broker that stored it."""
        return decode_host(self.store_host_bytes)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r} queue_id={self.queue_id}"
            f" queue_offset={self.queue_offset} message_id={self.message_id!r}"
            f" tags={self.tags!r} tries={self.reconsume_times + 1}"
            f" body={len(self.stored_body)} bytes)"
        )


class ReceivedMessage(PolledMessage):
    """One message to consume: read it, then say what became of it."""

    __slots__ = ("handle",)

    holder: Holder
    handle: str  # what a message that is only lent is known by; the others have none

    @property
    def is_settled(self) -> bool:
        """Whether it has been said what became of it."""
        return self.is_done

    async def ack(self) -> None:
        """Say that it has been consumed."""
        await self.holder.ack(self)

    @renamed(delay_s="delay")
    async def nack(self, delay: Duration | None = None) -> None:
        """Say that it has not been consumed: deliver it again, after `delay` or as is usual."""
        await self.holder.nack(self, None if delay is None else seconds_of(delay))

    @renamed(for_s="duration")
    async def extend(self, duration: Duration | None = None) -> None:
        """Ask for more time: so much from now on, or as much again as there was."""
        await self.holder.extend(self, None if duration is None else seconds_of(duration))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_done:
            return
        if kind is None:
            await self.holder.ack(self)
        elif issubclass(kind, Exception | asyncio.CancelledError):
            # Whole even when cancelled once more: else it would stay unsettled until it is stuck.
            await asyncio.shield(self.holder.nack(self, None))
