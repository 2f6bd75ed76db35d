"""Bulk reads against plain ones: the same records, whatever is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ariane.disk import SimulatedDisk
from ariane.kernel.hashing import java_hash
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.store import Store
from tests.unit.store.shelf import append, config_with, open_store, read_all


def gathered(
    store: Store, first: int, end: int, bytes_max: int, tags: frozenset[int] | None
) -> list[StoredMessage]:
    """What a reader gets that asks until it has all."""
    found: list[StoredMessage] = []
    while first < end and (
        read := store.bulk_read("T", 0, first, end, bytes_max=bytes_max, tag_codes=tags)
    ):
        read.find()
        frame = read.frame(b"head")
        assert frame[:4] == b"head" and len(frame) == 4 + read.byte_count
        records = decode_records(frame[4:])
        assert len(records) == read.count
        assert read.count <= 1 or read.byte_count <= bytes_max
        assert first < read.next_offset <= end
        found += records
        first = read.next_offset
    return found


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    st.integers(0, 45),
    st.integers(0, 45),
    st.sampled_from([1, 500, 4000, 1 << 20]),
    st.booleans(),
)
def test_bulk_reads_bring_what_reads_do(
    sizes: list[int], first: int, end: int, bytes_max: int, has_tags: bool
) -> None:
    store = open_store(SimulatedDisk())
    for i, size in enumerate(sizes):
        append(store, b"x" * size, TAGS=f"t{i % 3}")
        append(store, b"other", queue_id=1)  # between them, so that records are not side by side
    tags = frozenset({java_hash("t1")}) if has_tags else None
    expected = [
        message
        for message in read_all(store)
        if first <= message.queue_offset < end and (not has_tags or message.tags == "t1")
    ]
    assert gathered(store, first, min(end, len(sizes)), bytes_max, tags) == expected


def test_what_matches_is_found_however_many_segments_lie_before_it() -> None:
    store = open_store(config=config_with(segment_bytes=1024, message_bytes_max=800))
    append(store, b"first", TAGS="t0")
    for _ in range(200):
        append(store, b"." * 700, topic="OTHER")
    append(store, b"far", TAGS="t1")
    append(store, b"farther", TAGS="t1")
    assert store.log.file_count > 3 * 64  # one read looks into 64
    found = gathered(store, 0, 3, 1 << 20, frozenset({java_hash("t1")}))
    assert [message.body for message in found] == [b"far", b"farther"]


def test_what_is_gathered_outlives_its_segments() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(60):
        append(store, b"%d " % i * 100)
    store.checkpoint()
    expected = read_all(store)
    read = store.bulk_read("T", 0, 0, 60, bytes_max=1 << 20)
    assert read is not None
    disk.used_ratio = 0.88
    assert store.clean() > 0
    assert store.bulk_read("T", 0, 0, 60, bytes_max=1 << 20) is None
    read.find()
    assert decode_records(read.frame(b"")) == expected
