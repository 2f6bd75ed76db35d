"""The bits by which Apache's brokers mark, beside a queue, which filters a message passes.

We keep no such marks, but `consumerFilter.json` holds each filter's bits, and a broker of
Apache's throws the whole file away when they are not of the size it expects.
"""

from __future__ import annotations

from typing import Final

BIT_COUNT: Final = 112  # for 32 consumers and one wrong guess in five, Apache's settings
HASH_COUNT: Final = 3

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def bit_positions(topic: str, group: str) -> tuple[int, ...]:
    """The bits that stand for a group's filter on a topic."""
    hash64 = murmur3(f"{group}#{topic}".encode())
    low, high = hash64 & 0xFFFFFFFF, hash64 >> 32
    combined = [(low + (i + 1) * high) & 0xFFFFFFFF for i in range(HASH_COUNT)]
    # As 32-bit numbers with a sign, of which the negative ones have all bits turned round.
    return tuple((h ^ 0xFFFFFFFF if h >> 31 else h) % BIT_COUNT for h in combined)


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 for 64-bit machines, seed 0."""
    first = second = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        first ^= _mixed_first(int.from_bytes(data[at : at + 8], "little"))
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mixed_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    first ^= _mixed_first(int.from_bytes(data[whole : whole + 8], "little"))
    second ^= _mixed_second(int.from_bytes(data[whole + 8 :], "little"))
    first, second = first ^ len(data), second ^ len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finished(first) + _finished(second) & _MASK


def _mixed_first(word: int) -> int:
    return _rotated(word * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_second(word: int) -> int:
    return _rotated(word * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(word: int, count: int) -> int:
    return (word << count | word >> 64 - count) & _MASK


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
