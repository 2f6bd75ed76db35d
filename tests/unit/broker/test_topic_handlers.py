"""Topics and groups from outside: made, changed, shown and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ariane.codes import FrameFlag, RequestCode, ResponseCode
from ariane.errors import StoreError, StoreReadOnly
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumeStats,
    GroupConfigList,
    GroupList,
    OffsetProgress,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicStats,
)
from ariane.protocol.bodies.statistics import AllConsumeStats, Samples, TimeSpans
from ariane.protocol.command import Command
from tests.unit.broker.rig import Rig, send_fields


@pytest.fixture
def rig() -> Rig:
    return Rig()


def ask(rig: Rig, code: int, body: bytes = b"", **ext: Any) -> Command:
    """Carry out a request whose answer may have come by the connection."""
    answer = rig.call(code, ext, body)
    if answer is None:
        answer = rig.peer.sent.pop()
    return answer


def create(rig: Rig, name: str = "orders", **fields: Any) -> Command:
    header: dict[str, Any] = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return ask(rig, RequestCode.UPDATE_AND_CREATE_TOPIC, **(header | fields))


def test_a_topic_is_made_changed_and_shown(rig: Rig) -> None:
    assert create(rig, attributes="+message.type=FIFO", order="true").code == 0
    answer = ask(rig, RequestCode.GET_TOPIC_CONFIG, topic="orders", lo="true")
    assert fastjson.decode(answer.body, TopicConfig) == TopicConfig(
        name="orders",
        read_queue_count=4,
        write_queue_count=4,
        is_ordered=True,
        attributes={"message.type": "FIFO"},
    )
    assert create(rig, readQueueNums=8, perm=4).code == 0
    changed = rig.state.topics.existing("orders")
    assert (changed.read_queue_count, changed.write_queue_count, changed.permission) == (8, 4, 4)
    assert changed.attributes == {"message.type": "FIFO"}
    answer = ask(rig, RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.ext == {}  # no paging: everything is here
    table = fastjson.decode(answer.body, TopicConfigTable)
    assert table.topics["orders"] == changed
    assert table.data_version == rig.state.topics.version


REFUSED: dict[str, dict[str, Any]] = {
    "name": {"name": "../../etc"},
    "system topic": {"name": "SCHEDULE_TOPIC_XXXX"},
    "filter": {"topicFilterType": "REGEX"},
    "permission": {"perm": 9},
    "queues": {"writeQueueNums": -2},
    "attribute": {"attributes": "+nothing=1"},
}


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED)
def test_topics_that_cannot_be_are_refused_with_a_reason(rig: Rig, fields: dict[str, Any]) -> None:
    before = rig.state.topics.table()
    answer = create(rig, **fields)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark
    assert rig.state.topics.table() == before


def test_a_change_is_answered_once_it_is_saved(rig: Rig) -> None:
    jobs: list[Callable[[], None]] = []
    saver = rig.state.topics.file.saver
    saver.run = jobs.append
    header = {
        "topic": "slow", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6,
    }  # fmt: skip
    assert rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header) is None
    assert rig.peer.sent == []
    jobs.pop()()
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.SUCCESS]


def test_a_full_disk_is_not_answered_with_success(rig: Rig) -> None:
    def write(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    rig.state.topics.file.saver.write = write
    answer = create(rig)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "No space left" in (answer.remark or "")


def test_messages_wait_for_their_new_topic_to_be_safe(rig: Rig) -> None:
    jobs: list[Callable[[], None]] = []
    rig.state.topics.file.saver.run = jobs.append
    fields = send_fields(topic="new")
    for body in (b"first", b"second"):
        assert rig.call(RequestCode.SEND_MESSAGE_V2, fields, body) is None
    assert rig.call(RequestCode.SEND_MESSAGE_V2, fields, b"third", flag=FrameFlag.ONE_WAY) is None
    assert rig.state.store.written == 0
    assert rig.send("BenchmarkTest").code == ResponseCode.SUCCESS  # others do not wait
    jobs.pop(0)()
    assert [answer.ext["queueOffset"] for answer in rig.peer.sent] == ["0", "1"]
    assert [item.stored_body for item in rig.stored("new")] == [b"first", b"second", b"third"]
    assert rig.send("new").code == ResponseCode.SUCCESS


def test_messages_for_a_topic_that_cannot_be_saved_are_refused_until_it_is(rig: Rig) -> None:
    jobs: list[Callable[[], None]] = []
    saver = rig.state.topics.file.saver
    write, saver.run = saver.write, jobs.append

    def full(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    saver.write = full
    for _ in range(2):
        assert rig.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic="new"), b"x") is None
        jobs.pop(0)()
        answer = rig.peer.sent.pop()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "No space left" in (answer.remark or "")
    saver.write = write
    assert rig.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic="new"), b"x") is None
    jobs.pop(0)()
    assert rig.peer.sent.pop().code == ResponseCode.SUCCESS
    assert jobs == []


class Registration:
    """Name servers that are told when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def when_told(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)


