"""The two hashes against what Java and zlib say."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.kernel.hashing import crc32, java_hash


def obvious_java_hash(text: str) -> int:
    hashed = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("TagA", 2598919),
        ("order-123", -392797389),
        ("😀", 1772899),
        ("", 0),
        ("order-created", -392709271),
    ],
)
def test_java_hash_of_known_strings(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


@given(st.text())
def test_java_hash_counts_utf16_units(text: str) -> None:
    assert java_hash(text) == obvious_java_hash(text)


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=80), st.text(max_size=20))
def test_java_hash_of_plain_letters_and_others_after_them(plain: str, others: str) -> None:
    assert java_hash(plain + others) == obvious_java_hash(plain + others)
    assert java_hash(others + plain) == obvious_java_hash(others + plain)


@given(st.binary())
def test_java_hash_takes_any_bytes(data: bytes) -> None:
    assert -(1 << 31) <= java_hash(data) < 1 << 31


@given(st.binary(max_size=2000))
def test_crc_is_zlibs_without_the_sign_bit(data: bytes) -> None:
    assert crc32(data) == zlib.crc32(data) & 0x7FFFFFFF


def test_crc_of_every_length_around_the_folding_steps() -> None:
    data = bytes(range(256)) * 4
    for size in range(300):
        assert crc32(data[:size]) == zlib.crc32(data[:size]) & 0x7FFFFFFF
