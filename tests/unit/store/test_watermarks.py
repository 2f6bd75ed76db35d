"""What is shown and what answers wait for, by the rule of each mode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.store.watermarks import (
    ASYNC_FLUSH,
    POOLED,
    SYNC_FLUSH,
    Mark,
    Policy,
    Watermarks,
    policy_of,
)

from .shelf import SMALL, config_with

# Modes to come, to see that they are rows like the others.
SYNC_MASTER = Policy(Mark.STORED, shown=(Mark.REPLICATED,), safe=(Mark.REPLICATED, Mark.FLUSHED))
RAFT = Policy(Mark.STORED, shown=(Mark.COMMITTED,), safe=(Mark.COMMITTED,))
ALL = [ASYNC_FLUSH, SYNC_FLUSH, POOLED, SYNC_MASTER, RAFT]


@pytest.mark.parametrize(
    ("policy", "moves", "shown", "safe"),
    [
        (ASYNC_FLUSH, {}, 100, 100),
        (SYNC_FLUSH, {}, 0, 0),
        (SYNC_FLUSH, {Mark.FLUSHED: 60}, 60, 60),
        (POOLED, {}, 0, 100),
        (POOLED, {Mark.STORED: 70}, 70, 100),
        (POOLED, {Mark.STORED: 70, Mark.FLUSHED: 60}, 70, 100),
        (SYNC_MASTER, {Mark.FLUSHED: 90}, 0, 0),
        (SYNC_MASTER, {Mark.FLUSHED: 60, Mark.REPLICATED: 80}, 80, 60),
        (RAFT, {Mark.FLUSHED: 90, Mark.REPLICATED: 80, Mark.COMMITTED: 70}, 70, 70),
    ],
)
def test_a_mode_is_a_row(policy: Policy, moves: dict[Mark, int], shown: int, safe: int) -> None:
    marks = Watermarks(policy, 0)
    marks.round_ended(100)
    for mark, end in moves.items():
        marks.move(mark, end)
    assert (marks.shown, marks.safe) == (shown, safe)


@pytest.mark.parametrize(
    ("policy", "parks", "shows", "flushes"),
    [
        (ASYNC_FLUSH, False, True, False),
        (SYNC_FLUSH, True, False, True),
        (POOLED, False, False, False),
        (SYNC_MASTER, True, False, True),
        (RAFT, True, False, False),
    ],
)
def test_what_follows_from_a_row(policy: Policy, parks: bool, shows: bool, flushes: bool) -> None:
    assert (policy.parks, policy.shows_at_once, policy.flushes_at_once) == (parks, shows, flushes)


def test_modes_of_settings() -> None:
    assert policy_of(SMALL) is ASYNC_FLUSH
    assert policy_of(config_with(transient_pool_enabled=True)) is POOLED
    both = config_with(transient_pool_enabled=True, flush_mode="SYNC_FLUSH")
    assert policy_of(both) is SYNC_FLUSH


def test_what_waits_for_several_things_waits_for_the_last_of_them() -> None:
    marks = Watermarks(SYNC_MASTER, 0)
    marks.round_ended(100)
    assert marks.late(SYNC_MASTER.safe, 50) is Mark.REPLICATED
    marks.move(Mark.REPLICATED, 50)
    assert marks.late(SYNC_MASTER.safe, 50) is Mark.FLUSHED


@given(st.sampled_from(ALL), st.lists(st.tuples(st.sampled_from(Mark), st.integers(0, 50))))
def test_no_mark_falls_or_passes_what_it_follows(
    policy: Policy, moves: list[tuple[Mark, int]]
) -> None:
    marks = Watermarks(policy, 0)
    at = dict.fromkeys(Mark, 0)
    for mark, end in moves:
        before = marks.shown, marks.safe
        limit = 50 if mark is Mark.PLACED else at[min(Mark(mark - 1), Mark.STORED)]
        if at[mark] <= end <= limit:
            marks.move(mark, end)
            at[mark] = end
        else:
            with pytest.raises(AssertionError):
                marks.move(mark, end)
        assert (marks.placed, marks.stored, marks.flushed) == tuple(at[m] for m in list(Mark)[:3])
        assert marks.placed >= marks.stored >= marks.flushed
        assert marks.shown >= before[0]
        assert marks.safe >= before[1]