def test_a_change_is_answered_once_name_servers_know(rig: Rig) -> None:
    registration = Registration()
    rig.state.registration = registration  # type: ignore[assignment]
    header = {
        "topic": "new", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6,
    }  # fmt: skip
    assert rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header) is None
    assert rig.peer.sent == []
    registration.waiting.pop()()
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.SUCCESS]


def test_several_topics_are_made_at_once_or_none(rig: Rig) -> None:
    def make(*topics: TopicConfig) -> int:
        body = fastjson.encode(TopicConfigList(topics=list(topics)))
        return ask(rig, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body).code

    assert make(TopicConfig(name="a"), TopicConfig(name="TBW102")) == 29
    assert rig.state.topics.get("a") is None
    assert make(TopicConfig(name="a"), TopicConfig(name="b")) == 0
    assert rig.state.topics.get("b") is not None


def test_a_deleted_topic_leaves_nothing_behind(rig: Rig) -> None:
    create(rig)
    rig.send("orders", 1)
    rig.state.offsets.commit("orders", "readers", 1, 1)
    assert ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders").code == 0
    assert rig.state.topics.get("orders") is None
    assert rig.state.offsets.get("orders", "readers", 1) is None
    assert rig.state.store.max_offset("orders", 1) == 0
    assert "orders" not in rig.state.store.topics()
    assert ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders").code == 0  # again
    assert ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic="TBW102").code == 29
    assert ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic=" ").code == 29
    create(rig)
    assert rig.send("orders", 1).ext["queueOffset"] == "0"


def test_a_deletion_is_answered_when_the_queues_are_gone_and_holds_up_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(rig)
    rig.state.topics.put(TopicConfig(name="%RETRY%readers_orders"))
    rig.state.offsets.commit("orders", "readers", 1, 1)
    waiting: list[tuple[Any, ...]] = []
    monkeypatch.setattr(rig.state.store, "delete_topic", lambda *asked: waiting.append(asked))
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}) is None
    for name in ("orders", "%RETRY%readers_orders"):
        ((topic, done),) = waiting
        assert topic == name
        assert rig.state.topics.get(name) is None
        assert create(rig, "others").code == 0
        assert rig.peer.sent == []
        waiting.clear()
        done(None)
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.SUCCESS]


def test_queues_that_cannot_be_deleted_are_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    create(rig)
    gone = StoreReadOnly("the disk is broken")
    monkeypatch.setattr(rig.state.store, "delete_topic", lambda topic, done: done(gone))
    answer = ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the disk is broken" in (answer.remark or "")


