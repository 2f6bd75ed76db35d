"""What a caller sends and what it learns of it.

A message is checked before any byte leaves, so a refusal names the caller's mistake and not the
broker's remark about it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypedDict

import msgspec
from msgspec.structs import replace

from ariane.client.keywords import refuse_unknown
from ariane.client.times import Duration, seconds_of
from ariane.errors import InvalidMessage
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.properties import DELAY, KEYS, NAME_END, SHARDING_KEY, TAGS, VALUE_END, WAIT
from ariane.topics import topic_fault

BODY_BYTES_MAX: Final = 4 << 20  # unless a producer is told that its brokers take more
TAG_LENGTH_MAX: Final = 128
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Body = bytes | bytearray | memoryview | str  # text travels as UTF-8

DELAY_MS: Final = "TIMER_DELAY_MS"
DELIVER_MS: Final = "TIMER_DELIVER_MS"

# Names with a meaning of their own, and the field that sets them where there is one.
_OWN_FIELDS: Final = {
    KEYS: "keys",
    TAGS: "tags",
    WAIT: "wait",
    DELAY: "delay_level",
    DELAY_MS: "delay",
    "TIMER_DELAY_SEC": "delay",
    DELIVER_MS: "deliver_at",
    SHARDING_KEY: "sharding_key",
}
# fmt: off
_RESERVED: Final = frozenset({
    "UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC",
    "ORIGIN_MESSAGE_ID", "TRAN_MSG", "PGROUP", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME",
    "MIN_OFFSET", "MAX_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
    "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CORRELATION_ID", "REPLY_TO_CLIENT",
    "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE", "INNER_NUM", "INNER_BASE",
    "INNER_MULTI_QUEUE_OFFSET", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__transactionId__",
    "INSTANCE_ID", "DUP_INFO", "EXTEND_UNIQ_INFO", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG",
    "MQ2_FLAG", "__BORNHOST", "BORN_TIMESTAMP", "__CRC32#", "ORIGIN_GROUP",
})
# fmt: on
OWN_PROPERTIES: Final = frozenset({*_OWN_FIELDS, *_RESERVED})  # not for callers to set


class MessageFields(TypedDict, total=False):
    """What a message may have besides topic and body; each is a field of `Message`."""

    tags: str
    keys: str | Sequence[str]
    properties: Mapping[str, str]
    sharding_key: str
    delay_level: int
    delay: Duration | None
    deliver_at: datetime | None
    flag: int
    wait: bool


# What the calls that send take besides topic and body.
KEYWORDS: Final = {*MessageFields.__annotations__, "queue", "selector", "timeout"}


class _Addressed(msgspec.Struct, frozen=True):
    topic: str
    body: Body


class Message(_Addressed, frozen=True, kw_only=True):
    """One message to send.

    `delay`, `delay_level` and `deliver_at` exclude each other; a naive `deliver_at` is local time.
    """

    tags: str = ""  # one word, what consumers filter by
    keys: str | Sequence[str] = ()  # found again by `Admin.find`; a text is split at its blanks
    properties: Mapping[str, str] = NOTHING
    sharding_key: str = ""  # messages with one such key share a queue, in order
    delay_level: int = 0  # 1 to 18: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h
    delay: Duration | None = None  # delivered that much later, to the broker's precision
    deliver_at: datetime | None = None  # delivered then, to the broker's precision
    flag: int = 0  # carried along untouched
    wait: bool = True  # for the disk and the replicas, where the broker is set to sync

    @property
    def is_delayed(self) -> bool:
        """Whether consumers are to see it only later."""
        return self.delay_level != 0 or self.delay is not None or self.deliver_at is not None


class SendStatus(StrEnum):
    """How safe a message is that the broker has stored."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendReceipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored, and under which names it is found again."""

    status: SendStatus
    message_id: str  # made by this client
    offset_message_id: str  # made by the broker: its address and the place in its log
    queue: MessageQueue
    queue_offset: int  # of a delayed or half message: in the queue where it waits
    transaction_id: str | None = None
    recall_handle: str | None = None  # of a message with a delay; see `Client.recall`
    region: str | None = None  # None also when the broker wants no trace

    @property
    def is_safe(self) -> bool:
        """Whether it is as safe as the broker is set to make it; else it is stored, but was late.

        `status` says what was late: the disk (`FLUSH_DISK_TIMEOUT`), a replica
        (`FLUSH_SLAVE_TIMEOUT`), or that there is none (`SLAVE_NOT_AVAILABLE`).
        """
        return self.status is SendStatus.OK


def message_of(target: str | Message, body: Body | None, fields: MessageFields) -> Message:
    """The message that the arguments of a send describe: topic and body, or a message, changed."""
    if isinstance(target, Message):
        if body is not None:
            raise InvalidMessage("give a Message, or a topic and a body; not a Message and a body")
        refuse_unknown(fields, KEYWORDS)
        return replace(target, **fields) if fields else target
    if body is None:
        raise InvalidMessage(f"a message to {target!r} needs a body")
    try:
        return Message(target, body, **fields)
    except TypeError:
        refuse_unknown(fields, KEYWORDS)
        raise


