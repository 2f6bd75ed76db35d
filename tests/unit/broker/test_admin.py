"""The broker as a whole: condition, settings by allow-list, counts, queue entries, cleaning."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ariane.broker.config_update import ALLOWED, UPDATES_PATH, ConfigUpdates
from ariane.broker.inner_settings import INNER
from ariane.broker.persistence import Saver
from ariane.broker.runtime_info import bytes_text, uptime_text
from ariane.cli.unavailable import UNAVAILABLE
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig, StoreConfig, keys_of, parse_properties
from ariane.protocol import fastjson
from ariane.protocol.bodies import DataVersion, KeyValueTable
from ariane.protocol.bodies.statistics import QueueEntries, Samples
from ariane.protocol.command import Command
from tests.unit.broker.rig import SMALL_STORE, Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.state.stats.start(rig.timers)
    rig.topic("T", 2)
    return rig


def ask(rig: Rig, code: int, body: bytes = b"", **ext: Any) -> Command:
    answer = rig.call(code, ext, body)
    return rig.peer.sent.pop() if answer is None else answer


CLUSTER_LIST = {
    "brokerVersionDesc", "putTps", "getTransferredTps", "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "earliestMessageTimeStamp",
    "commitLogDiskRatio", "brokerActive", "timerReadBehind", "timerOffsetBehind",
    "timerCongestNum", "timerEnqueueTps", "timerDequeueTps", "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning", "msgGetTotalTodayNow",
}  # fmt: skip
BROKER_STATUS = {
    "bootTimestamp", "runtime", "commitLogMinOffset", "commitLogMaxOffset",
    "consumeQueueDiskRatio", "putMessageTimesTotal", "putMessageSizeTotal",
    "putMessageAverageSize", "dispatchBehindBytes", "remainHowManyDataToFlush",
}  # fmt: skip


def info(rig: Rig) -> dict[str, str]:
    answer = ask(rig, RequestCode.GET_BROKER_RUNTIME_INFO)
    return fastjson.decode(answer.body, KeyValueTable).table


def test_the_condition_has_every_key_that_tools_read(rig: Rig) -> None:
    found = info(rig)
    assert found.keys() >= CLUSTER_LIST | BROKER_STATUS
    assert found["earliestMessageTimeStamp"] == "-1"
    for key in ("putTps", "getTransferredTps"):
        assert [float(part) for part in found[key].split(" ")] == [0, 0, 0]


def test_the_condition_tells_the_truth(rig: Rig) -> None:
    first_ms = rig.clock.wall_ms()
    for _ in range(100):
        rig.send("T", 0)
    rig.pull("T", 0)
    rig.clock.advance(10)
    found = info(rig)
    assert found["putTps"].split()[0] == "10.0"
    assert found["getTransferredTps"].split()[0] == "3.2"
    assert found["msgPutTotalTodayNow"] == "100"
    assert found["msgGetTotalTodayNow"] == "32"
    assert found["putMessageTimesTotal"] == "100"
    assert found["commitLogMaxOffset"] == str(rig.state.store.written)
    assert found["putMessageSizeTotal"] == str(rig.state.store.written)
    assert found["commitLogMinOffset"] == "0"
    assert found["earliestMessageTimeStamp"] == str(first_ms)
    assert found["runtime"] == "[ 0 days, 0 hours, 0 minutes, 10 seconds ]"
    assert found["dispatchBehindBytes"] == "0"


def test_times_and_sizes_for_people() -> None:
    assert uptime_text(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert [bytes_text(size) for size in (0, 1023, 1024, 1_572_864)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
    ]


def test_settings_are_shown_as_properties(rig: Rig) -> None:
    answer = ask(rig, RequestCode.GET_BROKER_CONFIG)
    shown = parse_properties(answer.body.decode())
    assert shown.keys() == keys_of(BrokerConfig).keys() | keys_of(StoreConfig).keys()
    assert shown["brokerName"] == "broker-a"
    assert shown["mappedFileSizeCommitLog"] == str(SMALL_STORE.segment_bytes)
    version = fastjson.decode(answer.ext["version"].encode(), DataVersion)
    assert version == rig.state.updates.version


def settings(rig: Rig) -> dict[str, str]:
    return parse_properties(ask(rig, RequestCode.GET_BROKER_CONFIG).body.decode())


def update(rig: Rig, text: str) -> Command:
    return ask(rig, RequestCode.UPDATE_BROKER_CONFIG, text.encode())


def test_settings_change_at_once_and_stay_changed(rig: Rig) -> None:
    told: list[bool] = []
    rig.state.updates.on_change.append(lambda: told.append(True))
    before = rig.state.updates.version.counter
    answer = update(rig, "autoCreateTopicEnable=false\nfileReservedTime=48\n")
    assert answer.code == ResponseCode.SUCCESS
    assert not rig.state.config.auto_create_topics
    assert not rig.state.topics.config.auto_create_topics
    assert rig.state.store_config.retention_hours == rig.state.store.config.retention_hours == 48
    assert rig.state.updates.version.counter == before + 1
    assert told == [True]
    after = ConfigUpdates(rig.clock, Saver(lambda path, data: None))
    after.load(rig.disk)
    assert not after.applied_to(BrokerConfig()).auto_create_topics
    assert after.applied_to(StoreConfig()).retention_hours == 48


def test_taking_away_the_brokers_rights_is_told_to_name_servers(rig: Rig) -> None:
    heard: list[str] = []
    rig.state.topics.on_change.append(heard.append)
    assert update(rig, "longPollingEnable=false").code == 0
    assert heard == []
    assert update(rig, "brokerPermission=4").code == 0
    assert len(heard) == 1


FORBIDDEN = {
    "a path": "storePathRootDir=/tmp/elsewhere",
    "the place of this file": "configStorePath=/etc/passwd",
    "a home to run from": "rocketmqHome=/tmp -c $@|sh . echo touch /tmp/x;",
    "filter servers": "filterServerNums=1",
    "an address": "namesrvAddr=192.0.2.1:9876",
    "a name": "brokerName=other",
    "a key of ours by its own name": "auto_create_topics=true",
    "one good one bad": "longPollingEnable=false\nlistenPort=1",
}


@pytest.mark.parametrize("text", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_is_not_on_the_list_is_forbidden(rig: Rig, text: str) -> None:
    before = (rig.state.config, rig.state.store_config)
    answer = update(rig, text)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "cannot be changed while the broker runs" in (answer.remark or "")
    assert (rig.state.config, rig.state.store_config) == before
    assert not rig.disk.exists(UPDATES_PATH)


BAD_VALUES = {
    "not a number": "fileReservedTime=soon",
    "negative": "fileReservedTime=-1",
    "too much": "waitTimeMillsInSendQueue=99999999",
    "not a flag": "longPollingEnable=perhaps",
    "not an hour": "deleteWhen=noon",
    "odd permission": "brokerPermission=5",
    "empty": "fileReservedTime=",
}


@pytest.mark.parametrize("text", BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_that_cannot_be_are_refused(rig: Rig, text: str) -> None:
    before = (rig.state.config, rig.state.store_config)
    answer = update(rig, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert text.partition("=")[0] in (answer.remark or "")
    assert (rig.state.config, rig.state.store_config) == before


def test_settings_of_what_is_not_here_are_taken_and_shown_as_without_effect(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    before = settings(rig)
    assert "settingsWithoutEffect" not in before
    text = "enablePopBufferMerge=true\nenableNotifyAfterPopOrderLockRelease=false\ntraceOn=false\n"
    assert update(rig, text).code == ResponseCode.SUCCESS
    assert "without effect here" in caplog.text
    after = settings(rig)
    assert after["traceOn"] == "false"
    assert after["enablePopBufferMerge"] == "true"
    names = "enableNotifyAfterPopOrderLockRelease;enablePopBufferMerge"
    assert after["settingsWithoutEffect"] == names
    again = ConfigUpdates(rig.clock, Saver(lambda path, data: None))
    again.load(rig.disk)
    assert again.without_effect() == rig.state.updates.without_effect()


@pytest.mark.parametrize("value", ["x" * 65, "a b", "\u20ac", "/etc/passwd"])
def test_settings_without_effect_are_no_place_to_keep_things(rig: Rig, value: str) -> None:
    assert update(rig, f"enablePopBufferMerge={value}").code == 29
    assert update(rig, f"messageStorePlugIn={value}").code == ResponseCode.NO_PERMISSION


def test_no_setting_is_both_heeded_and_without_effect() -> None:
    assert not INNER & {*keys_of(BrokerConfig), *keys_of(StoreConfig), *UNAVAILABLE}


def test_settings_that_are_not_text_are_refused(rig: Rig) -> None:
    assert ask(rig, RequestCode.UPDATE_BROKER_CONFIG, b"\xff\xfe").code == 29


def test_every_setting_on_the_list_exists_and_takes_its_default() -> None:
    shown = {**keys_of(BrokerConfig), **keys_of(StoreConfig)}
    assert ALLOWED.keys() <= shown.keys()
    for key, allowed in ALLOWED.items():
        assert allowed is None or shown[key].default in allowed


def test_a_file_edited_by_hand_cannot_name_other_settings(rig: Rig) -> None:
    rig.disk.make_directory("config")
    rig.disk.write(UPDATES_PATH, b"storePathRootDir=/elsewhere\ntraceOn=false\n")
    updates = ConfigUpdates(rig.clock, Saver(lambda path, data: None))
    updates.load(rig.disk)
    assert updates.values == {"traceOn": "false"}


def counted(rig: Rig, name: str, key: str) -> Samples | int:
    answer = ask(rig, RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    return fastjson.decode(answer.body, Samples) if answer.code == 0 else answer.code


def test_counts_by_name(rig: Rig) -> None:
    for _ in range(60):
        rig.send("T", 0)
        rig.clock.advance(1)
    rig.pull("T", 0)
    rig.clock.advance(10)
    size = rig.state.store.written // 60
    sent = counted(rig, "TOPIC_PUT_NUMS", "T")
    assert isinstance(sent, Samples)
    assert sent.minute.sum == 50
    assert sent.minute.per_s == pytest.approx(50 / 60)
    sizes = counted(rig, "TOPIC_PUT_SIZE", "T")
    assert isinstance(sizes, Samples)
    assert (sizes.minute.sum, sizes.minute.average) == (50 * size, size)
    given = counted(rig, "GROUP_GET_NUMS", "T@readers")
    assert isinstance(given, Samples)
    assert given.minute.sum == 32
    total = counted(rig, "BROKER_PUT_NUMS", "DefaultCluster")
    assert isinstance(total, Samples)
    assert total.minute == sent.minute
    for name, key in (("TOPIC_PUT_NUMS", "nowhere"), ("GROUP_GET_LATENCY", "0@T@readers")):
        assert counted(rig, name, key) == ResponseCode.SYSTEM_ERROR


def entries(rig: Rig, **ext: Any) -> QueueEntries:
    fields: dict[str, Any] = {"topic": "T", "queueId": 0, "index": 0, "count": 10} | ext
    answer = ask(rig, RequestCode.QUERY_CONSUME_QUEUE, **fields)
    assert answer.code == ResponseCode.SUCCESS
    return fastjson.decode(answer.body, QueueEntries)


def test_queue_entries_are_shown_as_stored(rig: Rig) -> None:
    for _ in range(3):
        rig.send("T", 0, properties="TAGS\x01TagA\x02UNIQ_KEY\x01K\x02")
    found = entries(rig)
    assert (found.min_offset, found.max_offset) == (0, 3)
    size = rig.state.store.written // 3
    assert [msgspec.structs.astuple(entry) for entry in found.entries] == [
        (False, number * size, size, 2598919) for number in range(3)
    ]
    assert len(entries(rig, index=1, count=1).entries) == 1
    assert entries(rig, index=99).entries == []
    assert entries(rig, index=-5, count=2).entries == []
    assert entries(rig, count=-1).entries == []
    offline = entries(rig, consumerGroup="readers")
    assert offline.filter_data == "readers@T is not online!"
    rig.subscribe("readers", "T", "TagA")
    online = entries(rig, consumerGroup="readers")
    assert online.subscription is not None
    assert online.subscription.expression == "TagA"
    assert [entry.is_match for entry in online.entries] == [True] * 3
    rig.subscribe("readers", "T", "TagB", version=1)
    others = entries(rig, consumerGroup="readers")
    assert [entry.is_match for entry in others.entries] == [False] * 3
    assert ask(rig, RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=7, index=0, count=1).code


def test_queue_entries_are_judged_for_a_group_that_filters_by_expression(rig: Rig) -> None:
    for number in range(3):
        rig.send("T", 0, properties=f"a\x01{number}\x02UNIQ_KEY\x01K\x02")
    for version, expression, shown, matches in (
        (1, "a = 1", '"a = 1"', [False, True, False]),
        (2, "a =", "null", [False, False, False]),
    ):
        rig.subscribe("readers", "T", expression, expression_type="SQL92", version=version)
        found = entries(rig, consumerGroup="readers")
        assert shown in (found.filter_data or "")
        assert [entry.is_match for entry in found.entries] == matches


def test_unused_topics_and_old_segments_go_on_request(rig: Rig) -> None:
    rig.topic("gone", 1)
    rig.send("gone", 0)
    rig.send("T", 0)
    rig.state.topics.delete("gone")
    assert ask(rig, RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert rig.state.store.topics().keys() == {"T"}
    for code in (
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.TRIGGER_DELETE_FILES,
    ):
        assert ask(rig, code).code == 0
    assert rig.state.store.max_offset("T", 0) == 1
