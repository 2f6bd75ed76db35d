"""Topics and groups: what may be made of them, by whom, and their files in Apache's shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from ariane.broker.journal import SUFFIX, Journal
from ariane.broker.persistence import Saver
from ariane.broker.tables import GROUPS_PATH, TOPICS_PATH, GroupTable, TableFull, TopicTable
from ariane.clock import ManualClock
from ariane.codes import ResponseCode
from ariane.config import BrokerConfig
from ariane.disk import SimulatedDisk
from ariane.errors import CorruptFile, GroupNotFound, InvalidParameter, TopicNotFound
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigTable,
)
from ariane.store import config_files
from tests.golden.frames import golden_config


class Tables:
    """Both tables on one simulated disk."""

    def __init__(self, config: BrokerConfig | None = None, disk: SimulatedDisk | None = None):
        self.clock = ManualClock()
        self.disk = disk or SimulatedDisk()
        saver = Saver(lambda path, data: config_files.persist(self.disk, path, data))
        self.topics = TopicTable(config or BrokerConfig(), self.clock, saver)
        self.groups = GroupTable(config or BrokerConfig(), self.clock, saver)
        self.topics.load(self.disk)
        self.groups.load(self.disk)

    def again(self) -> Tables:
        """The broker after a restart."""
        return Tables(self.topics.config, self.disk)


def topic(name: str = "orders", queues: int = 4, permission: int = 6) -> TopicConfig:
    return TopicConfig(
        name=name, read_queue_count=queues, write_queue_count=queues, permission=permission
    )


def on_disk(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    for path, data in files.items():
        config_files.persist(disk, path, data)
    return disk


def test_a_first_start_has_rocketmqs_own_topics() -> None:
    table = Tables().topics
    found = {item.name: (item.write_queue_count, item.permission) for item in table}
    assert found == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    }


def test_the_trace_topic_is_made_when_asked_for() -> None:
    assert Tables().topics.get("RMQ_SYS_TRACE_TOPIC") is None
    traces = Tables(BrokerConfig(trace_topic_enabled=True)).topics.existing("RMQ_SYS_TRACE_TOPIC")
    assert (traces.read_queue_count, traces.write_queue_count, traces.permission) == (1, 1, 6)


def test_the_golden_topics_are_served_and_written_back_alike() -> None:
    golden = golden_config("topics.json")
    tables = Tables(disk=on_disk({TOPICS_PATH: golden}))
    retry = tables.topics.existing("%RETRY%g_retry_1kff4f_41")
    assert (retry.read_queue_count, retry.permission) == (1, 6)
    assert tables.topics.version.counter == 70
    tables.topics.put(topic("brand_new"))
    ours = fastjson.loads(tables.disk.read(TOPICS_PATH))
    theirs = fastjson.loads(golden)
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    assert ours.keys() == theirs.keys()
    assert ours["topicConfigTable"].pop("brand_new").keys() == {  # type: ignore[union-attr, arg-type]
        "attributes", "order", "perm", "readQueueNums", "topicFilterType", "topicName",
        "topicSysFlag", "writeQueueNums",
    }  # fmt: skip
    assert ours["topicConfigTable"] == theirs["topicConfigTable"]
    assert ours["dataVersion"]["counter"] == 71  # type: ignore[index, call-overload]


def test_the_golden_groups_are_served_and_written_back_alike() -> None:
    golden = golden_config("subscriptionGroup.json")
    tables = Tables(disk=on_disk({GROUPS_PATH: golden}))
    tables.groups.put(SubscriptionGroupConfig(name="brand_new"))
    ours = fastjson.loads(tables.disk.read(GROUPS_PATH))
    theirs = fastjson.loads(golden)
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    assert ours["subscriptionGroupTable"].pop("brand_new") is not None  # type: ignore[union-attr, arg-type]
    assert ours["subscriptionGroupTable"] == theirs["subscriptionGroupTable"]
    assert ours["forbiddenTable"] == theirs["forbiddenTable"]


def test_what_was_changed_is_there_after_a_restart() -> None:
    tables = Tables()
    tables.topics.update(topic("orders", 4), "+message.type=FIFO,+reserve.time=86400000")
    tables.topics.update(topic("orders", 8, permission=4), "-reserve.time")
    tables.topics.put(topic("gone"))
    tables.topics.delete("gone")
    tables.groups.put(SubscriptionGroupConfig(name="readers", consume_enabled=False))
    after = tables.again()
    kept = after.topics.existing("orders")
    assert (kept.read_queue_count, kept.permission) == (8, 4)
    assert kept.attributes == {"message.type": "FIFO"}
    assert after.topics.get("gone") is None
    assert after.topics.version == tables.topics.version
    group = after.groups.get("readers")
    assert group is not None
    assert not group.consume_enabled


def test_a_damaged_file_gives_way_to_its_backup_and_without_one_stops_the_start() -> None:
    tables = Tables()
    tables.topics.put(topic("first"))
    tables.topics.put(topic("second"))
    tables.disk.write(TOPICS_PATH, b'{"topicConfigTable":{"fi')
    after = tables.again().topics
    assert after.get("first") is not None
    assert after.get("second") is None  # what the crash cost
    with pytest.raises(CorruptFile, match=r"topics\.json"):
        Tables(disk=on_disk({TOPICS_PATH: b"{"}))


def test_names_that_would_leave_the_store_are_not_loaded() -> None:
    data = b'{"topicConfigTable":{"../../x":{"topicName":"../../x"},"ok":{"topicName":"ok"}}}'
    table = Tables(disk=on_disk({TOPICS_PATH: data})).topics
    assert table.get("../../x") is None
    assert table.get("ok") is not None


REFUSED = {
    "path in the name": (topic("../up"), "", "letters, digits"),
    "empty name": (topic(""), "", "empty"),
    "long name": (topic("t" * 128), "", "127"),
    "negative queues": (topic(queues=-1), "", "readQueueNums=-1"),
    "a million queues": (topic(queues=1_000_000), "", "65536"),
    "no permission": (topic(permission=0), "", "perm=0"),
    "priority": (topic(permission=14), "", "perm=14"),
    "system topic": (topic("TBW102"), "", "broker's own"),
    "the cluster's topic": (topic("DefaultCluster"), "", "broker's own"),
    "system prefix": (topic("rmq_sys_mine"), "", "broker's own"),
    "unknown attribute": (topic(), "+colour=red", "colour"),
    "compaction": (topic(), "+cleanup.policy=COMPACTION", "not supported"),
    "batch queues": (topic(), "+queue.type=BatchCQ", "not supported"),
    "negative time": (topic(), "+reserve.time=-5", "reserve.time"),
    "no sign": (topic(), "message.type=FIFO", "+key=value"),
    "no value": (topic(), "+message.type", "+key=value"),
}


@pytest.mark.parametrize(("config", "changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_topics_that_cannot_be_served_are_refused(
    config: TopicConfig, changes: str, reason: str
) -> None:
    table = Tables().topics
    before = table.table()
    with pytest.raises(InvalidParameter, match=reason.replace("+", r"\+")) as refusal:
        table.update(config, changes)
    assert refusal.value.code is ResponseCode.INVALID_PARAMETER
    assert table.table() == before


def test_a_list_of_topics_is_taken_whole_or_not_at_all() -> None:
    table = Tables().topics
    with pytest.raises(InvalidParameter):
        table.update_all([topic("good"), topic("bad name")])
    assert table.get("good") is None
    signed = TopicConfig(name="signed", attributes={"+message.type": "DELAY"})
    plain = TopicConfig(name="plain", attributes={"message.type": "NORMAL"})
    table.update_all([signed, plain])
    assert table.existing("signed").attributes == {"message.type": "DELAY"}
    assert table.existing("plain").attributes == {"message.type": "NORMAL"}


SENDS: dict[str, tuple[Callable[[Tables], object], str, int, tuple[int, int] | None]] = {
    "as asked": (lambda _: None, "TBW102", 4, (4, 6)),
    "at most the template's": (lambda _: None, "TBW102", 100, (8, 6)),
    "at least one queue": (lambda _: None, "TBW102", 0, (1, 6)),
    "other template": (lambda t: t.topics.put(topic("mine", 2, 5)), "mine", 4, (2, 4)),
    "template without inheritance": (lambda t: t.topics.put(topic("plain")), "plain", 4, None),
    "no such template": (lambda _: None, "nothing", 4, None),
}


@pytest.mark.parametrize(
    ("prepare", "template", "count", "expected"), SENDS.values(), ids=SENDS.keys()
)
def test_sending_makes_a_topic_after_its_template(
    prepare: Callable[[Tables], object],
    template: str,
    count: int,
    expected: tuple[int, int] | None,
) -> None:
    tables = Tables()
    prepare(tables)
    if expected is None:
        with pytest.raises(TopicNotFound):
            tables.topics.for_send("new", template=template, queue_count=count)
        return
    made = tables.topics.for_send("new", template=template, queue_count=count)
    assert (made.write_queue_count, made.permission) == expected
    assert tables.again().topics.get("new") == made


def test_without_auto_creation_the_template_is_gone_even_from_an_old_file() -> None:
    tables = Tables()
    tables.topics.put(topic())
    strict = Tables(BrokerConfig(auto_create_topics=False), tables.disk)
    assert strict.topics.get("TBW102") is None
    with pytest.raises(TopicNotFound):
        strict.topics.for_send("new", template="TBW102", queue_count=4)
    retry = strict.topics.for_send("%RETRY%readers", template="TBW102", queue_count=4)
    assert (retry.write_queue_count, retry.permission) == (1, 6)


def test_auto_creation_can_be_turned_off_and_on_again() -> None:
    table = Tables().topics
    table.configure(BrokerConfig(auto_create_topics=False))
    assert table.existing("TBW102").permission == 4  # routed, but nobody will send there
    with pytest.raises(TopicNotFound):
        table.for_send("new", template="TBW102", queue_count=4)
    table.configure(BrokerConfig())
    assert table.existing("TBW102").permission == 7
    assert table.for_send("new", template="TBW102", queue_count=4).permission == 6


def test_listeners_hear_each_change_once_and_no_change_not_at_all() -> None:
    table = Tables().topics
    heard: list[str] = []
    table.on_change.append(heard.append)
    table.put(topic("a"))
    table.put(topic("a"))
    table.put(topic("a", 8))
    table.delete("a")
    table.delete("a")
    assert heard == ["a", "a", "a"]
    assert table.version.counter == 3


def test_groups_are_made_for_consumers_unless_that_is_off_or_the_name_is_bad() -> None:
    groups = Tables().groups
    assert groups.for_consumer("readers").retry_times_max == 16
    assert "readers" in groups
    for bad in ("", "with space", "g" * 121, "../x"):
        with pytest.raises(GroupNotFound):
            groups.for_consumer(bad)
    strict = Tables(BrokerConfig(auto_create_groups=False)).groups
    assert strict.for_consumer("TOOLS_CONSUMER").name == "TOOLS_CONSUMER"
    assert strict.for_consumer("CID_RMQ_SYS_mine").name == "CID_RMQ_SYS_mine"
    with pytest.raises(GroupNotFound) as refusal:
        strict.for_consumer("readers")
    assert refusal.value.code is ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_groups_retry_topic_has_as_many_queues_as_the_group_says() -> None:
    tables = Tables()
    tables.topics.ensure_retry(SubscriptionGroupConfig(name="g", retry_queue_count=3))
    assert tables.topics.existing("%RETRY%g").write_queue_count == 3
    tables.topics.ensure_retry(SubscriptionGroupConfig(name="none", retry_queue_count=0))
    assert tables.topics.get("%RETRY%none") is None


def test_clients_cannot_have_topics_and_groups_made_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = Tables()
    monkeypatch.setattr("ariane.broker.tables.MADE_UNASKED_MAX", len(list(tables.topics)) + 1)
    tables.topics.for_send("one", template="TBW102", queue_count=1)
    with pytest.raises(TableFull, match="topic two is not made"):
        tables.topics.for_send("two", template="TBW102", queue_count=1)
    tables.topics.update(topic("two"), "")  # an administrator may
    monkeypatch.setattr("ariane.broker.tables.MADE_UNASKED_MAX", len(list(tables.groups)) + 1)
    tables.groups.for_consumer("one")
    with pytest.raises(TableFull, match="group two is not made"):
        tables.groups.for_consumer("two")
    tables.groups.update([SubscriptionGroupConfig(name="two")])
    assert tables.groups.for_consumer("two").name == "two"


def test_changes_of_topics_are_forgotten_once_they_are_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ariane.broker.tables.CHANGES_KEPT", 10)
    tables = Tables()
    for number in range(1_000):
        tables.topics.put(topic(f"t{number}"))
        assert tables.topics.is_saved(f"t{number}")  # by a saver that writes at once
        tables.topics.delete(f"t{number}")
    assert len(tables.topics._changed_at) <= 30


@pytest.fixture(autouse=True)
def no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.broker.persistence.SMALL_BYTES", -1)


class Journaled(Tables):
    """Tables whose changes are kept by line, as a broker does it."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.clock = ManualClock()
        self.disk = disk or SimulatedDisk()
        self.whole: list[str] = []
        saver = Saver(self._persist, journal_of=partial(Journal, self.disk))
        self.topics = TopicTable(BrokerConfig(), self.clock, saver)
        self.groups = GroupTable(BrokerConfig(), self.clock, saver)
        self.topics.load(self.disk)
        self.groups.load(self.disk)

    def again(self) -> Journaled:
        return Journaled(self.disk)

    def _persist(self, path: str, data: bytes) -> None:
        self.whole.append(path)
        config_files.persist(self.disk, path, data)


