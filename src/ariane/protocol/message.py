"""Messages as they lie in records and batches, seen from a client.

A record's fields say how long it is, so a reader checks each against what is left before it
follows it. Text that is not UTF-8 is no fault of a record: what cannot be read is replaced, as
the kernel's reader does. Writing records is the kernel's work.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from ariane.codes import SystemFlag
from ariane.errors import ProtocolError
from ariane.kernel.hashing import java_hash
from ariane.protocol.compression import inflate_body
from ariane.protocol.identifiers import (
    Host,
    UniqueKeys,
    decode_host,
    decode_offset_id,
    encode_host,
    encode_offset_id,
)
from ariane.protocol.limits import SHORT_MAX
from ariane.protocol.properties import (
    KEYS,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
    stored_properties_of,
)
from ariane.protocol.readable import Readable

__all__ = [
    "BatchEntry",
    "Host",
    "StoredMessage",
    "UniqueKeys",
    "decode_batch",
    "decode_host",
    "decode_offset_id",
    "decode_properties",
    "decode_records",
    "encode_batch",
    "encode_host",
    "encode_offset_id",
    "encode_properties",
    "java_hash",
    "properties_text_of",
    "stored_properties_of",
    "tags_code_of",
]

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB  # two bytes of topic length instead of one
BODY_BYTES_MAX: Final = 64 << 20  # of an inflated body

# A record up to and with its body's length: total size, magic, body CRC, queue id, flag, queue
# offset, log offset, system flag, born at, born host, stored at, store host, reconsume times,
# prepared transaction offset, body length. Hosts have 8 bytes, or 20 with an IPv6 address; the
# layouts are in the order of the two bits of the system flag that say so.
_LAYOUTS: Final = tuple(
    struct.Struct(f">iIiiiqqiq{born_bytes}sq{store_bytes}siqi")
    for store_bytes in (8, 20)
    for born_bytes in (8, 20)
)
_SYSTEM_FLAG_AT: Final = 36
_ADDRESS_FLAGS: Final = int(SystemFlag.BORN_HOST_IPV6 | SystemFlag.STORE_HOST_IPV6)
_INT: Final = struct.Struct(">i")
_MAGIC: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">h")
_BYTE: Final = struct.Struct(">B")
_BATCH_HEAD: Final = struct.Struct(">iiiii")  # total size, magic, body CRC, flag, body length


class StoredMessage(msgspec.Struct, Readable, kw_only=True):
    """One record of the commit log; it is only read."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    flag: int
    system_flag: int
    body_crc32: int
    born_at_ms: int
    born_host: Host
    stored_at_ms: int
    store_host: Host
    reconsume_times: int
    prepared_offset: int
    stored_body: bytes  # as it lies in the log, maybe compressed
    properties: dict[str, str]
    inflated_body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The body as its producer had it; raises ProtocolError when it cannot be inflated."""
        if not self.system_flag & SystemFlag.COMPRESSED:
            return self.stored_body
        if self.inflated_body is None:
            self.inflated_body = inflate_body(
                self.stored_body, self.system_flag, size_max=BODY_BYTES_MAX
            )
        return self.inflated_body

    @property
    def offset_message_id(self) -> str:
        """The id that says where the record is."""
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def message_id(self) -> str:
        """The id the producer gave it, or else the offset id."""
        return self.properties.get(UNIQUE_KEY) or self.offset_message_id

    @property
    def tags(self) -> str | None:
        """The tag to filter by."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys to look it up by."""
        return self.properties.get(KEYS, "").split()

    @property
    def sharding_key(self) -> str | None:
        """What its order was kept by."""
        return self.properties.get(SHARDING_KEY)


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a batch; `properties` is their text."""

    body: bytes
    properties: str = ""
    flag: int = 0


def tags_code_of(tag: str) -> int:
    """What a consume queue holds of a tag: Java's hash of it, 0 for none."""
    return java_hash(tag) if tag else 0


def decode_records(data: bytes) -> list[StoredMessage]:
    """All records of a pull's body, back to back; raises ProtocolError when one is broken."""
    messages: list[StoredMessage] = []
    position = 0
    while position < len(data):
        message = _record(data, position)
        messages.append(message)
        position += message.size
    return messages


