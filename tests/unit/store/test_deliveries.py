"""Progress in a mapped file: what is noted, what is read back, and what is not believed."""

from __future__ import annotations

import pytest

from ariane.kernel.queue import Queue
from ariane.store.deliveries import Slots, descents

COPY_BYTES = 32


@pytest.fixture
def memory() -> bytearray:
    return bytearray(4 * 64)


def test_zeros_are_no_note(memory: bytearray) -> None:
    assert [Slots(memory).get(slot, 1 << 60) for slot in range(4)] == [None] * 4


def test_the_last_note_counts(memory: bytearray) -> None:
    slots = Slots(memory)
    for i in range(5):
        slots.note(1, i, 90, 1000 + i)
        assert Slots(memory).get(1, 2000) == (i, 90)
    assert slots.get(0, 2000) is None
    assert slots.get(2, 2000) is None


def test_a_note_of_a_log_that_was_longer_does_not_count(memory: bytearray) -> None:
    slots = Slots(memory)
    slots.note(0, 7, 90, 1000)
    slots.note(0, 8, 90, 1100)
    assert slots.get(0, 1100) == (8, 90)
    assert slots.get(0, 1099) == (7, 90)
    assert slots.get(0, 999) is None


def test_a_reset_forgets_both_copies(memory: bytearray) -> None:
    slots = Slots(memory)
    slots.note(0, 7, 90, 1000)
    slots.note(0, 8, 90, 1100)
    slots.reset(0, 3, 4, 500)
    assert slots.get(0, 2000) == (3, 4)
    assert slots.get(0, 499) is None
    slots.note(0, 4, 4, 600)
    assert slots.get(0, 2000) == (4, 4)
    assert slots.get(0, 599) == (3, 4)


@pytest.mark.parametrize("torn", range(COPY_BYTES))
def test_a_torn_copy_leaves_the_other(memory: bytearray, torn: int) -> None:
    slots = Slots(memory)
    slots.note(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303)
    before = bytes(memory[:64])
    slots.note(0, 0x1111111111111111, 0x2222222222222222, 0x3333333333333333)
    after = bytes(memory[:64])
    changed = 0 if before[:COPY_BYTES] != after[:COPY_BYTES] else COPY_BYTES
    memory[changed + torn] ^= 0x40
    assert slots.get(0, 1 << 62) == (0x0101010101010101, 0x0202020202020202)


def test_numbers_of_slots_are_checked(memory: bytearray) -> None:
    slots = Slots(memory)
    for slot in (-1, 4):
        with pytest.raises(IndexError):
            slots.get(slot, 0)
        with pytest.raises(IndexError):
            slots.note(slot, 0, 0, 0)
    slots.release()
    with pytest.raises(IndexError):
        slots.get(0, 0)


def test_where_due_times_step_back() -> None:
    times = [5, 5, 9, 3, 4, 4, 1]
    queue = Queue(b"Q", 0, 20 * 8)
    entries = [
        i.to_bytes(8, "big") + (1).to_bytes(4, "big") + at.to_bytes(8, "big")
        for i, at in enumerate(times)
    ]
    queue.add(0, bytearray(b"".join(entries) + bytes(20)))
    queue.end = len(times)
    assert descents(queue, 0, 7) == [3, 6]
    assert descents(queue, 3, 7) == [6]
    assert descents(queue, 0, 3) == []
    assert descents(queue, 0, 100) == [3, 6, 7]  # an empty entry reads as zero
    assert descents(queue, 7, 7) == []
