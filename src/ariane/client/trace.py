"""Message trace: what happened to which message, told to RocketMQ's trace topic in its own words.

A line has fields ended by U+0001 and is ended by U+0002; a trace message holds many lines, and has
as keys every message they are about. Tracing never holds up or fails what is traced: what cannot
be told is dropped and counted.
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final

import msgspec

from ariane.client.courier import Courier
from ariane.client.messages import Message, SendReceipt, SendStatus, keys_of
from ariane.client.parcels import pack
from ariane.client.routes import MASTER_ID
from ariane.client.session import Session
from ariane.client.settings import SendSettings
from ariane.errors import ClientError
from ariane.protocol.properties import NAME_END, VALUE_END
from ariane.topics import TRACE_TOPIC

TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
FLUSH_INTERVAL_S: Final = 0.5
LINES_MAX: Final = 2_048  # that wait to be told
BODY_CHARACTERS_MAX: Final = 118_000
KEYS_BYTES_MAX: Final = 24_000  # they are properties, of which a message has at most 32 KiB
SETTINGS: Final = SendSettings(timeout=5.0)

log = logging.getLogger("ariane.client")


class MessageKind(IntEnum):
    """RocketMQ's numbers for what a message is."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class TraceLine(msgspec.Struct, frozen=True):
    """One event: the fields after its name, and the keys it is to be found by."""

    name: str
    fields: tuple[object, ...]
    keys: tuple[str, ...]

    def encode(self) -> str:
        """The line as the trace topic holds it."""
        return NAME_END.join((self.name, *map(_text, self.fields))) + VALUE_END


def sent_line(
    *,
    at_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: Iterable[str],
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: MessageKind,
    offset_message_id: str,
    is_success: bool,
) -> TraceLine:
    """A message was sent."""
    names = tuple(keys)
    return TraceLine(
        "Pub",
        (
            *(at_ms, region, group, topic, message_id, tags, " ".join(names), store_host),
            *(body_bytes, cost_ms, int(kind), offset_message_id, is_success),
        ),
        (message_id, *names),
    )