def test_a_change_is_kept_without_writing_the_table_whole() -> None:
    tables = Journaled()
    for number in range(100):
        tables.topics.put(topic(f"T{number}"))
        tables.groups.put(SubscriptionGroupConfig(name=f"G{number}"))
    tables.topics.delete("T7")
    tables.groups.delete("G7")
    assert tables.whole == []
    assert all(tables.topics.is_saved(f"T{number}") for number in range(100))
    again = tables.again()
    assert (again.topics.get("T7"), again.topics.get("T99")) == (None, topic("T99"))
    assert "G7" not in again.groups
    assert "G99" in again.groups
    assert (again.topics.version, again.groups.version) == (
        tables.topics.version,
        tables.groups.version,
    )


def test_the_table_written_whole_replaces_the_journal() -> None:
    tables = Journaled()
    tables.topics.put(topic("T"))
    tables.topics.file.save()
    assert tables.whole == [TOPICS_PATH]
    assert not tables.disk.exists(TOPICS_PATH + SUFFIX)
    tables.topics.file.save()
    assert tables.whole == [TOPICS_PATH]
    assert tables.again().topics.get("T") == topic("T")


def test_a_journal_that_was_found_is_not_continued() -> None:
    tables = Journaled()
    tables.topics.put(topic("T"))
    again = tables.again()
    again.topics.put(topic("U"))
    assert again.whole == [TOPICS_PATH]
    last = again.again().topics
    assert (last.get("T"), last.get("U")) == (topic("T"), topic("U"))