def properties_text_of(record: bytes) -> bytes:
    """The properties of one record byte for byte, for a copy of it; raises ProtocolError."""
    (system_flag,) = _unpack(_INT, record, _SYSTEM_FLAG_AT)
    layout = _LAYOUTS[(system_flag & _ADDRESS_FLAGS) >> 4]
    topic_at = layout.size + _unpack(layout, record, 0)[-1]
    topic_length = _SHORT if _unpack(_MAGIC, record, 4)[0] == MAGIC_V2 else _BYTE
    properties_at = topic_at + topic_length.size + _unpack(topic_length, record, topic_at)[0]
    (byte_count,) = _unpack(_SHORT, record, properties_at)
    return _part(record, properties_at + _SHORT.size, byte_count)


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    """The body of SEND_BATCH_MESSAGE (320)."""
    parts: list[bytes] = []
    for entry in entries:
        properties = entry.properties.encode()
        if len(properties) > SHORT_MAX:
            raise ProtocolError(f"{len(properties)} bytes of properties; at most {SHORT_MAX} fit")
        size = _BATCH_HEAD.size + len(entry.body) + _SHORT.size + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, entry.flag, len(entry.body)),
            entry.body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchEntry]:
    """The messages of a batch; raises ProtocolError when any size is a lie."""
    entries: list[BatchEntry] = []
    position = 0
    while position < len(data):
        size, _, _, flag, body_bytes = _unpack(_BATCH_HEAD, data, position)
        body_at = position + _BATCH_HEAD.size
        properties_at = body_at + body_bytes + _SHORT.size
        body = _part(data, body_at, body_bytes)
        (properties_bytes,) = _unpack(_SHORT, data, properties_at - _SHORT.size)
        properties = _text(data, properties_at, properties_bytes)
        _check_size(size, properties_at + properties_bytes - position)
        entries.append(BatchEntry(body=body, properties=properties, flag=flag))
        position += size
    return entries


def _record(data: bytes, first: int) -> StoredMessage:
    (system_flag,) = _unpack(_INT, data, first + _SYSTEM_FLAG_AT)
    layout = _LAYOUTS[(system_flag & _ADDRESS_FLAGS) >> 4]
    (
        size,
        magic,
        body_crc32,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        system_flag,
        born_at_ms,
        born_host,
        stored_at_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        body_bytes,
    ) = layout.unpack(_part(data, first, layout.size))
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise ProtocolError(f"{magic:#x} at {first} is not the magic number of a record")
    body_at = first + layout.size
    body = _part(data, body_at, body_bytes)
    topic_length = _BYTE if magic == MAGIC_V1 else _SHORT
    topic_at = body_at + body_bytes + topic_length.size
    (topic_bytes,) = _unpack(topic_length, data, topic_at - topic_length.size)
    properties_at = topic_at + topic_bytes + _SHORT.size
    topic = _text(data, topic_at, topic_bytes)
    (properties_bytes,) = _unpack(_SHORT, data, properties_at - _SHORT.size)
    properties = stored_properties_of(_part(data, properties_at, properties_bytes))
    _check_size(size, properties_at + properties_bytes - first)
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=log_offset,
        size=size,
        flag=flag,
        system_flag=system_flag,
        body_crc32=body_crc32,
        born_at_ms=born_at_ms,
        born_host=decode_host(born_host),
        stored_at_ms=stored_at_ms,
        store_host=decode_host(store_host),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        stored_body=body,
        properties=properties,
    )


def _unpack(layout: struct.Struct, data: bytes, first: int) -> tuple[int, ...]:
    try:
        return layout.unpack_from(data, first)
    except struct.error as error:
        left = max(0, len(data) - first)
        raise ProtocolError(f"{layout.size} bytes expected at {first}, {left} are left") from error


def _part(data: bytes, first: int, byte_count: int) -> bytes:
    if not 0 <= byte_count <= len(data) - first:
        raise ProtocolError(f"{byte_count} bytes expected at {first}, {len(data) - first} are left")
    return data[first : first + byte_count]


def _text(data: bytes, first: int, byte_count: int) -> str:
    """Brokers keep what they are sent byte for byte, so text may be in any encoding."""
    return _part(data, first, byte_count).decode(errors="replace")


def _check_size(size: int, parts_size: int) -> None:
    if size != parts_size:
        raise ProtocolError(f"what says it has {size} bytes has parts of {parts_size}")