def check(message: Message, bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raise InvalidMessage if no broker should be bothered with it."""
    if fault := _topic_fault(message.topic):
        raise InvalidMessage(fault)
    if type(message.body) is not bytes or not 0 < len(message.body) <= bytes_max:
        _check_body(message.body, bytes_max)
    if message.keys:
        _check_keys(message.keys)
    if message.tags:
        _check_tag(message.tags)
    if message.sharding_key:
        _check_word("sharding_key", message.sharding_key)
    for name, value in message.properties.items():
        _check_property(name, value)
    if message.is_delayed:
        _check_delay(message)


def body_of(message: Message) -> bytes:
    """The body as bytes."""
    body = message.body
    if type(body) is bytes:
        return body
    return _encoded(body) if isinstance(body, str) else bytes(body)


def keys_of(message: Message) -> Sequence[str]:
    """The keys, one by one."""
    return message.keys.split() if isinstance(message.keys, str) else message.keys


def properties_of(message: Message) -> str:
    """The message's own properties and what its fields mean, by RocketMQ's names, as text."""
    text = ""
    for name, value in message.properties.items():
        text += f"{name}{NAME_END}{value}{VALUE_END}"
    if message.keys:
        text += f"{KEYS}{NAME_END}{' '.join(keys_of(message))}{VALUE_END}"
    if message.tags:
        text += f"{TAGS}{NAME_END}{message.tags}{VALUE_END}"
    if message.sharding_key:
        text += f"{SHARDING_KEY}{NAME_END}{message.sharding_key}{VALUE_END}"
    if message.delay_level:
        text += f"{DELAY}{NAME_END}{message.delay_level}{VALUE_END}"
    elif message.delay is not None:
        text += f"{DELAY_MS}{NAME_END}{round(seconds_of(message.delay) * 1000)}{VALUE_END}"
    elif message.deliver_at is not None:
        moment_ms = round(message.deliver_at.timestamp() * 1000)
        text += f"{DELIVER_MS}{NAME_END}{moment_ms}{VALUE_END}"
    return text


_topic_fault: Final = lru_cache(maxsize=1024)(topic_fault)


def _check_keys(keys: object) -> None:
    if not isinstance(keys, Collection):
        raise InvalidMessage(f"keys={keys!r}: keys are text, or several of it; write str(...)")
    for key in keys.split() if isinstance(keys, str) else keys:
        if not isinstance(key, str):
            raise InvalidMessage(f"the key {key!r} is not text; write str(...)")
        if key.split() != [key] or _holds_separator(key):
            raise InvalidMessage(f"the key {key!r} is empty or holds a blank; keys have no blanks")


def _check_tag(tag: object) -> None:
    """One word that a subscription can ask for: `a || b` means two, and blanks around are cut."""
    if not isinstance(tag, str):
        raise InvalidMessage(f"tags={tag!r} is not text; write str(...)")
    if fault := _tag_fault(tag):
        raise InvalidMessage(f"tags={tag!r} {fault}")


@lru_cache(maxsize=1024)
def _tag_fault(tag: str) -> str | None:
    if "||" in tag:
        return "holds '||', which means `or` in subscriptions; a message has one tag"
    if len(tag) > TAG_LENGTH_MAX:
        return f"has {len(tag)} characters; a tag may have {TAG_LENGTH_MAX}"
    if any("\ud800" <= character <= "\udfff" for character in tag):
        return "is not Unicode text"
    if not tag.isprintable() or " " in tag:
        return "holds a blank or a character that cannot be seen; subscriptions could not name it"
    return None


def _check_word(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidMessage(f"{name}={text!r} is not text; write str(...)")
    if _holds_separator(text):
        raise InvalidMessage(f"{name}={text!r} holds the separator \\x01 or \\x02")


def _check_body(body: object, bytes_max: int) -> None:
    if not isinstance(body, bytes | bytearray | memoryview | str):
        raise InvalidMessage(f"a body is bytes or text, not {type(body).__name__}; encode it first")
    if not len(body):
        raise InvalidMessage("the body is empty; brokers take no message without one")
    # A character takes at most four bytes, so a short text need not be encoded to be measured.
    is_text = isinstance(body, str)
    if len(body) * (4 if is_text else 1) <= bytes_max:
        return
    size = len(_encoded(body)) if isinstance(body, str) else memoryview(body).nbytes
    if size > bytes_max:
        raise InvalidMessage(
            f"a body of {size:,} bytes is over the {bytes_max:,} a broker takes; split it, or store"
            " it elsewhere and send where; if brokers take more (maxMessageSize), set"
            " message_bytes_max="
        )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"the body is not Unicode text: {error}; send bytes") from error


def _check_property(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessage(f"the property {name!r}={value!r} is not text; names and values are")
    if own := _OWN_FIELDS.get(name):
        raise InvalidMessage(f"set {own}= of the message instead of the property {name}")
    if name in _RESERVED:
        raise InvalidMessage(f"the property {name} belongs to RocketMQ; choose another name")
    if not name or not value:
        raise InvalidMessage(f"the property {name!r}={value!r} needs a name and a value")
    if _holds_separator(name) or _holds_separator(value):
        raise InvalidMessage(f"the property {name!r} holds the separator \\x01 or \\x02")


def _check_delay(message: Message) -> None:
    ways = (message.delay_level != 0, message.delay is not None, message.deliver_at is not None)
    if sum(ways) > 1:
        raise InvalidMessage("give one of delay=, delay_level= and deliver_at=, not several")
    if message.delay_level < 0:
        raise InvalidMessage(f"delay_level={message.delay_level}: levels begin at 1, which is 1 s")
    if message.delay is not None and not seconds_of(message.delay) >= 0:
        raise InvalidMessage(f"delay={message.delay} is not a time to wait; 0 or more is")


def _holds_separator(text: str) -> bool:
    return NAME_END in text or VALUE_END in text
