"""Handles and the strings of answers: what clients take apart, word by word."""

from __future__ import annotations

import pytest

from ariane.broker.pop.handles import (
    Handle,
    counts_text,
    handle_text,
    mark_of,
    offsets_text,
    parse_handle,
    popped_topic_of,
    real_topic_of,
    retry_topic_of,
)
from ariane.errors import BadHeader


def test_a_handle_is_read_as_it_was_written() -> None:
    text = handle_text(
        first=7, popped_ms=1_700_000_000_000, invisible_ms=60_000, revive_queue_id=3, mark="1",
        broker_name="broker-a", queue_id=2, queue_offset=9,
    )  # fmt: skip
    assert text == "7 1700000000000 60000 3 1 broker-a 2 9"
    handle = parse_handle(text)
    assert handle == Handle(7, 1_700_000_000_000, 60_000, 3, "1", "broker-a")
    assert (handle.due_ms, handle.is_ordered) == (1_700_000_060_000, False)
    assert parse_handle("7 1 2 999 0 broker-a").is_ordered  # old clients leave the rest out


BAD = {
    "nothing": "",
    "too few words": "7 1700000000000 60000 3 1",
    "a word for a number": "7 soon 60000 3 0 broker-a 2 9",
    "two blanks": "7  1700000000000 60000 3 0 broker-a 2 9",
    "other digits": "٣ 1 2 3 0 broker-a 2 9",
    "too long": f"{'9' * 40} 1 2 3 0 broker-a 2 9",
    "beyond 64 bits": "9223372036854775808 1 2 3 0 broker-a 2 9",
    "not a number": "NaN 1 2 3 0 broker-a 2 9",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_not_a_handle_is_refused_with_words(text: str) -> None:
    with pytest.raises(BadHeader, match="extraInfo"):
        parse_handle(text)


NAMES = [
    # the topic a message lies in, its group, its mark, the topic that is popped
    ("T", "g", "0", "T"),
    ("%RETRY%g_T", "g", "1", "T"),
    ("%RETRY%g+T", "g", "2", "T"),
    ("%RETRY%a_b_c_d", "a_b", "1", "c_d"),
]


@pytest.mark.parametrize(("topic", "group", "mark", "popped"), NAMES)
def test_retry_topics_of_both_forms(topic: str, group: str, mark: str, popped: str) -> None:
    assert mark_of(topic) == mark
    assert popped_topic_of(topic, group) == popped
    assert real_topic_of(popped, group, mark) == topic
    if mark != "0":
        assert retry_topic_of(popped, group, mark) == topic


def test_a_mark_nobody_knows() -> None:
    with pytest.raises(BadHeader, match="retry mark '3'"):
        real_topic_of("T", "g", "3")


def test_the_elements_of_answers() -> None:
    assert offsets_text("0", 3, [5, 6, 9]) == "0 3 5,6,9"
    assert counts_text("0", 3, [(5, 1), (6, 2)], 1) == "0 qo3%5 1;0 qo3%6 2;0 3 1"
    assert counts_text("0", 3, [], 0) == "0 3 0"
