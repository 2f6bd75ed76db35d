"""Checkpoints: what is open, what is settled, and which notes a restart still needs."""

from __future__ import annotations

import pytest

from ariane.broker.pop.checkpoints import EARLY_KEPT_MS, Checkpoints, Key
from ariane.kernel.pop import Checkpoint

POPPED_MS = 1_700_000_000_000


def key(first: int = 0, popped_ms: int = POPPED_MS, queue_id: int = 0) -> Key:
    return Key("T", "g", queue_id, first, popped_ms)


def checkpoint(
    first: int = 0, gaps: tuple[int, ...] = (0, 1, 2), note: int = 0, **fields: int
) -> Checkpoint:
    fields = {"popped_ms": POPPED_MS, "revive_queue_id": 0} | fields
    return Checkpoint(
        key(first, fields.pop("popped_ms")), 60_000, gaps, journal_offset=note, **fields
    )


def open_offsets(checkpoints: Checkpoints) -> list[int]:
    return sorted(offset for each in checkpoints for offset in each.open_offsets())


def oldest_note(checkpoints: Checkpoints) -> int | None:
    oldest = checkpoints.oldest(0)
    return None if oldest is None else oldest.journal_offset


@pytest.mark.parametrize("gaps", [(0, 1, 2, 3), (0, 2, 5, 40), (3, 4), tuple(range(64))])
def test_the_bits_of_a_checkpoint(gaps: tuple[int, ...]) -> None:
    one = checkpoint(100, gaps)
    assert (one.gaps, one.count) == (gaps, len(gaps))
    assert one.open_offsets() == [100 + gap for gap in gaps]
    for number, gap in enumerate(gaps):
        assert one.bit_of(100 + gap) == 1 << number
    strangers = {99, 0, 100 + gaps[-1] + 1, *(100 + n for n in range(64) if n not in gaps)}
    assert all(one.bit_of(offset) == 0 for offset in strangers)
    for gap in gaps[:-1]:
        one.settled |= one.bit_of(100 + gap)
        assert not one.is_closed
    assert one.open_offsets() == [100 + gaps[-1]]
    one.settled |= one.bit_of(100 + gaps[-1])
    assert one.is_closed


def test_a_checkpoint_has_one_to_sixty_four_messages() -> None:
    for count in (0, 65):
        with pytest.raises(ValueError, match="1 to 64"):
            Checkpoint(key(), 1, range(count))


def test_messages_are_settled_once_each_and_then_all_is_forgotten() -> None:
    checkpoints = Checkpoints()
    one = checkpoint(note=4)
    checkpoints.add(one)
    assert checkpoints.get(key()) is one
    checkpoints.settle(one, one.bit_of(1))
    assert open_offsets(checkpoints) == [0, 2]
    checkpoints.settle(one, one.bit_of(1) | one.bit_of(0))
    assert oldest_note(checkpoints) == 4
    checkpoints.settle(one, one.bit_of(2))
    assert (len(checkpoints), checkpoints.get(key()), oldest_note(checkpoints)) == (0, None, None)


def test_the_oldest_note_still_needed_by_queue() -> None:
    checkpoints = Checkpoints()
    notes = [checkpoint(10 * n, note=n) for n in range(4)]
    for each in notes:
        checkpoints.add(each)
    checkpoints.add(checkpoint(100, note=7, revive_queue_id=1))
    checkpoints.settle(notes[1], 7)
    assert oldest_note(checkpoints) == 0
    checkpoints.settle(notes[0], 7)
    assert oldest_note(checkpoints) == 2
    checkpoints.moved(notes[2], 9)  # it was noted anew
    assert oldest_note(checkpoints) == 3
    checkpoints.settle(notes[3], 7)
    assert oldest_note(checkpoints) == 9
    assert checkpoints.count_needed(0) == 1
    other = checkpoints.oldest(1)
    assert other is not None
    assert other.journal_offset == 7


def test_a_newer_note_of_the_same_checkpoint_replaces_it_and_keeps_what_was_settled() -> None:
    checkpoints = Checkpoints()
    old, new = checkpoint(note=1), checkpoint(note=8)
    checkpoints.add(old)
    checkpoints.settle(old, 0b001)
    new.settled = 0b010
    checkpoints.add(new)
    assert (open_offsets(checkpoints), oldest_note(checkpoints), len(checkpoints)) == ([2], 8, 1)
    assert old.is_closed  # so that nothing is given back by it


def test_acknowledgements_may_come_before_their_checkpoint() -> None:
    checkpoints = Checkpoints()
    due_ms = POPPED_MS + 60_000
    checkpoints.settle_early(key(), [0], 0, 5, due_ms)
    checkpoints.settle_early(key(), [2], 0, 6, due_ms)
    assert oldest_note(checkpoints) == 5  # needed: after a restart they are early again
    checkpoints.forget_early(due_ms + EARLY_KEPT_MS - 1)
    late = checkpoint(note=9)
    checkpoints.add(late)
    assert (open_offsets(checkpoints), oldest_note(checkpoints)) == ([1], 9)


def test_early_acknowledgements_of_everything_leave_nothing_open() -> None:
    checkpoints = Checkpoints()
    checkpoints.settle_early(key(), [0, 1, 2], 0, 5, POPPED_MS)
    checkpoints.add(checkpoint(note=9))
    assert (len(checkpoints), oldest_note(checkpoints)) == (0, None)


def test_early_acknowledgements_are_not_kept_for_ever() -> None:
    checkpoints = Checkpoints()
    checkpoints.settle_early(key(), [0, 1], 0, 5, POPPED_MS)
    checkpoints.forget_early(POPPED_MS + EARLY_KEPT_MS)
    assert oldest_note(checkpoints) is None
    checkpoints.add(checkpoint(note=9))
    assert open_offsets(checkpoints) == [0, 1, 2]


def test_what_is_lent_by_group_and_queue() -> None:
    checkpoints = Checkpoints()
    checkpoints.add(checkpoint(0))
    checkpoints.add(checkpoint(10, (0, 4)))
    assert checkpoints.lent() == {("T", "g", 0): [0, 1, 2, 10, 14]}
    assert checkpoints.lent("g") == checkpoints.lent()
    assert checkpoints.lent("other") == {}
