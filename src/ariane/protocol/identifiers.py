"""Message ids: the offset id that says where a record is, and the unique key a client makes."""

from __future__ import annotations

import datetime
import struct
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Protocol

from ariane.errors import ProtocolError
from ariane.kernel.unique_keys import KeyMaker

Host = tuple[str, int]

_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_ID_CHARACTERS: Final = (32, 56)  # with an IPv4 or an IPv6 host


class WallClock(Protocol):
    """What a unique key needs of a clock."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class RandomBits(Protocol):
    """What a unique key needs of a random.Random."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits."""
        ...


@lru_cache(maxsize=4096)
def encode_host(host: Host) -> bytes:
    """4 or 16 bytes of address and 4 of port, as in records and ids; takes addresses, not names."""
    try:
        return ip_address(host[0].partition("%")[0]).packed + _PORT.pack(host[1])
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"{host[0]}:{host[1]} is not an IP address and port") from error


@lru_cache(maxsize=4096)
def decode_host(data: bytes) -> Host:
    """The reverse of `encode_host`, for 8 or 20 bytes."""
    return str(ip_address(data[:-4])), _PORT.unpack(data[-4:])[0]


def encode_offset_id(store_host: Host, log_offset: int) -> str:
    """The id a broker gives a message: its own address and the record's log offset."""
    return (encode_host(store_host) + _OFFSET.pack(log_offset)).hex().upper()


def decode_offset_id(text: str) -> tuple[Host, int]:
    """Store host and log offset of an offset id; raises ProtocolError when it is not one."""
    try:
        data = bytes.fromhex(text) if len(text) in _ID_CHARACTERS else b""
    except ValueError:
        data = b""
    if len(data) * 2 != len(text) or not data:
        raise ProtocolError(f"{text!r} is not an offset message id: 32 or 56 hexadecimal digits")
    return decode_host(data[:-8]), _OFFSET.unpack(data[-8:])[0]


class UniqueKeys:
    """Makes the ids that producers give their messages: hexadecimal digits, never the same.

    Address, process, chance, then milliseconds of the month in 32 bits and a counter in 16.
    """

    def __init__(
        self, clock: WallClock, random: RandomBits, *, process_id: int, host: str = "127.0.0.1"
    ) -> None:
        self._clock = clock
        head = ip_address(host).packed + (process_id & 0xFFFF).to_bytes(2, "big")
        # Java puts a hash of its class loader here, which tells processes of one machine apart.
        self.maker = KeyMaker(head + random.getrandbits(32).to_bytes(4, "big"), _month_of)
        self.at = self.maker.next  # a new key at a moment, in milliseconds

    def next(self) -> str:
        """A new key."""
        return self.at(self._clock.wall_ms())


def _month_of(now_ms: int) -> tuple[int, int]:
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = (first + datetime.timedelta(days=32)).replace(day=1)
    return int(first.timestamp()) * 1000, int(end.timestamp()) * 1000
