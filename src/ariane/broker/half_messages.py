"""What becomes of a transactional message: half, copied, asked after, committed or given up.

A half message lies in a topic of its own with the topic and queue it is meant for in its
properties, so that nobody reads it before its transaction is committed. Whatever happens to it is
another record made from it. A copy of a half message says where the first of its transaction lay
(TRAN_PREPARED_QUEUE_OFFSET) and how often its producer has been asked (TRANSACTION_CHECK_TIMES).

Everything here turns values into values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ariane.broker.messages import PROPERTIES_BYTES_MAX, MessageIllegal
from ariane.broker.transaction_checks import Half
from ariane.codes import SystemFlag
from ariane.protocol.identifiers import Host
from ariane.protocol.message import StoredMessage
from ariane.protocol.properties import (
    DELAY,
    HALF,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQUE_KEY,
    WAIT,
    amended_properties,
    encode_properties,
)
from ariane.store.messages import NewMessage
from ariane.topics import DISCARD_TOPIC, HALF_TOPIC, OPERATION_TOPIC

TRANSACTION_ID_KEY: Final = "__transactionId__"
FIRST_OFFSET_KEY: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_TIMES_KEY: Final = "TRANSACTION_CHECK_TIMES"
IMMUNITY_KEY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
OURS_UNTIL_COMMITTED: Final = (REAL_TOPIC, REAL_QUEUE_ID, FIRST_OFFSET_KEY)
ENDED_TAG: Final = "d"
TRANSACTION_FLAGS: Final = int(SystemFlag.TRANSACTION_ROLLBACK)  # both bits
ADDRESS_FLAGS: Final = int(SystemFlag.BORN_HOST_IPV6 | SystemFlag.STORE_HOST_IPV6)
COPY_SPARE_BYTES: Final = 128  # what the properties of a copy may take beyond the first half's

Identity = tuple[str, str, int, Host, int]

_OURS_TO_SET: Final = tuple(
    f"{name}\x01".encode()
    for name in (
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TRANSACTION_ID_KEY,
        FIRST_OFFSET_KEY,
        CHECK_TIMES_KEY,
    )
)
_NO_CHANGES: Final[dict[str, str | None]] = {}
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MAGIC_V1: Final = 0xDAA320A7
_MAGIC_V2: Final = 0xDAA320AB  # two bytes of topic length instead of one
_SHORT_TOPIC_BYTES_MAX: Final = 127
_HEAD: Final = struct.Struct(">iIii")  # whole size, magic, body CRC, queue id
_SYSTEM_FLAG: Final = struct.Struct(">36xi")
_BODY_SIZE: Final = struct.Struct(">i")
_BODY_SIZE_AT: Final = 84  # when both hosts are IPv4; each IPv6 one takes 12 bytes more
_IPV6_BYTES_MORE: Final = 12


def is_half(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a message begins a transaction.

    Old clients that send a message back leave its mark of a transaction on it; such a message has
    been consumed and comes with a delay.
    """
    if properties.get(HALF, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and (_number_of(properties.get(DELAY)) or 0) > 0)


def as_plain(message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
    """A message that begins no transaction; MessageIllegal if its system flag alone says it does.

    No queue holds records with these bits, so it would be stored and never be seen.
    """
    if message.system_flag & SystemFlag.TRANSACTION_PREPARED == 0:
        return message
    if properties.get(HALF, "").lower() != "true":
        raise MessageIllegal(
            f"sysFlag={message.system_flag:#x} is that of a transactional message, but the property"
            f" {HALF} is not true"
        )
    return replace(message, system_flag=message.system_flag & ~TRANSACTION_FLAGS)


def half_of(message: NewMessage, properties: Mapping[str, str], group: str) -> NewMessage:
    """The message as it lies in the half topic; MessageIllegal when its properties are too long."""
    added = {
        REAL_TOPIC: message.topic,
        REAL_QUEUE_ID: str(message.queue_id),
        TRANSACTION_ID_KEY: properties[UNIQUE_KEY],
    }
    if not properties.get(PRODUCER_GROUP):
        added[PRODUCER_GROUP] = group
    text = message.properties
    if any(mark in text for mark in _OURS_TO_SET):  # as in a message that is forwarded
        text = amended_properties(text, dict.fromkeys((*added, FIRST_OFFSET_KEY, CHECK_TIMES_KEY)))
    text += encode_properties(added).encode()
    if len(text) + COPY_SPARE_BYTES > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(
            f"the properties take {len(text)} bytes with the broker's own; a transactional message"
            f" may have {PROPERTIES_BYTES_MAX - COPY_SPARE_BYTES}"
        )
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        system_flag=message.system_flag & ~TRANSACTION_FLAGS,
        properties=text,
    )


def described(stored: StoredMessage) -> Half:
    """What the rules of checking need to know of a half message."""
    properties = stored.properties
    check_times = check_times_of(stored)
    is_copy = check_times > 0 or FIRST_OFFSET_KEY in properties
    # A first half began when it was stored, by our own clock. A copy was stored later, so that
    # only its producer's clock tells, unless that is ahead of ours.
    began_ms = stored.born_at_ms if is_copy else stored.stored_at_ms
    return Half(
        check_times=check_times,
        began_ms=began_ms if began_ms <= stored.stored_at_ms else None,
        immunity_ms=immunity_ms_of(properties),
        may_be_checked=is_meant_for_a_topic(properties),
    )


def first_offset_of(stored: StoredMessage) -> int | None:
    """Where the first half of the transaction lies, if the record is a copy that says so."""
    return _number_of(stored.properties.get(FIRST_OFFSET_KEY))


def check_times_of(stored: StoredMessage) -> int:
    """How often the producer has been asked."""
    return _number_of(stored.properties.get(CHECK_TIMES_KEY)) or 0


