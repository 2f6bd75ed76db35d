"""Records as docs/formats/record.md has them, written once more in the plainest way.

The store's own encoder is compiled; this one shares nothing with it, so that what a test expects of
the disk does not come from the code under test.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from ipaddress import ip_address

BORN = ("10.0.0.7", 5555)
BORN_AT_MS = 1_600_000_000_000
V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_MS = (1000, 5000, 10_000, 30_000)  # the first of the default levels


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its sender knows it."""

    topic: str
    queue_id: int
    body: bytes
    unique_key: str | None
    keys: tuple[str, ...] = ()
    tags: str | None = None
    delay_level: int = 0
    note: bytes = b""  # a property nobody looks at
    flag: int = 0

    @property
    def queue(self) -> tuple[str, int]:
        """Which queue it is for."""
        return self.topic, self.queue_id

    @property
    def properties(self) -> bytes:
        """Its properties, encoded."""
        pairs = {
            "NOTE": self.note.decode(),
            "TAGS": self.tags,
            "KEYS": " ".join(self.keys),
            "UNIQ_KEY": self.unique_key,
            "DELAY": str(self.delay_level) if self.delay_level else None,
        }
        return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value).encode()

    @property
    def all_keys(self) -> tuple[str, ...]:
        """Everything it can be found by."""
        return self.keys if self.unique_key is None else (*self.keys, self.unique_key)

    def tags_code(self, store_ms: int) -> int:
        """The last word of its queue entry."""
        if self.topic == SCHEDULE_TOPIC and self.delay_level:
            return store_ms + DELAYS_MS[self.delay_level - 1]
        code = 0
        for unit in self.tags or "":
            code = (31 * code + ord(unit)) & 0xFFFFFFFF
        return code - (1 << 32) if code >= 1 << 31 else code


@dataclass(frozen=True, slots=True)
class Record:
    """A message where the log has it."""

    message: Message
    log_offset: int
    queue_offset: int
    store_ms: int
    life: int  # of its topic: one more each time it was deleted
    data: bytes

    @property
    def end(self) -> int:
        """The log offset behind it."""
        return self.log_offset + len(self.data)

    @property
    def entry(self) -> tuple[int, int, int]:
        """What its queue must say of it."""
        return self.log_offset, len(self.data), self.message.tags_code(self.store_ms)


def encode(
    message: Message, *, log_offset: int, queue_offset: int, store_ms: int, store_host: str
) -> bytes:
    """The bytes of a record."""
    topic, properties = message.topic.encode(), message.properties
    is_long = len(topic) > 127
    hosts = [_host(BORN[0], BORN[1]), _host(store_host, 10911)]
    system_flag = 0x10 * (len(hosts[0]) == 20) | 0x20 * (len(hosts[1]) == 20)
    rest = b"".join(
        [
            struct.pack(">I", V2 if is_long else V1),
            struct.pack(">I", zlib.crc32(message.body) & 0x7FFFFFFF),
            struct.pack(">ii", message.queue_id, message.flag),
            struct.pack(">qqi", queue_offset, log_offset, system_flag),
            struct.pack(">q", BORN_AT_MS) + hosts[0],
            struct.pack(">q", store_ms) + hosts[1],
            struct.pack(">iq", 0, 0),
            struct.pack(">i", len(message.body)) + message.body,
            (struct.pack(">H", len(topic)) if is_long else bytes([len(topic)])) + topic,
            struct.pack(">h", len(properties)) + properties,
        ]
    )
    return struct.pack(">I", 4 + len(rest)) + rest


def read_place(data: bytes) -> tuple[int, int, int]:
    """(size, queue offset, store time) of the record at the start of `data`, all unproved."""
    size = struct.unpack_from(">I", data)[0]
    queue_offset = struct.unpack_from(">q", data, 20)[0]
    store_ms = struct.unpack_from(">q", data, 48 + len(_host(*BORN)))[0]
    return size, queue_offset, store_ms


def _host(address: str, port: int) -> bytes:
    return ip_address(address).packed + struct.pack(">i", port)
