"""Messages delayed by level: where they wait, when they come, and what a restart makes of them."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from ariane.broker.schedule import RETRY_S
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.config import StoreConfig
from ariane.disk import CrashMode, SimulatedDisk
from ariane.errors import DiskFull
from ariane.protocol import fastjson
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.check import check
from ariane.store.messages import NewMessage
from ariane.topics import HALF_TOPIC, SCHEDULE_TOPIC
from tests.unit.broker.rig import SMALL_STORE, Rig

DELAYS_S = (1, 5, 10, 30, 60, 120)  # of the first levels
OURS = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


def started(
    disk: SimulatedDisk | None = None,
    clock: ManualClock | None = None,
    store_config: StoreConfig = SMALL_STORE,
) -> Rig:
    """A broker that delivers, with topic T."""
    rig = Rig(store_config=store_config, disk=disk, clock=clock)
    rig.topic("T")
    rig.state.schedule.load(rig.disk)
    rig.state.schedule.start(rig.timers)
    return rig


def stopped(rig: Rig) -> None:
    """Stop the broker as `Broker` does."""
    rig.state.schedule.stop()
    rig.clock.timers.remove(rig.timers)
    rig.state.schedule.save_now()
    rig.state.store.stop()


def restarted(rig: Rig, **config: Any) -> Rig:
    """The broker after a clean stop."""
    stopped(rig)
    store_config = msgspec.structs.replace(rig.state.store_config, **config)
    return started(rig.disk, rig.clock, store_config)


def killed(rig: Rig, mode: CrashMode = CrashMode.KILL, seed: int = 1) -> Rig:
    """The broker after a crash."""
    rig.clock.timers.remove(rig.timers)
    image = rig.disk.crash_image(Random(seed), mode)
    return started(image, rig.clock, rig.state.store_config)


def send(rig: Rig, name: str, level: int, topic: str = "T", queue_id: int = 0) -> None:
    answer = rig.send(topic, queue_id, name.encode(), f"UNIQ_KEY\x01{name}\x02DELAY\x01{level}\x02")
    assert answer.code == ResponseCode.SUCCESS


def names(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[str]:
    return [message.stored_body.decode() for message in rig.stored(topic, queue_id)]


@pytest.fixture
def rig() -> Rig:
    return started()


# Waiting.


def test_a_delayed_message_waits_in_the_queue_of_its_level(rig: Rig) -> None:
    rig.send(queue_id=2)  # so that offsets differ from zero
    answer = rig.send("T", 2, b"later", "UNIQ_KEY\x01U\x02DELAY\x014\x02TAGS\x01t\x02")
    (waiting,) = rig.stored(SCHEDULE_TOPIC, 3)
    assert (waiting.topic, waiting.queue_id, waiting.stored_body) == (SCHEDULE_TOPIC, 3, b"later")
    assert dict(waiting.properties) == {
        "UNIQ_KEY": "U",
        "DELAY": "4",
        "TAGS": "t",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
    }
    assert answer.ext["queueId"] == "2"  # the queue asked for
    assert answer.ext["queueOffset"] == "0"  # but the offset in the schedule topic
    assert answer.ext["msgId"] == waiting.offset_message_id
    assert rig.state.store.queue(SCHEDULE_TOPIC, 3).entry(0) == (
        waiting.log_offset,
        waiting.size,
        rig.clock.wall_ms() + 30_000,
    )


LEVELS = {
    "the first": ("1", 0),
    "the last": ("18", 17),
    "above the last": ("19", 17),
    "far above": ("999999999999", 17),
    "with a sign": ("+3", 2),
    "zeros in front": ("007", 6),
}


@pytest.mark.parametrize(("text", "queue_id"), LEVELS.values(), ids=LEVELS)
def test_levels_as_clients_write_them(rig: Rig, text: str, queue_id: int) -> None:
    rig.send(properties=f"UNIQ_KEY\x01U\x02DELAY\x01{text}\x02")
    (waiting,) = rig.stored(SCHEDULE_TOPIC, queue_id)
    assert waiting.properties["DELAY"] == str(queue_id + 1)
    assert names(rig) == []


@pytest.mark.parametrize("text", ["0", "-1", "-0"])
def test_no_level_is_no_delay(rig: Rig, text: str) -> None:
    rig.send(properties=f"UNIQ_KEY\x01U\x02DELAY\x01{text}\x02")
    assert names(rig) == ["hello"]


@pytest.mark.parametrize("text", ["x", "1 ", "1.5", "٣", "1_0", "+", "--1"])
def test_what_is_no_level(rig: Rig, text: str) -> None:
    answer = rig.send(properties=f"UNIQ_KEY\x01U\x02DELAY\x01{text}\x02")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "DELAY" in str(answer.remark)


def test_a_level_wins_over_a_time(rig: Rig) -> None:
    rig.send(properties="TIMER_DELAY_MS\x015\x02UNIQ_KEY\x01U\x02DELAY\x011\x02TIMER_X\x01y\x02")
    (waiting,) = rig.stored(SCHEDULE_TOPIC, 0)
    assert "TIMER_DELAY_MS" not in waiting.properties
    assert waiting.properties["TIMER_X"] == "y"


def test_a_key_that_only_ends_like_a_delay_is_the_user_s_own(rig: Rig) -> None:
    rig.send(properties="MYDELAY\x013\x02UNIQ_KEY\x01U\x02")
    assert names(rig) == ["hello"]


# Coming.


@pytest.mark.parametrize("level", range(1, 7))
def test_it_comes_when_its_delay_is_over_and_not_before(rig: Rig, level: int) -> None:
    send(rig, "a", level)
    rig.clock.advance(DELAYS_S[level - 1] - 0.001)
    assert names(rig) == []
    rig.clock.advance(0.001)
    assert names(rig) == ["a"]
    rig.clock.advance(600)
    assert names(rig) == ["a"]


def shown(message: StoredMessage) -> dict[str, Any]:
    """What a copy has in common with the message it is a copy of."""
    own = {"topic", "queue_id", "queue_offset", "log_offset", "size", "stored_at_ms"}
    fields = msgspec.structs.asdict(message)
    return {name: value for name, value in fields.items() if name not in own}


def test_it_comes_as_it_was_sent_by_either_way(rig: Rig) -> None:
    properties = "KEYS\x01k l\x02UNIQ_KEY\x01U\x02DELAY\x012\x02TAGS\x01red\x02"
    for _ in range(3):  # the first is delivered by Python, the others by the kernel
        rig.send("T", 3, b"\x00body", properties, system_flag=1, reconsume_times=2)
    waiting = rig.stored(SCHEDULE_TOPIC, 1)
    rig.clock.advance(5)
    delivered = rig.stored("T", 3)
    assert [shown(message) for message in delivered] == [shown(message) for message in waiting]
    assert [(message.topic, message.queue_id) for message in delivered] == [("T", 3)] * 3
    assert {message.stored_at_ms for message in delivered} == {rig.clock.wall_ms()}
    red = {rig.state.store.queue("T", 3).entry(i)[2] for i in range(3)}  # type: ignore[index]
    assert red == {112785}  # what a consumer filters by is there again
    assert (
        rig.state.store.query("T", "l", count_max=9, begin_ms=0, end_ms=1 << 60).message_count == 3
    )


def test_all_of_a_level_come_in_order_and_levels_do_not_wait_for_each_other(rig: Rig) -> None:
    send(rig, "slow", 3)
    for i in range(5):
        send(rig, f"quick{i}", 1)
        rig.clock.advance(0.1)
    rig.clock.advance(1)
    assert names(rig) == [f"quick{i}" for i in range(5)]
    rig.clock.advance(10)
    assert names(rig)[-1] == "slow"


def test_who_waits_is_woken_and_counts_grow(rig: Rig) -> None:
    send(rig, "a", 1)
    send(rig, "b", 1)
    held = rig.pull(sysFlag=6)
    assert held is None
    rig.clock.advance(1)
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.SUCCESS]
    assert rig.state.stats.put_to("T").messages == 2
    assert rig.state.stats.put_to(SCHEDULE_TOPIC).messages == 2


def test_a_thousand_due_at_once_leave_room_for_others(rig: Rig) -> None:
    for i in range(1000):
        send(rig, f"{i}", 1)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        if rig.state.store.max_offset("T", 0) < 1000:
            rig.timers.after(0.0, count)

    rig.timers.after(1.0, count)
    rig.clock.advance(1)
    assert names(rig)[:3] == ["0", "1", "2"]
    assert rig.state.store.max_offset("T", 0) == 1000
    assert turns > 2


def test_queues_that_were_deleted_are_made_again(rig: Rig) -> None:
    send(rig, "a", 1)
    send(rig, "b", 1)
    rig.clock.advance(1)
    send(rig, "c", 1)
    rig.state.store.delete_topic("T")
    rig.clock.advance(1)
    assert names(rig) == ["c"]
    send(rig, "d", 1)
    rig.clock.advance(1)
    assert names(rig) == ["c", "d"]


def place_waiting(rig: Rig, properties: str, level: int = 1, body: bytes = b"odd") -> None:
    """A message in the schedule topic as no send of ours would leave it."""
    rig.state.store.append(
        NewMessage(
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            body=body,
            properties=properties.encode(),
            born_host=("127.0.0.1", 1),
            born_at_ms=1,
        )
    )


ODD = {
    "for half messages": f"DELAY\x011\x02REAL_TOPIC\x01{HALF_TOPIC}\x02REAL_QID\x010\x02",
    "for itself": f"DELAY\x011\x02REAL_TOPIC\x01{SCHEDULE_TOPIC}\x02REAL_QID\x010\x02",
    "for a path": "DELAY\x011\x02REAL_TOPIC\x01../../x\x02REAL_QID\x010\x02",
    "for nobody": "DELAY\x011\x02",
    "without a queue": "DELAY\x011\x02REAL_TOPIC\x01T\x02",
    "for no queue": "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02",
}


@pytest.mark.parametrize("properties", ODD.values(), ids=ODD)
def test_what_cannot_be_delivered_is_passed_over(
    rig: Rig, properties: str, caplog: pytest.LogCaptureFixture
) -> None:
    place_waiting(rig, properties)
    send(rig, "good", 1)
    rig.clock.advance(1)
    assert names(rig) == ["good"]
    assert "cannot be delivered level=1 queue_offset=0" in caplog.text
    assert rig.disk.directories("consumequeue") == [SCHEDULE_TOPIC, "T"]


def test_while_the_disk_is_full_everything_waits_and_nothing_is_lost(rig: Rig) -> None:
    for name in "ab":
        send(rig, name, 1)
    rig.state.store.disk_full_reason = "full"
    rig.clock.advance(0.95)
    rig.state.store.disk_full_reason = "full"
    rig.clock.advance(0.5)
    assert names(rig) == []
    rig.state.store.disk_full_reason = None
    rig.clock.advance(RETRY_S)
    assert names(rig) == ["a", "b"]


def test_a_store_that_says_no_once_is_asked_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(rig, "a", 1)
    append = rig.state.store.append
    answers = iter([DiskFull("no segment"), None])

    def fails_once(message: NewMessage) -> object:
        if (error := next(answers)) is not None:
            raise error
        return append(message)

    monkeypatch.setattr(type(rig.state.store), "append", lambda _, message: fails_once(message))
    rig.clock.advance(1)
    assert names(rig) == []
    rig.clock.advance(RETRY_S)
    assert names(rig) == ["a"]


# Restarts.


def test_what_waits_survives_a_stop(rig: Rig) -> None:
    send(rig, "a", 2)
    send(rig, "b", 3)
    rig.clock.advance(6)
    rig = restarted(rig)
    rig.clock.advance(1)
    assert names(rig) == ["a"]
    rig.clock.advance(3)
    assert names(rig) == ["a", "b"]


def test_what_fell_due_while_it_was_down_comes_at_once(rig: Rig) -> None:
    send(rig, "a", 2)
    stopped(rig)
    rig.clock.advance(100)
    rig = started(rig.disk, rig.clock)
    rig.clock.advance(0)
    assert names(rig) == ["a"]


def test_a_kill_is_followed_by_no_second_delivery(rig: Rig) -> None:
    for i in range(20):
        send(rig, f"{i}", 1)
        rig.clock.advance(0.1)
        if i % 7 == 0:
            rig = killed(rig)
    rig = killed(rig)
    rig.clock.advance(2)
    assert [int(name) for name in names(rig)] == list(range(20))


@pytest.mark.parametrize("mode", [CrashMode.DROP, CrashMode.MIXED])
@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_may_repeat_but_never_lose_what_was_safe(mode: CrashMode, seed: int) -> None:
    rig = started()
    for i in range(10):
        send(rig, f"{i}", 2)
        rig.clock.advance(0.2)
    rig.state.store.flush()
    rig.clock.advance(4)  # half of them are delivered, and the copies are not on the platter
    rig.state.schedule.save()
    assert names(rig)
    rig = killed(rig, mode, seed)
    rig.clock.advance(10)
    assert {int(name) for name in names(rig)} == set(range(10))


def progress_written_back(rig: Rig) -> None:
    """Let the kernel write the page of progress to the platter, as it may at any time."""
    mapped = rig.state.schedule.progress._mapped
    assert mapped is not None
    mapped.sync(0, mapped.size)


def test_progress_that_is_ahead_of_the_log_is_not_believed(rig: Rig) -> None:
    send(rig, "a", 1)
    rig.state.store.flush()
    rig.clock.advance(1)
    assert names(rig) == ["a"]
    progress_written_back(rig)
    rig = killed(rig, CrashMode.DROP)
    rig.clock.advance(0)
    assert names(rig) == ["a"]


def test_progress_not_believed_once_is_never_believed_again(rig: Rig) -> None:
    send(rig, "a", 1)
    rig.state.store.flush()
    rig.clock.advance(1)
    progress_written_back(rig)
    rig = killed(rig, CrashMode.DROP)
    for _ in range(3):  # the log is soon as long as it was, with other messages in it
        rig.send("T", 1)
    rig.state.store.flush()
    rig = killed(rig, CrashMode.DROP)  # before anything was delivered
    rig.clock.advance(0)
    assert names(rig) == ["a"]


def saved_offsets(rig: Rig) -> dict[str, Any]:
    saved = fastjson.loads(rig.disk.read("config/delayOffset.json"))
    assert isinstance(saved, dict)
    return {str(level): at for level, at in saved["offsetTable"].items()}  # type: ignore[union-attr]


def test_the_file_is_apache_s_and_says_only_what_is_on_the_platter(rig: Rig) -> None:
    for name in "ab":
        send(rig, name, 1)
    send(rig, "c", 3)
    rig.state.store.flush()
    rig.clock.advance(2)
    rig.state.schedule.save()
    assert names(rig) == ["a", "b"]
    assert saved_offsets(rig) == {"1": 0, "3": 0}
    rig.state.store.flush()
    rig.clock.advance(2)
    rig.state.schedule.save()
    assert rig.disk.read("config/delayOffset.json").decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":'
        f"{rig.state.schedule.progress.version.timestamp}"
        '\n\t},\n\t"offsetTable":{\n\t\t1:2,\n\t\t3:0\n\t}\n}'
    )


def test_apache_s_progress_is_taken_over(rig: Rig) -> None:
    for name in "abc":
        send(rig, name, 1)
    stopped(rig)
    rig.disk.write("config/delayOffset.json", b'{"dataVersion":{},"offsetTable":{1:2,9:77}}')
    rig.disk.remove("config/delayProgress")
    rig = started(rig.disk, rig.clock)
    rig.clock.advance(5)
    assert names(rig) == ["c"]
    send(rig, "nine", 9)  # its number was beyond the queue's end
    rig.clock.advance(300)
    assert names(rig) == ["c", "nine"]


def test_apache_may_have_gone_on_where_we_stopped(rig: Rig) -> None:
    for name in "abc":
        send(rig, name, 1)
    stopped(rig)
    rig.disk.write("config/delayOffset.json", b'{"dataVersion":{},"offsetTable":{1:2}}')
    rig = started(rig.disk, rig.clock)
    rig.clock.advance(5)
    assert names(rig) == ["c"]


def test_a_stop_leaves_exact_progress_for_apache(rig: Rig) -> None:
    for name in "ab":
        send(rig, name, 1)
    rig.clock.advance(1)
    stopped(rig)
    assert saved_offsets(rig) == {"1": 2}


def test_a_progress_file_of_another_size_is_not_read(rig: Rig) -> None:
    send(rig, "a", 1)
    stopped(rig)
    rig.disk.write("config/delayProgress", b"x" * 100)
    rig = started(rig.disk, rig.clock)
    rig.clock.advance(1)
    assert names(rig) == ["a"]


def test_what_retention_took_is_passed_over(rig: Rig) -> None:
    send(rig, "old", 3)
    for _ in range(3):
        rig.send(body=bytes(500_000))
    send(rig, "new", 3)
    rig.state.store.checkpoint()
    rig.state.store.reconfigure(msgspec.structs.replace(rig.state.store_config, retention_hours=0))
    assert rig.state.store.clean(is_asked=True) > 0
    rig.clock.advance(10)
    found = rig.state.store.read("T", 0, 3, count_max=9)  # behind the three large ones
    assert [message.stored_body for message in decode_records(found.body)] == [b"new"]


# The level table.


def test_levels_may_be_others_after_a_restart(rig: Rig) -> None:
    send(rig, "two hours", 18)
    send(rig, "ten seconds", 3)
    rig = restarted(rig, delay_levels="1s 2s")
    send(rig, "two seconds", 18)  # counts as the highest there is
    rig.clock.advance(2)
    assert names(rig) == ["two seconds"]
    rig.clock.advance(8)
    assert names(rig) == ["two seconds", "ten seconds"]
    rig.clock.advance(7190)
    assert names(rig) == ["two seconds", "ten seconds", "two hours"]


def test_a_level_made_shorter_does_not_wait_for_what_came_before(rig: Rig) -> None:
    for name in ("old 1", "old 2"):
        send(rig, name, 2)
    rig = restarted(rig, delay_levels="1s 1s")
    send(rig, "new 1", 2)
    rig = killed(rig)  # only a start looks for such places
    send(rig, "new 2", 2)
    rig.clock.advance(1)
    assert names(rig) == ["new 1", "new 2"]
    rig = killed(rig)
    rig.clock.advance(3.9)
    assert names(rig) == ["new 1", "new 2"]
    rig.clock.advance(0.1)
    assert names(rig) == ["new 1", "new 2", "old 1", "old 2"]
    rig = restarted(rig)
    rig.clock.advance(10)
    assert len(names(rig)) == 4
    assert rig.state.schedule.progress.offsets() == {2: 4}


def test_a_store_is_sound_though_its_levels_were_others(rig: Rig) -> None:
    send(rig, "a", 3)
    rig = restarted(rig, delay_levels="1s 1s 30s")
    send(rig, "b", 3)
    stopped(rig)
    assert check(rig.disk, rig.state.store_config).problems == []
    rig.disk.write("consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000", bytes(20 * 1000))
    assert check(rig.disk, rig.state.store_config).problems != []


# The clock.


def test_a_clock_set_back_makes_nothing_early_or_late(rig: Rig) -> None:
    send(rig, "before", 3)
    rig.clock.advance(4)
    rig.clock.step_wall(-3_600_000)
    rig.clock.advance(3)
    send(rig, "after", 3)
    rig.clock.advance(2.99)
    assert names(rig) == []
    rig.clock.advance(0.02)
    assert names(rig) == ["before"]
    rig.clock.advance(6.8)
    assert names(rig) == ["before"]
    rig.clock.advance(0.6)  # how coarsely arrivals are remembered
    assert names(rig) == ["before", "after"]


def test_once_a_clock_set_back_has_caught_up_all_is_as_ever(rig: Rig) -> None:
    rig = restarted(rig, delay_levels="1s 5s")
    rig.send()
    rig.clock.advance(1)
    rig.clock.step_wall(-60_000)
    rig.clock.advance(67)
    send(rig, "a", 1)
    rig.clock.advance(0.999)
    assert names(rig) == ["hello"]
    rig.clock.advance(0.002)
    assert names(rig) == ["hello", "a"]


def test_a_clock_set_back_while_the_broker_was_down(rig: Rig) -> None:
    send(rig, "before", 3)
    rig.clock.advance(4)
    rig.send()  # the log has seen this time
    stopped(rig)
    rig.clock.step_wall(-3_600_000)
    rig = started(rig.disk, rig.clock)
    send(rig, "after", 3)
    rig.clock.advance(5.99)
    assert names(rig) == ["hello"]
    rig.clock.advance(0.02)
    assert names(rig) == ["hello", "before"]
    rig.clock.advance(3.9)
    assert names(rig) == ["hello", "before"]
    rig.clock.advance(0.6)
    assert names(rig) == ["hello", "before", "after"]


def test_a_clock_set_ahead_brings_what_is_due_by_it(rig: Rig) -> None:
    send(rig, "a", 3)
    rig.clock.step_wall(9_500)
    rig.clock.advance(0.4)
    assert names(rig) == []
    rig.clock.advance(0.1)
    assert names(rig) == ["a"]


# What is told of it.


def test_progress_as_slaves_and_tools_ask_for_it(rig: Rig) -> None:
    for name in "ab":
        send(rig, name, 1)
    rig.clock.advance(1)
    send(rig, "c", 1)
    answer = rig.call(RequestCode.GET_ALL_DELAY_OFFSET)
    assert answer is not None
    told = fastjson.loads(answer.body)
    assert isinstance(told, dict)
    assert told["offsetTable"] == {"1": 2}
    info = rig.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert info is not None
    table = fastjson.loads(info.body)["table"]  # type: ignore[index,call-overload]
    assert table["scheduleMessageOffset_1"] == "2,3"  # type: ignore[index,call-overload]