def ended_line(
    *,
    at_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: Iterable[str],
    store_host: str,
    transaction_id: str,
    state: str,
    answers_check: bool,
) -> TraceLine:
    """A transaction ended: `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    names = tuple(keys)
    return TraceLine(
        "EndTransaction",
        (
            *(at_ms, region, group, topic, message_id, tags, " ".join(names), store_host),
            *(int(MessageKind.COMMITTED), transaction_id, state, answers_check),
        ),
        (message_id, *names),
    )


def consuming_line(
    *,
    at_ms: int,
    region: str,
    group: str,
    request_id: str,
    message_id: str,
    reconsume_times: int,
    keys: Iterable[str],
) -> TraceLine:
    """A consumer is given a message; `request_id` joins this line to the one that follows it."""
    names = tuple(keys)
    return TraceLine(
        "SubBefore",
        (at_ms, region, group, request_id, message_id, reconsume_times, " ".join(names)),
        (message_id, *names),
    )


def consumed_line(
    *,
    at_ms: int,
    group: str,
    request_id: str,
    message_id: str,
    cost_ms: int,
    is_success: bool,
    keys: Iterable[str],
    outcome: int,  # RocketMQ's: 0 success, 1 timeout, 2 exception, 3 no answer, 4 failed
) -> TraceLine:
    """A consumer has finished with a message."""
    names = tuple(keys)
    return TraceLine(
        "SubAfter",
        (request_id, message_id, cost_ms, is_success, " ".join(names), outcome, at_ms, group),
        (message_id, *names),
    )


def bodies_of(lines: Iterable[TraceLine]) -> Iterator[tuple[str, list[str]]]:
    """Bodies that hold the lines, each with its keys, cut where body or keys get long."""
    parts: list[str] = []
    keys: dict[str, None] = {}
    body_size = keys_size = 0
    for line in lines:
        text = line.encode()
        names = line.keys if _bytes_of(line.keys) <= KEYS_BYTES_MAX else line.keys[:1]
        if parts and (
            body_size + len(text) > BODY_CHARACTERS_MAX
            or keys_size + _bytes_of(names) > KEYS_BYTES_MAX
        ):
            yield "".join(parts), list(keys)
            parts, keys = [], {}
            body_size = keys_size = 0
        parts.append(text)
        keys.update(dict.fromkeys(names))
        body_size += len(text)
        keys_size += _bytes_of(names)
    if parts:
        yield "".join(parts), list(keys)


def _bytes_of(names: Iterable[str]) -> int:
    return sum(len(name.encode()) + 1 for name in names)


class Tracer:
    """Gathers lines and sends them in the background."""

    def __init__(self, session: Session, courier: Courier) -> None:
        self._session = session
        self._courier = courier
        self._lines: list[TraceLine] = []
        self._is_due = False
        self.dropped_count = 0

    def add(self, line: TraceLine) -> None:
        """Tell this, soon."""
        if len(self._lines) >= LINES_MAX:
            self.dropped_count += 1
            return
        self._lines.append(line)
        if not self._is_due:
            self._is_due = True
            self._session.timers.after(FLUSH_INTERVAL_S, self._flush_soon)

    def sent(
        self,
        group: str,
        message: Message,
        receipt: SendReceipt,
        started_ms: int,
        kind: MessageKind | None = None,
    ) -> None:
        """Tell of a message that was stored, unless its broker wants no traces."""
        if receipt.region is None:
            return
        self.add(
            sent_line(
                at_ms=started_ms,
                region=receipt.region,
                group=group,
                topic=message.topic,
                message_id=receipt.message_id,
                tags=message.tags,
                keys=keys_of(message),
                store_host=self._address_of(receipt),
                body_bytes=len(message.body),
                cost_ms=self._session.clock.wall_ms() - started_ms,
                kind=_kind_of(message) if kind is None else kind,
                offset_message_id=receipt.offset_message_id,
                is_success=receipt.status is SendStatus.OK,
            )
        )

    def when_sent(
        self, group: str, message: Message, started_ms: int
    ) -> Callable[[Future[SendReceipt]], None]:
        """A callback for a send's future, to tell of it."""

        def tell(future: Future[SendReceipt]) -> None:
            if not future.cancelled() and future.exception() is None:
                self.sent(group, message, future.result(), started_ms)

        return tell

    def ended(self, group: str, message: Message, receipt: SendReceipt, state: str) -> None:
        """Tell of a transaction's end."""
        if receipt.region is None:
            return
        self.add(
            ended_line(
                at_ms=self._session.clock.wall_ms(),
                region=receipt.region,
                group=group,
                topic=message.topic,
                message_id=receipt.message_id,
                tags=message.tags,
                keys=keys_of(message),
                store_host=self._address_of(receipt),
                transaction_id=receipt.transaction_id or receipt.message_id,
                state=state,
                answers_check=False,
            )
        )

    def _address_of(self, receipt: SendReceipt) -> str:
        route = self._session.routes.known(receipt.queue.topic)
        replicas = {} if route is None else route.addresses.get(receipt.queue.broker_name, {})
        return replicas.get(MASTER_ID, "")

    async def flush(self) -> None:
        """Tell everything that waits."""
        self._is_due = False
        lines, self._lines = self._lines, []
        for body, keys in bodies_of(lines):
            message = Message(TRACE_TOPIC, body, keys=keys)
            try:
                born_ms = self._session.clock.wall_ms()
                parcel = pack(message, self._session.unique_keys.at(born_ms), born_ms, SETTINGS)
                await self._courier.deliver(parcel, None, SETTINGS.timeout)
            except ClientError as error:
                self.dropped_count += len(lines)
                log.info("a trace was dropped lines=%d: %s", len(lines), error)

    def _flush_soon(self) -> None:
        self._session.spawn(self.flush(), "sending traces")


def _kind_of(message: Message) -> MessageKind:
    if message.is_delayed:
        return MessageKind.DELAYED
    return MessageKind.ORDERED if message.sharding_key else MessageKind.NORMAL


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