def is_meant_for_a_topic(properties: Mapping[str, str]) -> bool:
    """Whether a half message says where it goes when it is committed."""
    queue_id = _number_of(properties.get(REAL_QUEUE_ID))
    return bool(properties.get(REAL_TOPIC)) and queue_id is not None and queue_id >= 0


def identity_of(stored: StoredMessage) -> Identity:
    """What a half message and its copies share, whichever broker made the copies."""
    return (
        stored.properties.get(UNIQUE_KEY, ""),
        stored.properties.get(PRODUCER_GROUP, ""),
        stored.born_at_ms,
        stored.born_host,
        stored.body_crc32,
    )


def immunity_ms_of(properties: Mapping[str, str]) -> int | None:
    """How old the message wants to be before anybody asks; None when it does not say."""
    text = properties.get(IMMUNITY_KEY)
    seconds = _number_of(text)
    return None if seconds is None or seconds == -1 else seconds * 1000


def copy_of(stored: StoredMessage, first_offset: int, check_times: int) -> NewMessage:
    """A half message once more, to be placed behind all others."""
    changes = {
        FIRST_OFFSET_KEY: str(first_offset),
        CHECK_TIMES_KEY: str(check_times) if check_times else None,
    }
    return _again(stored, topic=HALF_TOPIC, changes=changes)


def committed_of(stored: StoredMessage) -> NewMessage:
    """The message its consumers get; it says which half message it was."""
    return _again(
        stored,
        topic=real_topic_of(stored),
        queue_id=real_queue_of(stored),
        changes=dict.fromkeys(OURS_UNTIL_COMMITTED),
        transaction_flag=SystemFlag.TRANSACTION_COMMIT,
        prepared_offset=stored.log_offset,
    )


def discarded_of(stored: StoredMessage) -> NewMessage:
    """A half message nobody wants to end, as it is kept for an operator to look at.

    Its offset stays with it, so that a restart knows that this half message is done with.
    """
    return _again(stored, topic=DISCARD_TOPIC, prepared_offset=stored.log_offset)


def resumed_of(stored: StoredMessage) -> NewMessage:
    """A discarded message as a first half again, never asked after."""
    return _again(stored, topic=HALF_TOPIC, changes={FIRST_OFFSET_KEY: None, CHECK_TIMES_KEY: None})


def operation_of(half_offsets: list[int], *, host: Host, now_ms: int) -> NewMessage:
    """The note that the transactions of these half messages have ended."""
    return NewMessage(
        topic=OPERATION_TOPIC,
        queue_id=0,
        body="".join(f"{half_offset}," for half_offset in half_offsets).encode(),
        properties=encode_properties({TAGS: ENDED_TAG, WAIT: "true"}).encode(),
        born_host=host,
        born_at_ms=now_ms,
    )


def ended_by(operation: StoredMessage) -> list[int]:
    """The half offsets such a note names; what is no number is left out."""
    if operation.properties.get(TAGS) != ENDED_TAG:
        return []
    texts = operation.body.decode(errors="replace").split(",")
    return [number for text in texts if (number := _number_of(text)) is not None and number >= 0]


def real_topic_of(stored: StoredMessage) -> str:
    """The topic a half message is meant for."""
    return stored.properties[REAL_TOPIC]


def real_queue_of(stored: StoredMessage) -> int:
    """The queue a half message is meant for."""
    return int(stored.properties[REAL_QUEUE_ID])


def moved_record(record: bytes, topic: str, queue_id: int) -> bytes:
    """A record as if it lay in another topic and queue; everything else byte for byte."""
    _, magic, body_crc32, _ = _HEAD.unpack_from(record)
    (system_flag,) = _SYSTEM_FLAG.unpack_from(record)
    body_size_at = _BODY_SIZE_AT + _IPV6_BYTES_MORE * (system_flag & ADDRESS_FLAGS).bit_count()
    topic_at = body_size_at + _BODY_SIZE.size + _BODY_SIZE.unpack_from(record, body_size_at)[0]
    old_size_bytes = 1 if magic == _MAGIC_V1 else 2
    old_topic_bytes = int.from_bytes(record[topic_at : topic_at + old_size_bytes])
    name = topic.encode()
    is_short = len(name) <= _SHORT_TOPIC_BYTES_MAX
    middle = record[_HEAD.size : topic_at]
    moved_topic = len(name).to_bytes(1 if is_short else 2) + name
    tail = record[topic_at + old_size_bytes + old_topic_bytes :]
    size = _HEAD.size + len(middle) + len(moved_topic) + len(tail)
    head = _HEAD.pack(size, _MAGIC_V1 if is_short else _MAGIC_V2, body_crc32, queue_id)
    return head + middle + moved_topic + tail


def _again(
    stored: StoredMessage,
    *,
    topic: str,
    queue_id: int = 0,
    changes: Mapping[str, str | None] = _NO_CHANGES,
    transaction_flag: int = 0,
    prepared_offset: int = 0,
) -> NewMessage:
    """What is stored, to be placed elsewhere; properties are set, or removed (None)."""
    properties = {
        name: value for name, value in stored.properties.items() if name not in changes
    } | {name: value for name, value in changes.items() if value is not None}
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=stored.stored_body,
        properties=encode_properties(properties).encode(),
        born_host=stored.born_host,
        born_at_ms=stored.born_at_ms,
        flag=stored.flag,
        system_flag=stored.system_flag & ~(TRANSACTION_FLAGS | ADDRESS_FLAGS) | transaction_flag,
        reconsume_times=stored.reconsume_times,
        prepared_offset=prepared_offset,
    )


def _number_of(text: str | None) -> int | None:
    return None if text is None or _NUMBER.fullmatch(text) is None else int(text)