def test_a_line_that_is_not_whole_ends_the_journal() -> None:
    tables = Journaled()
    tables.topics.put(topic("T"))
    before = tables.disk.read(TOPICS_PATH + SUFFIX).rstrip(b"\0")
    tables.topics.put(topic("U"))
    data = bytearray(tables.disk.read(TOPICS_PATH + SUFFIX))
    data[len(before) + 20] ^= 1
    tables.disk.write(TOPICS_PATH + SUFFIX, bytes(data))
    again = tables.again().topics
    assert (again.get("T"), again.get("U")) == (topic("T"), None)


def test_what_others_wrote_later_is_not_undone_by_the_journal() -> None:
    tables = Journaled()
    tables.topics.put(topic("T"))
    tables.topics.file.save()
    tables.topics.delete("T")
    whole = fastjson.decode(tables.disk.read(TOPICS_PATH), TopicConfigTable)
    later = DataVersion(counter=1, timestamp=tables.clock.wall_ms() + 1)
    written = fastjson.encode(msgspec.structs.replace(whole, data_version=later))
    config_files.persist(tables.disk, TOPICS_PATH, written)
    assert tables.again().topics.get("T") == topic("T")


def test_a_line_that_cannot_be_written_is_followed_by_the_whole_table() -> None:
    tables = Journaled()
    tables.topics.put(topic("T"))
    tables.disk.plant("sync", OSError(5, "no"))
    tables.topics.put(topic("U"))
    assert not tables.topics.is_saved("U")
    tables.topics.put(topic("V"))
    assert tables.whole == [TOPICS_PATH]
    assert tables.topics.is_saved("U")
    assert tables.again().topics.get("U") == topic("U")


def test_a_small_table_is_written_whole_for_brokers_that_know_no_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ariane.broker.persistence.SMALL_BYTES", 64 << 10)
    tables = Journaled()
    tables.topics.update(topic("one"), "")
    assert b'"one"' in tables.disk.read(TOPICS_PATH)
