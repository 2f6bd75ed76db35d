"""Messages packed for the way: checked, named, dressed in properties, compressed.

A parcel is made once for a send; every attempt carries the same one, so a message that is stored
twice has the same id both times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from ariane.client.hot_sends import BatchBody
from ariane.client.messages import (
    BODY_BYTES_MAX,
    NOTHING,
    Message,
    body_of,
    check,
    properties_of,
)
from ariane.client.settings import SendSettings
from ariane.codes import SystemFlag
from ariane.errors import InvalidMessage
from ariane.protocol.compression import COMPRESSIONS, compress_body
from ariane.protocol.properties import NAME_END, UNIQUE_KEY, VALUE_END, WAIT, encode_properties
from ariane.topics import is_retry_or_dead_letter

PROPERTIES_BYTES_MAX: Final = 32_767
CERTAINLY_FITS: Final = PROPERTIES_BYTES_MAX // 4  # characters; each takes four bytes at most

_UNIQUE_KEY: Final = f"{UNIQUE_KEY}{NAME_END}"
_WAITS: Final = f"{VALUE_END}{WAIT}{NAME_END}true{VALUE_END}"
_WAITS_NOT: Final = f"{VALUE_END}{WAIT}{NAME_END}false{VALUE_END}"


class Kind(IntEnum):  # of int, whose hash is quick: parcels are looked up by it
    """How a parcel travels."""

    PLAIN = 0
    ONE_WAY = 1
    BATCH = 2
    REPLY = 3


class Parcel(msgspec.Struct, frozen=True):
    """A message, or a batch, ready to travel to whichever queue is chosen."""

    topic: str
    body: bytes
    properties: str
    message_ids: str | list[str]  # a list: a batch
    born_ms: int
    system_flag: int = 0
    flag: int = 0
    kind: Kind = Kind.PLAIN

    @property
    def is_half(self) -> bool:
        """Whether a transaction begins with it."""
        return bool(self.system_flag & SystemFlag.TRANSACTION_PREPARED)


def pack(
    message: Message,
    message_id: str,
    born_ms: int,
    settings: SendSettings,
    *,
    extra: Mapping[str, str] = NOTHING,
    system_flag: int = 0,
    kind: Kind = Kind.PLAIN,
) -> Parcel:
    """The message as a parcel; `extra` are properties that callers may not set themselves."""
    check(message, settings.message_bytes_max)
    body = message.body
    if type(body) is not bytes:
        body = body_of(message)
    if len(body) >= settings.compress_from_bytes:
        body, compressed_flag = compressed(body, settings)
        system_flag |= compressed_flag
    text = properties_text(message, message_id, extra)
    return Parcel(message.topic, body, text, message_id, born_ms, system_flag, message.flag, kind)


def compressed(body: bytes, settings: SendSettings) -> tuple[bytes, int]:
    """The body as it travels and the system flag that says so; not packed unless it shrinks."""
    kind = settings.compression
    if kind is None or len(body) < settings.compress_from_bytes:
        return body, 0
    packed = compress_body(body, kind)
    return (packed, COMPRESSIONS[kind]) if len(packed) < len(body) else (body, 0)


def properties_text(message: Message, message_id: str, extra: Mapping[str, str] = NOTHING) -> str:
    """All properties of the message as they travel; raises InvalidMessage when they do not fit."""
    text = properties_of(message)
    for name, value in extra.items():
        text += f"{name}{NAME_END}{value}{VALUE_END}"
    text = f"{text}{_UNIQUE_KEY}{message_id}{_WAITS if message.wait else _WAITS_NOT}"
    if len(text) > CERTAINLY_FITS or not text.isascii():
        _check_size(text)
    return text


def pack_batch(
    messages: Sequence[Message],
    make_id: Callable[[], str],
    born_ms: int,
    bytes_max: int = BODY_BYTES_MAX,
) -> Parcel:
    """Messages of one topic as one parcel; bodies of a batch are never compressed."""
    topics = {message.topic for message in messages}
    if len(topics) != 1:
        raise InvalidMessage(
            f"a batch goes to one topic, this one names {sorted(topics) or 'none'};"
            " send one batch for each"
        )
    topic = topics.pop()
    if is_retry_or_dead_letter(topic):
        raise InvalidMessage(f"brokers take no batches for {topic!r}; send its messages one by one")
    body = BatchBody()
    message_ids = []
    for message in messages:
        check(message, bytes_max)
        if message.is_delayed:
            raise InvalidMessage("brokers delay no batches; send delayed messages one by one")
        message_ids.append(make_id())
        body.add(body_of(message), properties_text(message, message_ids[-1]), message.flag)
    if body.size > bytes_max:
        raise InvalidMessage(
            f"a batch of {body.size:,} bytes is over the {bytes_max:,} a broker takes;"
            " send it in smaller batches"
        )
    wait = all(message.wait for message in messages)
    properties = batch_properties(make_id(), wait=wait)
    return Parcel(topic, body.take(), properties, message_ids, born_ms, kind=Kind.BATCH)


def batch_properties(message_id: str, *, wait: bool) -> str:
    """The properties of the request that carries a batch."""
    return encode_properties({UNIQUE_KEY: message_id, WAIT: "true" if wait else "false"})


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"properties, tags and keys must be Unicode text: {error}") from error
    if size > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(
            f"properties, tags and keys take {size:,} bytes of at most"
            f" {PROPERTIES_BYTES_MAX:,}; put what is long into the body"
        )
