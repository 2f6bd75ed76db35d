"""Asking for, committing and moving consume offsets, as clients and tools do it."""

from __future__ import annotations

from typing import Any

import pytest

from ariane.codes import FrameFlag, PullFlag, RequestCode, ResponseCode
from ariane.config import StoreConfig
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerOffsets, ResetOffsets
from ariane.protocol.bodies.statistics import CorrectionOffsets
from ariane.protocol.command import Command
from tests.unit.broker.rig import SMALL_STORE, Rig

INT64_MAX = (1 << 63) - 1


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("T", 2)
    rig.state.groups.for_consumer("readers")
    return rig


def call(rig: Rig, code: int, **ext: Any) -> Command:
    answer = rig.call(code, {"consumerGroup": "readers", "topic": "T", "queueId": 0} | ext)
    assert answer is not None
    return answer


def query(rig: Rig, **ext: Any) -> int | None:
    answer = call(rig, RequestCode.QUERY_CONSUMER_OFFSET, **ext)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        assert answer.ext == {}
        return None
    assert answer.code == ResponseCode.SUCCESS
    return int(answer.ext["offset"])


def commit(rig: Rig, offset: int | str, **ext: Any) -> Command:
    return call(rig, RequestCode.UPDATE_CONSUMER_OFFSET, **{"commitOffset": offset} | ext)


def test_what_was_committed_is_found(rig: Rig) -> None:
    assert commit(rig, 12).code == ResponseCode.SUCCESS
    assert query(rig) == 12
    assert commit(rig, 3).code == ResponseCode.SUCCESS
    assert query(rig) == 3


def test_a_new_group_starts_at_zero_only_where_the_first_message_is_fresh(rig: Rig) -> None:
    assert query(rig) is None  # an empty queue
    rig.send("T", 0)
    assert query(rig) == 0
    assert query(rig, setZeroIfNotFound="true") == 0
    assert query(rig, setZeroIfNotFound="false") is None
    assert query(rig, queueId=1) is None
    assert query(rig, topic="no_such_topic") is None


def test_a_new_group_on_an_old_queue_is_told_to_choose() -> None:
    cold = StoreConfig(
        segment_bytes=SMALL_STORE.segment_bytes,
        queue_file_bytes=SMALL_STORE.queue_file_bytes,
        index_slot_count=100,
        index_entry_count=400,
        memory_ratio_percent=0,
    )
    rig = Rig(store_config=cold)
    rig.topic("T")
    rig.send("T", 0)
    rig.send("T", 0)
    assert query(rig) is None


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "unknown group": ({"consumerGroup": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    "unknown topic": ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
    "negative queue": ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
    "huge queue": ({"queueId": 1 << 30}, ResponseCode.INVALID_PARAMETER),
    "negative offset": ({"commitOffset": -1}, ResponseCode.INVALID_PARAMETER),
    "no offset": ({"commitOffset": ""}, ResponseCode.SYSTEM_ERROR),
}


@pytest.mark.parametrize(("ext", "code"), REFUSED.values(), ids=REFUSED)
def test_commits_that_cannot_be_are_refused(rig: Rig, ext: dict[str, Any], code: int) -> None:
    answer = commit(rig, 1, **ext)
    assert answer.code == code
    assert answer.remark
    assert rig.state.offsets.table().offsets == {}


def test_one_way_commits_are_stored_and_not_answered(rig: Rig) -> None:
    ext = {"consumerGroup": "readers", "topic": "T", "queueId": 0, "commitOffset": 9}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    assert rig.call(code, ext, flag=FrameFlag.ONE_WAY) is None
    assert rig.peer.sent == []
    assert query(rig) == 9


def reset(rig: Rig, **ext: Any) -> Command:
    fields = {"topic": "T", "group": "readers", "timestamp": -1, "isForce": "true"} | ext
    answer = rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert answer is not None
    return answer


def moved(answer: Command) -> dict[int, int]:
    assert answer.code == ResponseCode.SUCCESS
    offsets = fastjson.decode(answer.body, ResetOffsets).offsets
    assert {queue.broker_name for queue in offsets} == {"broker-a"}
    return {queue.queue_id: offset for queue, offset in offsets.items()}


def test_a_group_can_be_moved_to_the_end_to_a_moment_and_to_an_offset(rig: Rig) -> None:
    for _ in range(4):
        rig.send("T", 0)
        rig.clock.advance(1)
    assert moved(reset(rig)) == {0: 4, 1: 0}
    at_ms = rig.clock.wall_ms() - 2500
    assert moved(reset(rig, timestamp=at_ms)) == {0: 2, 1: 0}
    assert moved(reset(rig, queueId=0, offset=1)) == {0: 1}
    assert moved(reset(rig, queueId=0, timestamp=0)) == {0: 0}
    assert reset(rig, queueId=0, offset=99).code == ResponseCode.SYSTEM_ERROR
    assert reset(rig, topic="nowhere").code == ResponseCode.TOPIC_NOT_EXIST
    assert reset(rig, group="nobody").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_the_next_pull_is_sent_to_the_new_place_once(rig: Rig) -> None:
    for _ in range(4):
        rig.send("T", 0)
    commit(rig, 4)
    reset(rig, timestamp=0)
    answer = commit(rig, 4)  # of a consumer that does not know yet
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
    first = rig.pull("T", 0, 4, sysFlag=int(flags), commitOffset=4)
    assert first is not None
    assert first.code == ResponseCode.PULL_OFFSET_MOVED
    assert first.ext["nextBeginOffset"] == "0"
    assert query(rig) == 0
    second = rig.pull("T", 0, 0)
    assert second is not None
    assert second.code == ResponseCode.SUCCESS
    commit(rig, 4)
    assert query(rig) == 4


def test_a_held_pull_learns_of_a_reset_at_once(rig: Rig) -> None:
    rig.send("T", 0)
    flags = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
    assert rig.pull("T", 0, 1, sysFlag=flags) is None
    reset(rig, timestamp=0)
    [answer] = rig.peer.sent
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext["nextBeginOffset"] == "0"


def test_all_offsets_are_given_to_a_replica(rig: Rig) -> None:
    commit(rig, 5)
    answer = rig.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert answer is not None
    table = fastjson.decode(answer.body, ConsumerOffsets)
    assert table.offsets == {"T@readers": {0: 5}}
    assert table.group_topics == {"readers": ["T"]}


def test_one_group_can_go_on_from_anothers_place(rig: Rig) -> None:
    commit(rig, 5)
    ext = {"srcGroup": "readers", "destGroup": "others", "offline": "true"}
    answer = rig.call(RequestCode.CLONE_GROUP_OFFSET, ext)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert query(rig, consumerGroup="others") == 5
    answer = rig.call(RequestCode.CLONE_GROUP_OFFSET, ext | {"destGroup": "not a group/name"})
    assert answer is not None
    assert answer.code == ResponseCode.INVALID_PARAMETER


def test_corrections_are_the_lowest_offset_of_all_groups(rig: Rig) -> None:
    for group, offset in (("readers", 5), ("others", 3), ("behind", 1)):
        rig.state.groups.for_consumer(group)
        commit(rig, offset, consumerGroup=group)

    def lowest(**ext: Any) -> dict[int, int]:
        answer = rig.call(RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "T"} | ext)
        assert answer is not None
        return fastjson.decode(answer.body, CorrectionOffsets).offsets

    assert lowest(compareGroup="readers") == {0: 1}
    assert lowest(compareGroup="readers", filterGroups="behind,x") == {0: 3}
    assert lowest(compareGroup="behind", filterGroups="behind") == {0: INT64_MAX}
