"""Messages as they lie in records and batches, seen from a client.

A record's fields say how long it is, so a reader checks each against what is left before it
follows it. Writing records is the kernel's work.
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
    TAGS,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)

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
    "tags_code_of",
]

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB  # two bytes of topic length instead of one
BODY_BYTES_MAX: Final = 64 << 20  # of an inflated body

# total size, magic, body CRC, queue id, flag, queue offset, log offset, system flag, born at
_HEAD: Final = struct.Struct(">iIiiiqqiq")
_LONG: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iq")  # reconsume times, prepared transaction offset
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_BATCH_HEAD: Final = struct.Struct(">iiiii")  # total size, magic, body CRC, flag, body length


class StoredMessage(msgspec.Struct, kw_only=True):
    """One record of the commit log."""

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
    reader = _Reader(data)
    while reader.left:
        messages.append(_record(reader))
    return messages


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
    reader = _Reader(data)
    while reader.left:
        first = reader.position
        size, _, _, flag, body_bytes = reader.unpack(_BATCH_HEAD)
        body = reader.take(body_bytes)
        properties = reader.text(reader.unpack(_SHORT)[0])
        if reader.position - first != size:
            raise ProtocolError(
                f"a batch entry says it has {size} bytes but its parts have "
                f"{reader.position - first}"
            )
        entries.append(BatchEntry(body=body, properties=properties, flag=flag))
    return entries


class _Reader:
    """A cursor that never passes the end of its data."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.position

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        first = self.position
        if layout.size > self.left:
            raise ProtocolError(f"{layout.size} bytes expected at {first}, {self.left} are left")
        self.position = first + layout.size
        return layout.unpack_from(self._data, first)

    def take(self, byte_count: int) -> bytes:
        first = self.position
        if not 0 <= byte_count <= self.left:
            raise ProtocolError(f"{byte_count} bytes expected at {first}, {self.left} are left")
        self.position = first + byte_count
        return self._data[first : self.position]

    def text(self, byte_count: int) -> str:
        try:
            return self.take(byte_count).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"text that is not UTF-8: {error}") from error


def _record(reader: _Reader) -> StoredMessage:
    first = reader.position
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
    ) = reader.unpack(_HEAD)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise ProtocolError(f"{magic:#x} at {first} is not the magic number of a record")
    born_host = decode_host(reader.take(20 if system_flag & SystemFlag.BORN_HOST_IPV6 else 8))
    (stored_at_ms,) = reader.unpack(_LONG)
    store_host = decode_host(reader.take(20 if system_flag & SystemFlag.STORE_HOST_IPV6 else 8))
    reconsume_times, prepared_offset = reader.unpack(_TAIL)
    body = reader.take(reader.unpack(_INT)[0])
    topic_bytes = reader.take(1)[0] if magic == MAGIC_V1 else reader.unpack(_SHORT)[0]
    topic = reader.text(topic_bytes)
    properties = decode_properties(reader.text(reader.unpack(_SHORT)[0]))
    if reader.position - first != size:
        raise ProtocolError(
            f"a record says it has {size} bytes but its parts have {reader.position - first}"
        )
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
        born_host=born_host,
        stored_at_ms=stored_at_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        stored_body=body,
        properties=properties,
    )
