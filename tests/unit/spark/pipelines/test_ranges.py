"""Ranges of offsets, against sets of numbers, which are slow and obvious."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.spark.offsets import Queue
from ariane.spark.pipelines.ranges import Span, chunks, common, gaps, merged, overlaps

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: Span(pair[0], sum(pair))),
    max_size=6,
)
QUEUES = [Queue("orders", "broker-a", number) for number in range(4)]


def numbers(spans: list[Span]) -> list[int]:
    return [number for span in spans for number in range(*span)]


@given(SPANS)
def test_merged_holds_each_offset_once(spans: list[Span]) -> None:
    assert numbers(merged(spans)) == sorted(set(numbers(spans)))


@given(SPANS)
def test_overlaps_are_what_is_there_twice(spans: list[Span]) -> None:
    there = numbers(spans)
    assert numbers(overlaps(spans)) == sorted({n for n in there if there.count(n) > 1})


@given(SPANS)
def test_gaps_are_what_lies_between(spans: list[Span]) -> None:
    there = set(numbers(spans))
    between = set(range(min(there), max(there))) if there else set()
    assert numbers(gaps(spans)) == sorted(between - there)


@given(SPANS)
def test_common_is_in_both(spans: list[Span]) -> None:
    for left in spans:
        for right in spans:
            both = set(range(*left)) & set(range(*right))
            assert set(range(*common(left, right))) == both


@given(
    st.dictionaries(st.sampled_from(QUEUES), st.tuples(st.integers(0, 9), st.integers(0, 90))),
    st.integers(1, 25),
)
def test_chunks_are_all_of_it_in_order_and_never_too_large(
    lengths: dict[Queue, tuple[int, int]], size: int
) -> None:
    spans = {queue: Span(first, first + length) for queue, (first, length) in lengths.items()}
    seen: dict[Queue, list[int]] = {}
    for chunk in chunks(spans, size):
        assert 0 < sum(span.end - span.first for span in chunk.values()) <= size
        for queue, span in chunk.items():
            seen.setdefault(queue, []).extend(range(*span))
    assert seen == {
        queue: list(range(*span)) for queue, span in spans.items() if span.first < span.end
    }


def test_queues_go_forward_side_by_side() -> None:
    spans = {QUEUES[0]: Span(0, 100), QUEUES[1]: Span(0, 300)}
    first = next(iter(chunks(spans, 40)))
    assert first == {QUEUES[0]: Span(0, 10), QUEUES[1]: Span(0, 30)}
