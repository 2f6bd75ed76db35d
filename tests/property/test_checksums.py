"""The checksum of a lake's messages against the obvious way to it."""

from __future__ import annotations

import struct
import zlib
from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.spark._checksums import checksum

ALL = (1 << 64) - 1
PRIMES = (
    *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def turned(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & ALL


def hash_of(number: int, seed: int) -> int:
    """XXH64 of eight bytes, as its specification has it."""
    one, two, three, four, five = PRIMES
    hashed = (seed + five + 8) & ALL
    hashed ^= turned(number * two & ALL, 31) * one & ALL
    hashed = (turned(hashed, 27) * one + four) & ALL
    hashed = (hashed ^ hashed >> 33) * two & ALL
    hashed = (hashed ^ hashed >> 29) * three & ALL
    return hashed ^ hashed >> 32


def obvious_checksum(rows: list[tuple[int, bytes]]) -> int:
    hashes = (hash_of(zlib.crc32(body), hash_of(offset & ALL, 42)) for offset, body in rows)
    found = reduce(xor, hashes, 0)
    return found - (1 << 64) if found >> 63 else found


def buffers(rows: list[tuple[int, bytes]]) -> tuple[bytes, bytes, bytes]:
    bounds = [0]
    for _, body in rows:
        bounds.append(bounds[-1] + len(body))
    offsets = struct.pack(f"{len(rows)}q", *(offset for offset, _ in rows))
    return offsets, struct.pack(f"{len(bounds)}i", *bounds), b"".join(body for _, body in rows)


@given(st.lists(st.tuples(INT64, st.binary(max_size=300))), st.integers(0, 3))
def test_checksums(rows: list[tuple[int, bytes]], first: int) -> None:
    first = min(first, len(rows))
    found = checksum(*buffers(rows), first, len(rows) - first)
    assert found == obvious_checksum(rows[first:])


def test_what_spark_says() -> None:
    """`SELECT bit_xor(xxhash64(o, crc32(b))) FROM VALUES (7L, X'616263'), (-1L, X'') t(o, b)`."""
    assert checksum(*buffers([(7, b"abc"), (-1, b"")]), 0, 2) == 5885458246818066542


@pytest.mark.parametrize(
    ("bounds", "count"), [((0, 1, 4), 2), ((0, 2, 1), 2), ((-1, 2, 3), 2), ((0, 1, 3), 3)]
)
def test_what_lies_outside_is_not_touched(bounds: tuple[int, ...], count: int) -> None:
    with pytest.raises(ValueError, match="buffer"):
        checksum(bytes(8 * len(bounds)), struct.pack("3i", *bounds), b"abc", 0, count)
    with pytest.raises(ValueError, match="rows -1 to 1"):
        checksum(bytes(8), bytes(8), None, -1, 2)