def test_queues_that_could_not_be_deleted_are_when_asked_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(rig)
    rig.send("orders", 1)
    with monkeypatch.context() as failing:
        late = StoreError("not at present")
        failing.setattr(rig.state.store, "delete_topic", lambda topic, done: done(late))
        answer = ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert ask(rig, RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders").code == 0
    create(rig)
    assert rig.send("orders", 1).ext["queueOffset"] == "0"


def test_topic_stats_are_the_bounds_of_its_queues(rig: Rig) -> None:
    create(rig, readQueueNums=2, writeQueueNums=1)
    rig.send("orders", 0)
    rig.send("orders", 0)
    answer = ask(rig, RequestCode.GET_TOPIC_STATS_INFO, topic="orders")
    offsets = fastjson.decode(answer.body, TopicStats).offsets
    assert {
        queue.queue_id: (item.min_offset, item.max_offset, item.last_update_ms)
        for queue, item in offsets.items()
    } == {0: (0, 2, rig.clock.wall_ms()), 1: (0, 0, 0)}
    assert answer.body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,')
    assert ask(rig, RequestCode.GET_TOPIC_STATS_INFO, topic="nowhere").code == 17
    assert ask(rig, RequestCode.GET_TOPIC_CONFIG, topic="nowhere").code == 17


def test_who_reads_a_topic_and_what_a_group_reads(rig: Rig) -> None:
    create(rig)
    rig.subscribe("online", "orders")
    rig.state.offsets.commit("orders", "offline", 0, 3)
    answer = ask(rig, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
    assert fastjson.decode(answer.body, GroupList).groups == ["offline", "online"]
    answer = ask(rig, RequestCode.QUERY_TOPICS_BY_CONSUMER, group="offline")
    assert fastjson.decode(answer.body, TopicList).topics == ["orders"]


def test_who_consumed_is_listed_with_how_much(rig: Rig) -> None:
    """What `mqadmin statsAll` asks: 300, and 315 for each group in the answer."""
    create(rig)
    rig.state.stats.start(rig.timers)
    for _ in range(3):
        assert rig.send("orders").code == ResponseCode.SUCCESS
    for group in ("puller", "TOOLS_CONSUMER"):
        rig.pull("orders", consumerGroup=group)  # commits nothing
    rig.clock.advance(11)
    answer = ask(rig, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
    assert fastjson.decode(answer.body, GroupList).groups == ["puller"]
    key = {"statsName": "GROUP_GET_NUMS", "statsKey": "orders@puller"}
    found = ask(rig, RequestCode.VIEW_BROKER_STATS_DATA, **key)
    assert fastjson.decode(found.body, Samples).minute.sum == 3


def test_system_topics_are_listed(rig: Rig) -> None:
    answer = ask(rig, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    topics = fastjson.decode(answer.body, TopicList).topics
    assert {"TBW102", "DefaultCluster", "broker-a", "rmq_sys_wheel_timer"} <= set(topics)


def test_groups_are_made_shown_and_deleted(rig: Rig) -> None:
    group = SubscriptionGroupConfig(name="readers", retry_times_max=3, consume_enabled=False)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert ask(rig, code, fastjson.encode(group)).code == 0
    answer = ask(rig, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="readers")
    assert fastjson.decode(answer.body, SubscriptionGroupConfig) == group
    answer = ask(rig, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert answer.ext == {}
    table = fastjson.decode(answer.body, SubscriptionGroupTable)
    assert table.groups["readers"] == group
    assert "TOOLS_CONSUMER" in table.groups
    rig.state.offsets.commit("T", "readers", 0, 1)
    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    assert ask(rig, delete, groupName="readers").code == 0
    assert rig.state.offsets.get("T", "readers", 0) == 1
    assert ask(rig, delete, groupName="readers", cleanOffset="true").code == 0
    assert rig.state.offsets.get("T", "readers", 0) is None
    assert ask(rig, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="readers").code == 26


def test_several_groups_are_made_at_once_or_none(rig: Rig) -> None:
    def make(*names: str) -> int:
        groups = [SubscriptionGroupConfig(name=name) for name in names]
        body = fastjson.encode(GroupConfigList(groups=groups))
        return ask(rig, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body).code

    assert make("a", "no good") == 29
    assert "a" not in rig.state.groups
    assert make("a", "b") == 0
    assert "b" in rig.state.groups


@pytest.fixture
def consumed(rig: Rig) -> Rig:
    """Four messages in queue 0, two of them consumed and three pulled."""
    create(rig, readQueueNums=2, writeQueueNums=2)
    for _ in range(4):
        rig.send("orders", 0)
        rig.clock.advance(1)
    rig.state.groups.for_consumer("readers")
    rig.state.offsets.commit("orders", "readers", 0, 2)
    rig.state.offsets.pulled_of("orders", "readers")[0] = 3
    return rig


def stats(rig: Rig, **ext: Any) -> dict[tuple[str, int], OffsetProgress]:
    answer = ask(rig, RequestCode.GET_CONSUME_STATS, consumerGroup="readers", **ext)
    assert answer.code == ResponseCode.SUCCESS
    found = fastjson.decode(answer.body, ConsumeStats).offsets
    return {(queue.topic, queue.queue_id): progress for queue, progress in found.items()}


def test_consume_stats_are_the_groups_progress(consumed: Rig) -> None:
    second_ms = consumed.clock.wall_ms() - 3000
    expected = {
        ("orders", 0): OffsetProgress(
            broker_offset=4, consume_offset=2, last_ms=second_ms, pull_offset=3
        ),
        ("orders", 1): OffsetProgress(),
    }
    assert stats(consumed) == expected
    assert stats(consumed, topic="orders") == expected
    assert stats(consumed, topicList="orders;nowhere") == expected
    assert stats(consumed, topic="nowhere") == {}
    consumed.subscribe("readers", "other")  # online, and no longer interested
    assert stats(consumed) == stats(consumed, topic="orders") == {}
    assert stats(consumed, topicList="orders") == expected


def test_the_progress_of_all_groups_has_its_sum(consumed: Rig) -> None:
    answer = ask(consumed, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    found = fastjson.decode(answer.body, AllConsumeStats)
    assert (found.total_behind, found.total_in_flight) == (2, 1)
    assert found.broker_address == "127.0.0.1:10911"
    listed = {name: items for entry in found.groups for name, items in entry.items()}
    assert len(listed["readers"]) == 1
    assert listed["TOOLS_CONSUMER"] == []
    answer = ask(consumed, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true")
    assert fastjson.decode(answer.body, AllConsumeStats).total_behind == 0


def test_the_time_a_group_is_behind(consumed: Rig) -> None:
    answer = ask(consumed, RequestCode.QUERY_CONSUME_TIME_SPAN, topic="orders", group="readers")
    [first, second] = fastjson.decode(answer.body, TimeSpans).spans
    now_ms = consumed.clock.wall_ms()
    assert (first.first_ms, first.last_ms) == (now_ms - 4000, now_ms - 1000)
    assert (first.consume_ms, first.delay_ms) == (now_ms - 3000, 2000)
    assert (second.first_ms, second.last_ms, second.delay_ms) == (-1, -1, 0)
