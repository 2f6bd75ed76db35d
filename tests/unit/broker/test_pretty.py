"""The quick writer of tables writes what the plain one would."""

from __future__ import annotations

from ariane.broker import pretty
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumerOffsets,
    DataVersion,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from tests.golden.frames import golden_config


def test_topics_as_the_plain_writer_has_them() -> None:
    table = fastjson.decode(golden_config("topics.json"), TopicConfigTable)
    entries = pretty.Entries()

    def quick(table: TopicConfigTable) -> bytes:
        return pretty.document(
            topicConfigTable=entries.text(table.topics),
            dataVersion=pretty.member(table.data_version),
        )

    assert quick(table) == fastjson.dumps_pretty(table)
    topics = dict(table.topics)
    topics.pop("TBW102")
    topics["SELF_TEST_TOPIC"] = TopicConfig(name="SELF_TEST_TOPIC", attributes={"a": 'x"\n'})
    other = TopicConfigTable(data_version=DataVersion(counter=99), topics=topics)
    assert quick(other) == fastjson.dumps_pretty(other)
    assert quick(TopicConfigTable()) == fastjson.dumps_pretty(TopicConfigTable())


def test_groups_as_the_plain_writer_has_them() -> None:
    golden = fastjson.decode(golden_config("subscriptionGroup.json"), SubscriptionGroupTable)
    table = SubscriptionGroupTable(
        data_version=golden.data_version, groups=golden.groups, forbidden={"g": {"T": 1}}
    )
    assert pretty.document(
        dataVersion=pretty.member(table.data_version),
        forbiddenTable=pretty.member(table.forbidden),
        subscriptionGroupTable=pretty.Entries().text(table.groups),
    ) == fastjson.dumps_pretty(table)


def test_offsets_as_the_plain_writer_has_them() -> None:
    golden = fastjson.decode(golden_config("consumerOffset.json"), ConsumerOffsets)
    for table in (golden, ConsumerOffsets()):
        assert pretty.document(
            dataVersion=pretty.member(table.data_version),
            groupTopicMap=pretty.name_lists(table.group_topics),
            offsetTable=pretty.number_maps(table.offsets),
            pullOffsetTable=pretty.number_maps(table.pull_offsets),
        ) == fastjson.dumps_pretty(table)
    assert pretty.number_maps({"T@g": {}}) == "{}"
