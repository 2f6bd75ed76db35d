"""How much of a backlog a batch takes."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.spark.limits import Patience, admit
from ariane.spark.offsets import Queue
from ariane.spark.options import Limits
from tests.unit.spark.fakes import A0, A1, B0

BACKLOGS = st.dictionaries(
    st.builds(Queue, st.just("t"), st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**7), st.floats(60, 1e6)),
    max_size=15,
)


def test_shares_go_by_backlog() -> None:
    starts = {A0: 100, A1: 0, B0: 50}
    ends = {A0: 700, A1: 300, B0: 50}
    assert admit(starts, ends, Limits(max_offsets=300), {}) == {A0: 300, A1: 100, B0: 50}


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert admit({A0: 0}, {A0: 5}, Limits(max_offsets=5), {}) == {A0: 5}
    assert admit({A0: 0}, {A0: 5}, Limits(), {}) == {A0: 5}


def test_every_queue_with_a_backlog_takes_one_at_least() -> None:
    assert admit({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, Limits(max_offsets=1), {}) == {
        A0: 1,
        A1: 1,
    }


def test_bytes_count_messages_by_their_size() -> None:
    starts, ends = {A0: 0, A1: 0}, {A0: 1000, A1: 1000}
    sizes = {A0: 100.0, A1: 900.0}
    assert admit(starts, ends, Limits(max_bytes=100_000), sizes) == {A0: 100, A1: 100}


def test_the_tighter_of_two_limits_holds() -> None:
    starts, ends, sizes = {A0: 0}, {A0: 1000}, {A0: 10.0}
    assert admit(starts, ends, Limits(max_offsets=10, max_bytes=1000), sizes) == {A0: 10}
    assert admit(starts, ends, Limits(max_offsets=500, max_bytes=1000), sizes) == {A0: 100}


@given(BACKLOGS, st.integers(1, 10**7), st.none() | st.integers(1, 10**9))
def test_never_more_than_the_limit_and_always_some_of_every_queue(
    queues: dict[Queue, tuple[int, int, float]], max_offsets: int, max_bytes: int | None
) -> None:
    starts = {queue: start for queue, (start, _, _) in queues.items()}
    ends = {queue: start + backlog for queue, (start, backlog, _) in queues.items()}
    sizes = {queue: size for queue, (_, _, size) in queues.items()}
    admitted = admit(starts, ends, Limits(max_offsets=max_offsets, max_bytes=max_bytes), sizes)
    assert admitted.keys() == ends.keys()
    waiting = [queue for queue in ends if ends[queue] > starts[queue]]
    for queue, end in ends.items():
        assert starts[queue] <= admitted[queue] <= end
    assert all(admitted[queue] > starts[queue] for queue in waiting)
    taken = {queue: admitted[queue] - starts[queue] for queue in waiting}
    assert sum(taken.values()) <= max(max_offsets, 0) + len(waiting)
    if max_bytes is not None:
        beyond_one = sum((taken[queue] - 1) * sizes[queue] for queue in waiting)
        assert beyond_one <= max_bytes


def test_a_batch_waits_until_it_is_worth_it_or_has_waited_long_enough() -> None:
    patience, limits = Patience(), Limits(min_offsets=10, max_delay_s=60.0)
    few, enough = {A0: 5}, {A0: 10}
    assert not patience.holds_back({A0: 0}, few, limits, 100.0)  # the first of a run
    assert patience.holds_back({A0: 0}, few, limits, 101.0)
    assert not patience.holds_back({A0: 0}, enough, limits, 102.0)
    assert patience.holds_back({A0: 0}, few, limits, 161.9)
    assert not patience.holds_back({A0: 0}, few, limits, 162.0)
    assert patience.holds_back({A0: 0}, few, limits, 163.0)


def test_nothing_is_held_back_without_a_minimum() -> None:
    assert not Patience().holds_back({A0: 0}, {A0: 1}, Limits(), 0.0)
