"""Positions become offsets, and ranges become partitions."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import QueueBounds, QueueRange
from ariane.spark.offsets import Queue
from ariane.spark.options import Edge, Moment, NoMatch, OffsetsGiven, Splits, TimesGiven
from ariane.spark.planning import (
    SHARED_ROWS,
    check_order,
    divide,
    ends_of,
    queue_of,
    starts_of,
    times_of,
)
from tests.unit.spark.fakes import A0, A1, B0

LAYOUT = {A0: QueueBounds(3, 10), A1: QueueBounds(0, 0)}


def test_edges() -> None:
    assert starts_of(Edge.EARLIEST, LAYOUT, {}, NoMatch.ERROR) == {A0: 3, A1: 0}
    assert starts_of(Edge.LATEST, LAYOUT, {}, NoMatch.ERROR) == {A0: 10, A1: 0}
    assert ends_of(Edge.LATEST, LAYOUT, {}) == {A0: 10, A1: 0}


def test_offsets_with_edges_among_them() -> None:
    given_offsets = OffsetsGiven({A0: 7, A1: -1})
    assert starts_of(given_offsets, LAYOUT, {}, NoMatch.ERROR) == {A0: 7, A1: 0}
    assert starts_of(OffsetsGiven({A0: -2, A1: 0}), LAYOUT, {}, NoMatch.ERROR) == {A0: 3, A1: 0}


def test_a_map_names_exactly_the_queues_there_are() -> None:
    with pytest.raises(ConfigError, match="missing: topic orders, broker broker-a, queue 1"):
        starts_of(OffsetsGiven({A0: 7}), LAYOUT, {}, NoMatch.ERROR)
    with pytest.raises(ConfigError, match="not there: topic orders, broker broker-b, queue 0"):
        ends_of(OffsetsGiven({A0: 7, A1: 0, B0: 1}), LAYOUT, {})
    with pytest.raises(ConfigError, match="missing: topic orders, broker broker-a, queue 1"):
        times_of(TimesGiven({A0: 7}), LAYOUT)
    with pytest.raises(ConfigError, match=r"^endingOffsetsByTimestamp must name exactly") as caught:
        times_of(TimesGiven({A0: 7}, "endingOffsetsByTimestamp"), LAYOUT)
    assert "-2" not in str(caught.value)  # which is no time


def test_times_are_looked_up_for_the_queues_that_have_one() -> None:
    assert times_of(Moment(99), LAYOUT) == {A0: 99, A1: 99}
    assert times_of(TimesGiven({A0: 1, A1: 2}), LAYOUT) == {A0: 1, A1: 2}
    assert times_of(Edge.LATEST, LAYOUT) == {}


def test_no_message_as_young_as_the_start_is_an_error_or_the_end() -> None:
    found = {A0: 5, A1: 0}
    with pytest.raises(ConfigError, match="queue 1: no message was stored at the starting time"):
        starts_of(Moment(99), LAYOUT, found, NoMatch.ERROR)
    assert starts_of(Moment(99), LAYOUT, found, NoMatch.LATEST) == {A0: 5, A1: 0}
    assert ends_of(Moment(99), LAYOUT, {A0: 10, A1: 0}) == {A0: 10, A1: 0}


def test_an_end_before_the_start_is_refused() -> None:
    check_order({A0: 5}, {A0: 5})
    with pytest.raises(ConfigError, match="start at 6 and end at 5"):
        check_order({A0: 6}, {A0: 5})


def span(queue: Queue, start: int, end: int) -> QueueRange:
    return QueueRange(*queue, start, end)


def test_little_ranges_share_a_partition_and_large_ones_do_not() -> None:
    small, large = span(A0, 0, 5), span(A1, 0, SHARED_ROWS + 1)
    assert divide([small, span(B0, 2, 4), large], Splits(), {}) == [
        [small, span(B0, 2, 4)],
        [large],
    ]


def test_empty_ranges_are_no_partitions() -> None:
    assert divide([span(A0, 5, 5)], Splits(), {}) == []


def test_as_many_partitions_as_asked_for_the_large_ones_cut_first() -> None:
    parts = divide([span(A0, 0, 90), span(A1, 0, 10)], Splits(min_partitions=4), {})
    assert parts == [[span(A0, 0, 30)], [span(A0, 30, 60)], [span(A0, 60, 90)], [span(A1, 0, 10)]]


def test_no_partition_is_larger_than_allowed() -> None:
    parts = divide([span(A0, 0, 7)], Splits(max_records=3), {})
    assert parts == [[span(A0, 0, 2)], [span(A0, 2, 4)], [span(A0, 4, 7)]]
    parts = divide([span(A0, 0, 4)], Splits(max_bytes=2048), {A0: 1000.0})
    assert parts == [[span(A0, 0, 2)], [span(A0, 2, 4)]]


RANGES = st.dictionaries(
    st.builds(Queue, st.just("t"), st.sampled_from("ab"), st.integers(0, 5)),
    st.tuples(st.integers(0, 1000), st.integers(0, 40_000), st.floats(50, 5000)),
    max_size=8,
)


@given(
    RANGES,
    st.none() | st.integers(1, 60),
    st.none() | st.integers(500, 50_000),
    st.none() | st.integers(500_000, 10**8),
)
def test_partitions_hold_every_offset_once_and_keep_to_the_options(
    queues: dict[Queue, tuple[int, int, float]],
    min_partitions: int | None,
    max_records: int | None,
    max_bytes: int | None,
) -> None:
    ranges = [span(queue, start, start + rows) for queue, (start, rows, _) in queues.items()]
    sizes = {queue: size for queue, (_, _, size) in queues.items()}
    parts = divide(ranges, Splits(min_partitions, max_records, max_bytes), sizes)
    pieces = defaultdict(list)
    for part in parts:
        for one in part:
            assert one.start < one.end
            pieces[queue_of(one)].append(one)
    for one in ranges:
        found = pieces.pop(queue_of(one), [])
        edges = [one.start, *(piece.end for piece in found)]
        assert [piece.start for piece in found] == edges[:-1]
        assert edges[-1] == one.end
    assert not pieces
    rows = [sum(one.end - one.start for one in part) for part in parts]
    if min_partitions is not None:
        assert len(parts) >= min(min_partitions, sum(rows))
    if max_records is not None:
        assert all(count <= max_records for count in rows)
    if max_bytes is not None:
        for part in parts:
            size = sum((one.end - one.start) * sizes[queue_of(one)] for one in part)
            assert size <= max_bytes * 1.01
