"""What the checker compares in compiled code, against slow twins."""

from __future__ import annotations

import struct
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from ariane.store.comparing import Chains, Keys, agreeing_entries, used_entries

QUEUE_ENTRY = struct.Struct(">qiq")
INDEX_ENTRY = struct.Struct(">iqii")
PADDING = 0x7FFFFFFF

queue_entries = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2, PADDING]), st.integers(0, 1)),
    max_size=12,
)
# Few hashes and offsets, so that records share them; log order, as in files.
keys = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=30).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)


@given(queue_entries)
def test_a_queue_ends_at_its_first_empty_entry(entries: list[tuple[int, int, int]]) -> None:
    data = b"".join(QUEUE_ENTRY.pack(*entry) for entry in entries)
    sizes = [size for _, size, _ in entries]
    assert used_entries(data) == (sizes.index(0) if 0 in sizes else len(sizes))


@given(queue_entries, st.none() | queue_entries, st.integers(-2, 12), st.integers(0, 5), st.data())
def test_agreement_ends_where_the_first_entry_differs(
    entries: list[tuple[int, int, int]],
    others: list[tuple[int, int, int]] | None,
    compared_from: int,
    log_first: int,
    data: st.DataObject,
) -> None:
    if others is not None:  # as long as the file, and alike in places
        others = [*others, *entries][: len(entries)]
    first = data.draw(st.integers(0, len(entries)))
    at, count = first, 0
    for at in range(first, len(entries) + 1):
        if at == len(entries):
            break
        log_offset, size, _ = entries[at]
        if at < compared_from or log_offset < log_first or size == PADDING:
            continue
        if others is None or entries[at] != others[at]:
            break
        count += 1
    packed = b"".join(QUEUE_ENTRY.pack(*entry) for entry in entries)
    expected = None if others is None else b"".join(QUEUE_ENTRY.pack(*each) for each in others)
    found = agreeing_entries(packed, expected, first, len(entries), compared_from, log_first)
    assert found == (at, count)


def packed_keys(pairs: list[tuple[int, int]]) -> bytes:
    return b"".join(INDEX_ENTRY.pack(key_hash, offset, 0, 0) for offset, key_hash in pairs)


@given(keys, keys, st.integers(1, 5), st.integers(1, 5))
def test_keys_that_the_files_lack(
    log: list[tuple[int, int]], files: list[tuple[int, int]], step: int, stretch: int
) -> None:
    there = {offset: {each[1] for each in group} for offset, group in by_offset(files)}
    groups = [(offset, {each[1] for each in group}) for offset, group in by_offset(log)]
    expected = [
        (offset, len(hashes)) for offset, hashes in groups if not hashes <= there.get(offset, set())
    ]
    cut = range(0, len(files), stretch)
    compared = Keys(memoryview(packed_keys(files[at : at + stretch])) for at in cut)
    found = []
    for at in range(0, len(groups), step):  # whole records, however many at a time
        offsets = {offset for offset, _ in groups[at : at + step]}
        found += compared.lacking(packed_keys([pair for pair in log if pair[0] in offsets]))
    assert found == expected
    assert compared.count == sum(len(hashes) for _, hashes in groups)


def by_offset(
    pairs: list[tuple[int, int]],
) -> list[tuple[int, list[tuple[int, int]]]]:
    return [(offset, list(group)) for offset, group in groupby(pairs, key=lambda pair: pair[0])]


@given(
    st.lists(st.integers(0, 20), max_size=20),
    st.integers(1, 7),
    st.none() | st.integers(0, 19),
    st.none() | st.integers(0, 6),
)
def test_chains_lead_to_every_entry(
    hashes: list[int], slot_count: int, astray: int | None, wrong_slot: int | None
) -> None:
    newest = [0] * slot_count
    entries = []
    for number, key_hash in enumerate(hashes, 1):
        slot = key_hash % slot_count
        entries.append((key_hash, number, 0, newest[slot] + (number - 1 == astray)))
        newest[slot] = number
    if wrong_slot is not None and wrong_slot < slot_count:
        newest[wrong_slot] += 1
    else:
        wrong_slot = -1
    chains = Chains(slot_count)
    half = len(entries) // 2
    found = [
        chains.follow(b"".join(INDEX_ENTRY.pack(*entry) for entry in part))
        for part in (entries[:half], entries[half:])
    ]
    is_astray = astray is not None and astray < len(hashes)
    assert max(found) == (astray + 1 if is_astray and astray is not None else 0)
    assert chains.wrong_slot(struct.pack(f">{slot_count}i", *newest)) == wrong_slot
