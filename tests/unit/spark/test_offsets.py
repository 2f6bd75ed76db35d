"""Offsets in a checkpoint: one text for one meaning, and nothing taken for ours that is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import ConfigError
from ariane.spark.offsets import Queue, StreamOffset, flat, nested, stream_offset_of

QUEUES = st.builds(
    Queue,
    st.sampled_from(["orders", "payments", "version"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 20),
)
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=12)


@given(OFFSETS, OFFSETS)
def test_reads_what_it_wrote(queues: dict[Queue, int], added: dict[Queue, int]) -> None:
    text = json.dumps(StreamOffset(queues, added).json())
    assert stream_offset_of(json.loads(text)) == StreamOffset(queues, added)


@given(OFFSETS, st.randoms())
def test_the_same_offsets_give_the_same_text_and_so_does_reading_it(
    offsets: dict[Queue, int], random
) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    text = json.dumps(StreamOffset(offsets).json())
    assert json.dumps(StreamOffset(dict(shuffled)).json()) == text
    assert json.dumps(stream_offset_of(json.loads(text)).json()) == text


def test_looks_like_this() -> None:
    offset = StreamOffset(
        {Queue("b", "broker-a", 10): 7, Queue("b", "broker-a", 9): 8, Queue("a", "x", 0): 1},
        {Queue("b", "broker-a", 10): 3},
    )
    assert json.dumps(offset.json()) == (
        '{"version": 1, "queues": {"a": {"x": {"0": 1}}, "b": {"broker-a": {"9": 8, "10": 7}}}, '
        '"added": {"b": {"broker-a": {"10": 3}}}}'
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not written by this source"),
        ({"orders": {"0": 3}}, "not written by this source"),  # Kafka's
        ({"version": 2, "queues": {}}, "version 2"),
        ({"version": 1, "queues": {"orders": {"0": 23}}}, "23"),
        ({"version": 1, "queues": {"orders": {"broker-a": {"0": -1}}}}, "-1"),
        ({"version": 1, "queues": {"orders": {"broker-a": {"0": True}}}}, "True"),
        ({"version": 1, "queues": {"orders": {"broker-a": {"zero": 1}}}}, "zero"),
        ({"version": 1, "queues": {"orders": {"broker-a": {"0": 1.5}}}}, "1.5"),
        ({"version": 1}, "None"),
    ],
)
def test_refuses_what_it_did_not_write(value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        stream_offset_of(value)


def test_nested_and_flat_are_each_others_reverse() -> None:
    offsets = {Queue("orders", "broker-a", 0): 23, Queue("orders", "broker-b", 1): 0}
    assert nested(offsets) == {"orders": {"broker-a": {"0": 23}, "broker-b": {"1": 0}}}
    assert flat(nested(offsets), "it") == offsets
