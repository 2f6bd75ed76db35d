"""Pulls: the checks in their order, the outcomes in all their fields, and the waiting."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ariane.broker.tables import GROUPS_PATH
from ariane.codes import Permission, PullFlag, RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.disk import SimulatedDisk
from ariane.protocol.bodies import SubscriptionGroupConfig
from ariane.protocol.command import Command
from ariane.protocol.message import decode_records
from tests.unit.broker.rig import SMALL_STORE, Peer, Rig, pull_fields

OFFSETS = ("nextBeginOffset", "minOffset", "maxOffset")


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("T")
    return rig


def pulled(rig: Rig, **fields: Any) -> Command:
    answer = rig.pull(**fields)
    assert answer is not None
    return answer


def bodies(answer: Command) -> list[bytes]:
    return [message.stored_body for message in decode_records(answer.body)]


def offsets(answer: Command) -> tuple[int, ...]:
    return tuple(int(answer.ext[name]) for name in OFFSETS)


def fill(rig: Rig, count: int, *, tag: str = "", queue_id: int = 0) -> None:
    properties = "UNIQ_KEY\x01U\x02" + (f"TAGS\x01{tag}\x02" if tag else "")
    for n in range(count):
        rig.send(queue_id=queue_id, body=b"%d" % n, properties=properties)


# Outcomes.


def test_messages_are_found_in_order_with_every_field(rig: Rig) -> None:
    fill(rig, 5)
    answer = pulled(rig, offset=2)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert bodies(answer) == [b"2", b"3", b"4"]
    assert list(answer.ext.items()) == [
        ("suggestWhichBrokerId", "0"),
        ("groupSysFlag", "0"),
        ("nextBeginOffset", "5"),
        ("maxOffset", "5"),
        ("minOffset", "0"),
        ("topicSysFlag", "0"),
    ]


def test_who_will_not_wait_need_not_say_how_long(rig: Rig) -> None:
    fill(rig, 1)
    fields = pull_fields("T", 0, 0)
    del fields["suspendTimeoutMillis"]
    answer = rig.call(RequestCode.PULL_MESSAGE, fields)
    assert answer is not None and bodies(answer) == [b"0"]


OUTCOMES = {
    "at the end": (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", (3, 0, 3)),
    "past the end": (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", (3, 0, 3)),
    "before the start": (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", (0, 0, 3)),
}


@pytest.mark.parametrize(("offset", "code", "remark", "fields"), OUTCOMES.values(), ids=OUTCOMES)
def test_nothing_there(
    rig: Rig, offset: int, code: ResponseCode, remark: str, fields: tuple[int, ...]
) -> None:
    fill(rig, 3)
    answer = pulled(rig, offset=offset)
    assert (answer.code, answer.remark, offsets(answer)) == (code, remark, fields)
    assert (answer.body, answer.ext["suggestWhichBrokerId"]) == (b"", "0")


def test_a_queue_never_written_is_waited_for_at_zero_and_reset_elsewhere(rig: Rig) -> None:
    answer = pulled(rig)
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (0, 0, 0))
    answer = pulled(rig, offset=7)
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (0, 0, 0))


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_both_pulls_are_one(rig: Rig, code: int) -> None:
    fill(rig, 1)
    answer = rig.call(code, pull_fields("T", 0, 0, sysFlag=4 | 16))
    assert answer is not None
    assert bodies(answer) == [b"0"]


# Limits.


@pytest.mark.parametrize(
    ("asked", "given"), [(1, 1), (10, 10), (32, 32), (1000, 32), (0, 1), (-5, 1)]
)
def test_how_many_at_once(rig: Rig, asked: int, given: int) -> None:
    fill(rig, 40)
    answer = pulled(rig, maxMsgNums=asked)
    assert len(bodies(answer)) == given
    assert offsets(answer) == (given, 0, 40)


def test_how_many_bytes_at_once_but_always_one() -> None:
    rig = Rig(store_config=msgspec.structs.replace(SMALL_STORE, transfer_bytes_memory_max=1000))
    rig.topic("T")
    for size in (300, 300, 300, 5000):
        rig.send(body=b"x" * size)
    assert [len(body) for body in bodies(pulled(rig))] == [300, 300]
    assert [len(body) for body in bodies(pulled(rig, offset=3))] == [5000]


# Tags.


def test_only_the_tags_asked_for(rig: Rig) -> None:
    for tag in ("a", "b", "c", ""):
        fill(rig, 1, tag=tag)
    assert [m.tags for m in decode_records(pulled(rig, subscription="a || c").body)] == ["a", "c"]
    assert len(bodies(pulled(rig, subscription="*"))) == 4
    assert len(bodies(pulled(rig, subscription=""))) == 4
    answer = pulled(rig, subscription="nobody")
    assert (answer.code, answer.remark) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE",
    )  # fmt: skip
    assert offsets(answer) == (4, 0, 4)


def test_a_long_run_of_others_is_crossed_piece_by_piece(rig: Rig) -> None:
    fill(rig, 900, tag="other")
    fill(rig, 1, tag="mine")
    answer = pulled(rig, subscription="mine")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert offsets(answer)[0] == 800
    assert len(bodies(pulled(rig, offset=800, subscription="mine"))) == 1


def test_tags_of_the_heartbeat_count_unless_the_pull_brings_its_own(rig: Rig) -> None:
    fill(rig, 1, tag="a")
    fill(rig, 1, tag="b")
    rig.subscribe("readers", "T", "b")
    answer = pulled(rig, sysFlag=0, subscription="a")
    assert [message.tags for message in decode_records(answer.body)] == ["b"]
    answer = pulled(rig, sysFlag=4, subscription="a")
    assert [message.tags for message in decode_records(answer.body)] == ["a"]


# The checks, each with its code.


def change_group(rig: Rig, **fields: Any) -> None:
    rig.state.groups.put(SubscriptionGroupConfig(name="readers", **fields))


def forbid_all(rig: Rig) -> None:
    """Make every check fail at once; each test then mends those that come before its own."""
    rig.configure(permission=int(Permission.WRITE), auto_create_groups=False)


def test_the_checks_come_in_their_order() -> None:
    rig = Rig(BrokerConfig(permission=2, auto_create_groups=False))
    fields: dict[str, Any] = {"topic": "unknown", "queueId": 99, "sysFlag": 0, "subVersion": 5}

    def refusal() -> tuple[int, str | None]:
        answer = rig.call(RequestCode.PULL_MESSAGE, pull_fields("unknown", 99, 0) | fields)
        assert answer is not None
        assert answer.remark
        return answer.code, answer.ext.get("forbiddenType")

    assert refusal() == (ResponseCode.NO_PERMISSION, "1")  # the broker
    rig.configure(permission=6)
    assert refusal() == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, None)
    change_group(rig, consume_enabled=False, broadcast_enabled=False)
    assert refusal() == (ResponseCode.NO_PERMISSION, "2")  # the group
    change_group(rig, consume_enabled=True, broadcast_enabled=False)
    assert refusal() == (ResponseCode.TOPIC_NOT_EXIST, None)
    rig.topic("unknown", permission=2)
    assert refusal() == (ResponseCode.NO_PERMISSION, "3")  # the topic
    rig.topic("unknown", permission=4)
    assert refusal() == (ResponseCode.INVALID_PARAMETER, None)
    fields["queueId"] = -1
    assert refusal() == (ResponseCode.INVALID_PARAMETER, None)
    fields["queueId"] = 0
    assert refusal() == (ResponseCode.SUBSCRIPTION_NOT_EXIST, None)  # no heartbeat yet
    rig.subscribe("readers", "other", message_model="BROADCASTING")
    assert refusal() == (ResponseCode.NO_PERMISSION, "4")  # broadcast
    change_group(rig)
    assert refusal() == (ResponseCode.SUBSCRIPTION_NOT_EXIST, None)  # not to this topic
    rig.subscribe("readers", "unknown", version=4)
    assert refusal() == (ResponseCode.SUBSCRIPTION_NOT_LATEST, None)
    rig.subscribe("readers", "unknown", version=5)
    assert refusal() == (ResponseCode.PULL_NOT_FOUND, None)
    fields["subVersion"] = 0  # Go always says 0
    assert refusal() == (ResponseCode.PULL_NOT_FOUND, None)


@pytest.mark.parametrize("expression", ["||", "  ", " || || "])
def test_a_subscription_that_cannot_be_read(rig: Rig, expression: str) -> None:
    answer = pulled(rig, subscription=expression)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_filters_other_than_tags_are_refused_by_name_when_switched_off(rig: Rig) -> None:
    rig.configure(property_filters=False)
    answer = pulled(rig, expressionType="SQL92", subscription="a > 1")
    assert (answer.code, "SQL92" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    rig.subscribe("readers", "T", "a > 1", expression_type="SQL92")
    answer = pulled(rig, sysFlag=0)
    assert (answer.code, "SQL92" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


def test_a_read_queue_count_below_the_write_count_hides_queues() -> None:
    rig = Rig()
    rig.topic("T", read_queue_count=2, write_queue_count=4)
    assert pulled(rig, queue_id=1).code == ResponseCode.PULL_NOT_FOUND
    assert pulled(rig, queue_id=2).code == ResponseCode.INVALID_PARAMETER


# Offsets that come with the pull.


def test_the_commit_comes_with_its_flag_only(rig: Rig) -> None:
    pulled(rig, commitOffset=7)
    assert rig.state.offsets.get("T", "readers", 0) is None
    pulled(rig, commitOffset=7, sysFlag=4 | PullFlag.COMMIT_OFFSET)
    assert rig.state.offsets.get("T", "readers", 0) == 7


def test_a_held_pull_commits_when_it_comes_not_when_it_wakes(rig: Rig) -> None:
    flags = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET
    assert rig.pull(commitOffset=3, sysFlag=int(flags)) is None
    assert rig.state.offsets.get("T", "readers", 0) == 3
    rig.state.offsets.commit("T", "readers", 0, 5)
    fill(rig, 1)
    rig.clock.advance(0)
    assert bodies(rig.peer.sent[0]) == [b"0"]
    assert rig.state.offsets.get("T", "readers", 0) == 5


def test_a_pending_reset_is_told_once(rig: Rig) -> None:
    fill(rig, 9)
    rig.state.offsets.reset("T", "readers", {0: 4})
    answer = pulled(rig, offset=9, commitOffset=9, sysFlag=4 | PullFlag.COMMIT_OFFSET)
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (4, 0, 9))
    assert rig.state.offsets.get("T", "readers", 0) == 4
    assert len(bodies(pulled(rig, offset=4))) == 5


def test_a_reset_reaches_a_pull_that_is_held(rig: Rig) -> None:
    fill(rig, 9)
    assert rig.pull(offset=9, sysFlag=6) is None
    rig.state.offsets.reset("T", "readers", {0: 4})
    (answer,) = rig.peer.sent
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (4, 0, 9))


# Waiting.


def test_a_held_pull_is_answered_by_the_next_message(rig: Rig) -> None:
    fill(rig, 2)
    assert rig.pull(offset=2, sysFlag=6) is None
    rig.clock.advance(5)
    rig.send(body=b"new")
    rig.clock.advance(0)
    (answer,) = rig.peer.sent
    assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [b"new"])
    assert offsets(answer) == (3, 0, 3)


def test_a_held_pull_waits_for_its_own_tags(rig: Rig) -> None:
    assert rig.pull(sysFlag=6, subscription="mine") is None
    fill(rig, 1000, tag="other")
    rig.clock.advance(1)
    assert rig.peer.sent == []
    fill(rig, 1, tag="mine")
    rig.clock.advance(0)
    (answer,) = rig.peer.sent
    assert len(bodies(answer)) == 1
    assert offsets(answer) == (1001, 0, 1001)


WAITS = {
    "as asked": (True, 15_000, 15.0),
    "never beyond what clients bear": (True, 3_600_000, 28.0),
    "nonsense is no wait": (True, -5, 0.0),
    "short polling": (False, 15_000, 1.0),
}


@pytest.mark.parametrize(("long_polling", "asked_ms", "waited_s"), WAITS.values(), ids=WAITS)
def test_how_long_a_pull_is_held(
    rig: Rig, long_polling: bool, asked_ms: int, waited_s: float
) -> None:
    rig.configure(long_polling=long_polling)
    assert rig.pull(sysFlag=6, suspendTimeoutMillis=asked_ms) is None
    rig.clock.advance(max(0.0, waited_s - 0.01))
    assert rig.peer.sent == []
    rig.clock.advance(0.11)
    (answer,) = rig.peer.sent
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (0, 0, 0))


def test_without_the_flag_nothing_is_held(rig: Rig) -> None:
    assert pulled(rig, sysFlag=4).code == ResponseCode.PULL_NOT_FOUND
    assert pulled(rig, offset=9, sysFlag=6).code == ResponseCode.PULL_OFFSET_MOVED


def test_a_closed_connection_takes_its_pulls_along(rig: Rig) -> None:
    peer = Peer()
    assert rig.call(11, pull_fields("T", 0, 0, sysFlag=6), peer=peer) is None
    assert len(rig.state.held) == 1
    peer.close()
    assert len(rig.state.held) == 0


def test_deleting_the_topic_answers_its_pulls(rig: Rig) -> None:
    assert rig.pull(sysFlag=6) is None
    rig.state.topics.delete("T")
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.TOPIC_NOT_EXIST]


def test_a_held_pull_does_not_make_its_group_again(rig: Rig) -> None:
    fill(rig, 1)
    pulled(rig)  # so that the lane would hold the next
    assert rig.pull(offset=1, sysFlag=6) is None
    group = pull_fields("T", 0, 0)["consumerGroup"]
    rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group})
    rig.peer.sent.clear()
    fill(rig, 1)
    rig.clock.advance(0)
    assert rig.peer.sent[-1].code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert rig.state.groups.get(group) is None


def test_pulls_are_counted_for_their_group(rig: Rig) -> None:
    fill(rig, 3)
    answer = pulled(rig)
    tally = rig.state.stats.got_by("T", "readers")
    assert (tally.messages, tally.bytes) == (3, len(answer.body))
    assert rig.state.stats.put_to("T").messages == 3


@pytest.mark.parametrize("bits", [0, 3, 4, 7, -1])
def test_a_topic_closed_to_a_group_in_apaches_file_stays_closed_to_it(bits: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory("config")
    table = {"dataVersion": {}, "forbiddenTable": {"readers": {"T": bits}}}
    disk.write(GROUPS_PATH, json.dumps(table | {"subscriptionGroupTable": {}}).encode())
    rig = Rig(disk=disk)
    for name in ("T", "U"):
        rig.topic(name)
        rig.send(name)
    answer, other, open_topic = rig.pull(), rig.pull(consumerGroup="others"), rig.pull("U")
    assert answer and other and open_topic
    assert other.code == open_topic.code == ResponseCode.SUCCESS
    is_closed = bits in (4, 7)
    assert answer.code == (ResponseCode.NO_PERMISSION if is_closed else ResponseCode.SUCCESS)
    assert answer.ext.get("forbiddenType") == ("5" if is_closed else None)
