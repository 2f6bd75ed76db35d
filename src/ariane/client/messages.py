"""What a caller sends and what it learns of it; how a message is dressed for the wire.

A message is checked before any byte leaves, so a refusal names the caller's mistake and not the
broker's remark about it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from ariane.codes import SystemFlag
from ariane.errors import InvalidMessage
from ariane.protocol.bodies import MessageQueue
from ariane.topics import topic_fault

BODY_BYTES_MAX: Final = 4 << 20
PROPERTIES_BYTES_MAX: Final = 32_767
COMPRESS_FROM_BYTES: Final = 4_096
COMPRESS_LEVEL: Final = 5
ZLIB: Final = 0x300 | SystemFlag.COMPRESSED

# Names with a meaning of their own, and the field that sets them where there is one.
_OWN_FIELDS: Final = {"KEYS": "keys", "TAGS": "tags", "WAIT": "wait"}
_RESERVED: Final = frozenset(
    {"UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC"}
    | {"ORIGIN_MESSAGE_ID", "TRAN_MSG", "PGROUP", "POP_CK", "MIN_OFFSET", "MAX_OFFSET"}
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send."""

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str = ""
    keys: Sequence[str] = ()  # found again by `Admin.find`
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0  # carried along untouched
    wait: bool = True  # for the disk and the replicas, where the broker is set to sync


class SendStatus(StrEnum):
    """How safe a message is that the broker has stored."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was stored, and under which names it is found again."""

    status: SendStatus
    message_id: str  # made by this client; of a batch: joined by commas
    offset_message_id: str  # made by the broker: its address and the place in its log
    queue: MessageQueue
    queue_offset: int  # of a batch: the first one's


def check(message: Message) -> None:
    """Raise InvalidMessage if no broker should be bothered with it."""
    if fault := topic_fault(message.topic):
        raise InvalidMessage(fault)
    if len(message.body) > BODY_BYTES_MAX:
        raise InvalidMessage(
            f"a body of {len(message.body):,} bytes is over the {BODY_BYTES_MAX:,} a broker takes;"
            " split it, or store it elsewhere and send where"
        )
    for key in message.keys:
        if key.split() != [key] or _holds_separator(key):
            raise InvalidMessage(f"the key {key!r} is empty or holds a blank; keys have no blanks")
    if _holds_separator(message.tags):
        raise InvalidMessage(f"the tags {message.tags!r} hold the separator \\x01 or \\x02")
    for name, value in message.properties.items():
        _check_property(name, value)


def dressed_properties(message: Message, unique_key: str) -> dict[str, str]:
    """Everything that goes into the message's properties text."""
    properties = dict(message.properties)
    if message.keys:
        properties["KEYS"] = " ".join(message.keys)
    if message.tags:
        properties["TAGS"] = message.tags
    properties["UNIQ_KEY"] = unique_key
    properties["WAIT"] = "true" if message.wait else "false"
    return properties


def compressed(body: bytes) -> tuple[bytes, int]:
    """The body as it travels and the system flag that says so; not packed unless it shrinks."""
    if len(body) < COMPRESS_FROM_BYTES:
        return body, 0
    packed = zlib.compress(body, COMPRESS_LEVEL)
    return (packed, ZLIB) if len(packed) < len(body) else (body, 0)


def _holds_separator(text: str) -> bool:
    return "\x01" in text or "\x02" in text


def _check_property(name: str, value: str) -> None:
    if own := _OWN_FIELDS.get(name):
        raise InvalidMessage(f"set {own}= of the message instead of the property {name}")
    if name in _RESERVED:
        raise InvalidMessage(f"the property {name} belongs to RocketMQ; choose another name")
    if not name or not value:
        raise InvalidMessage(f"the property {name!r}={value!r} needs a name and a value")
    if _holds_separator(name) or _holds_separator(value):
        raise InvalidMessage(f"the property {name!r} holds the separator \\x01 or \\x02")
