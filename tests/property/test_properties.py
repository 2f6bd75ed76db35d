"""The kernel's one reader of properties against the slow, obvious one in `protocol`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ariane.kernel.properties import key_count_of, read
from ariane.protocol.properties import KEYS, UNIQUE_KEY, decode_properties

# Separators where they belong and where they do not, names that come twice, and texts beyond the 64
# bytes that are looked at together.
pieces = st.one_of(
    st.sampled_from(
        ["\x01", "\x02", "\x00", "", " ", "KEYS", "UNIQ_KEY", "TAGS", "KEYS\x01a b\x02"]
    ),
    st.text(max_size=6),
    st.sampled_from(["x" * 30, "y" * 63, "z" * 64, "w" * 200]),
)
texts = st.lists(pieces, max_size=24).map("".join)


@given(texts)
def test_both_readers_find_the_same_names_and_values(text: str) -> None:
    expected = decode_properties(text)
    found = read(text.encode())
    assert found == expected
    assert list(found) == list(expected)


@given(st.binary(max_size=200))
def test_bytes_that_are_not_utf8_are_replaced_and_separate_nothing(text: bytes) -> None:
    expected = {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, _, value in (entry.partition(b"\x01") for entry in text.split(b"\x02"))
        if name and value
    }
    assert read(text) == expected


@given(texts)
def test_a_message_makes_an_entry_for_its_unique_key_and_each_of_its_keys(text: str) -> None:
    properties = decode_properties(text)
    keys = [key for key in properties.get(KEYS, "").split(" ") if key]
    assert key_count_of(text.encode()) == (UNIQUE_KEY in properties) + len(keys)
