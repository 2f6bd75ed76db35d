"""What callers' words mean, and what heartbeats say of it."""

import pytest

from ariane.client.received import ReceivedMessage
from ariane.client.records import decode
from ariane.client.subscription import Filter, filter_of, subscription_of
from ariane.errors import ClientError
from tests.unit.client.fake import record

FILTERS = {
    "everything": ({"tags": "*"}, Filter()),
    "nothing said": ({}, Filter()),
    "blank": ({"tags": " "}, Filter()),
    "one tag": ({"tags": "paid"}, Filter("paid", "TAG", frozenset({"paid"}))),
    "two tags": ({"tags": "a || b"}, Filter("a || b", "TAG", frozenset({"a", "b"}))),
    "sloppy": ({"tags": "a|| ||b "}, Filter("a|| ||b ", "TAG", frozenset({"a", "b"}))),
    "sql": ({"sql": "price > 3"}, Filter("price > 3", "SQL92")),
}


@pytest.mark.parametrize(("words", "wanted"), FILTERS.values(), ids=FILTERS)
def test_filters(words: dict[str, str], wanted: Filter) -> None:
    assert filter_of(**words) == wanted


BAD = {
    "both": ({"tags": "a", "sql": "b > 1"}, "not both"),
    "empty sql": ({"sql": " "}, "empty"),
    "only bars": ({"tags": "||"}, "no tag"),
}


@pytest.mark.parametrize(("words", "complaint"), BAD.values(), ids=BAD)
def test_words_that_mean_nothing(words: dict[str, str], complaint: str) -> None:
    with pytest.raises(ClientError, match=complaint):
        filter_of(**words)


def test_tags_are_compared_by_their_words_though_their_hashes_agree() -> None:
    data = record(b"1", tags="Aa") + record(b"2", tags="BB") + record(b"3")
    messages = decode(data, ReceivedMessage)
    wanted = filter_of(tags="Aa || C")
    assert [message.body for message in wanted.accepted(messages)] == [b"1"]
    assert filter_of().accepted(messages) == messages
    assert filter_of(sql="a = 1").accepted(messages) == messages


def test_heartbeats_tell_tags_and_their_hashes() -> None:
    data = subscription_of("orders", filter_of(tags="TagB || TagA"), 17)
    assert (data.tags, data.tag_codes) == (["TagA", "TagB"], [2598919, 2598920])
    assert (data.expression, data.expression_type, data.version) == ("TagB || TagA", "TAG", 17)
    sql = subscription_of("orders", filter_of(sql="a > 1"), 17)
    assert (sql.expression, sql.expression_type, sql.tags) == ("a > 1", "SQL92", [])
