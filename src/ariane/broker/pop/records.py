"""Stored records taken apart and put together again, for messages that change their place."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ariane.codes import SystemFlag
from ariane.protocol.message import MAGIC_V1, MAGIC_V2

SIZE: Final = struct.Struct(">i")
MAGIC: Final = struct.Struct(">I")
SHORT: Final = struct.Struct(">h")
MAGIC_AT: Final = 4
SYSTEM_FLAG_AT: Final = 36
FIXED_BYTES: Final = 72  # up to the body, without the hosts
IPV4_BYTES: Final = 8
IPV6_BYTES: Final = 20
SHORT_TOPIC_BYTES_MAX: Final = 127
PROPERTIES_BYTES_MAX: Final = 32_767


class Parts(NamedTuple):
    """A sound record: everything up to the end of its body, then topic and properties."""

    front: bytes
    topic: bytes
    properties: bytes


def parts_of(record: bytes) -> Parts:
    """Take apart one record as it lies in the log."""
    (system_flag,) = SIZE.unpack_from(record, SYSTEM_FLAG_AT)
    hosts = (SystemFlag.BORN_HOST_IPV6, SystemFlag.STORE_HOST_IPV6)
    body_at = FIXED_BYTES
    body_at += sum(IPV6_BYTES if system_flag & host else IPV4_BYTES for host in hosts)
    (body_size,) = SIZE.unpack_from(record, body_at - SIZE.size)
    topic_at = body_at + body_size
    if MAGIC.unpack_from(record, MAGIC_AT)[0] == MAGIC_V2:
        (topic_size,) = SHORT.unpack_from(record, topic_at)
        name_at = topic_at + SHORT.size
    else:
        topic_size = record[topic_at]
        name_at = topic_at + 1
    properties_at = name_at + topic_size + SHORT.size
    return Parts(record[:topic_at], record[name_at : name_at + topic_size], record[properties_at:])


def moved(record: bytes, topic: bytes, property_text: bytes) -> bytes:
    """The record as one of another topic, with a property more; unchanged if that has no room."""
    parts = parts_of(record)
    properties = parts.properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    properties += property_text
    if len(properties) > PROPERTIES_BYTES_MAX:
        return record
    is_long = len(topic) > SHORT_TOPIC_BYTES_MAX
    topic_size = SHORT.pack(len(topic)) if is_long else bytes([len(topic)])
    rest = topic_size + topic + SHORT.pack(len(properties)) + properties
    size = SIZE.pack(len(parts.front) + len(rest))
    magic = MAGIC.pack(MAGIC_V2 if is_long else MAGIC_V1)
    return size + magic + parts.front[MAGIC_AT + MAGIC.size :] + rest


def split_records(data: bytes) -> list[bytes]:
    """Records that lie back to back, each by itself."""
    records = []
    position = 0
    while position < len(data):
        (size,) = SIZE.unpack_from(data, position)
        records.append(data[position : position + size])
        position += size
    return records
