"""What became of a message in each group: every state, from the codes that tools ask."""

from __future__ import annotations

from typing import Any

import pytest

from ariane.broker.clients import Client
from ariane.broker.handlers import groups
from ariane.client.tracking import TrackType, track_of
from ariane.codes import PullFlag, RequestCode, ResponseCode
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumerConnections,
    ConsumerData,
    ConsumeStats,
    GroupList,
    OffsetProgress,
    SubscriptionData,
)
from ariane.protocol.bodies.statistics import AllConsumeStats
from ariane.protocol.command import Command
from ariane.protocol.message import StoredMessage
from tests.unit.broker.rig import Peer, Rig, pull_fields


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("T", queues=1)
    for number in range(4):
        rig.send("T", 0, properties=f"UNIQ_KEY\x01K{number}\x02TAGS\x01A\x02a\x01{number}\x02")
    return rig


def ask(rig: Rig, code: int, **ext: Any) -> Command:
    answer = rig.call(code, ext)
    assert answer is not None
    return answer


def join(rig: Rig, group: str, *, wants: SubscriptionData | None = None, **fields: Any) -> Peer:
    peer = Peer()
    rig.state.groups.for_consumer(group)
    wanted = wants or SubscriptionData(topic="T", tags=[])
    consumer = ConsumerData(group=group, subscriptions=[wanted], **fields)
    rig.state.clients.join(Client(peer, f"{group}@1", "JAVA", 479), consumer)  # type: ignore[arg-type]
    return peer


def progress(rig: Rig, group: str) -> dict[int, OffsetProgress]:
    answer = ask(rig, RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic="T")
    assert answer.code == ResponseCode.SUCCESS
    stats = fastjson.decode(answer.body, ConsumeStats)
    return {queue.queue_id: found for queue, found in stats.offsets.items()}


def tracks(rig: Rig, message: StoredMessage) -> dict[str, TrackType]:
    """What tools conclude, group by group, from 300, 203 and 208."""
    found = {}
    listed = ask(rig, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
    for group in fastjson.decode(listed.body, GroupList).groups:
        members = ask(rig, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
        assert members.code in (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
        stats = ask(rig, RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic="T")
        found[group] = track_of(
            group,
            message,
            fastjson.decode(members.body, ConsumerConnections) if members.code == 0 else None,
            fastjson.decode(stats.body, ConsumeStats),
        ).type
    return found


def pop(rig: Rig, group: str, count: int) -> list[str]:
    """Pop so many, and give the handles to acknowledge them by."""
    answer = ask(
        rig, RequestCode.POP_MESSAGE, consumerGroup=group, topic="T", queueId=0, maxMsgNums=count,
        invisibleTime=60_000, pollTime=0, bornTime=rig.clock.wall_ms(), initMode=0,
    )  # fmt: skip
    assert answer.code == ResponseCode.SUCCESS
    ext = answer.ext
    start = ext["startOffsetInfo"].split(" ")[2]
    handle = f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 broker-a 0"
    offsets = ext["msgOffsetInfo"].split(" ")[2].split(",")
    return [f"{handle} {queue_offset}" for queue_offset in offsets]


def ack(rig: Rig, group: str, handle: str) -> None:
    answer = ask(
        rig, RequestCode.ACK_MESSAGE, consumerGroup=group, topic="T", queueId=0, extraInfo=handle,
        offset=handle.rsplit(" ", maxsplit=1)[-1],
    )  # fmt: skip
    assert answer.code == ResponseCode.SUCCESS


def test_every_state_at_once(rig: Rig) -> None:
    message = rig.stored()[1]
    for group, consume_offset in (("past", 2), ("before", 1), ("gone", 2), ("other_tags", 2)):
        rig.state.offsets.commit("T", group, 0, consume_offset)
    for group in ("past", "before", "new"):
        join(rig, group)
    join(rig, "other_tags", wants=SubscriptionData(topic="T", tags=["B"], expression="B"))
    join(rig, "reads_at_will", consume_type="CONSUME_ACTIVELY")
    join(rig, "everybody", message_model="BROADCASTING")
    join(rig, "elsewhere", wants=SubscriptionData(topic="U"))
    assert tracks(rig, message) == {
        "past": TrackType.CONSUMED,
        "before": TrackType.NOT_CONSUME_YET,
        "new": TrackType.NOT_CONSUME_YET,
        "gone": TrackType.NOT_ONLINE,
        "other_tags": TrackType.CONSUMED_BUT_FILTERED,
        "reads_at_will": TrackType.PULL,
        "everybody": TrackType.CONSUME_BROADCASTING,
    }


def test_a_group_that_comes_goes_and_is_deleted(rig: Rig) -> None:
    message = rig.stored()[1]
    peer = join(rig, "g")
    assert tracks(rig, message) == {"g": TrackType.NOT_CONSUME_YET}
    rig.state.offsets.commit("T", "g", 0, 4)
    assert tracks(rig, message) == {"g": TrackType.CONSUMED}
    rig.state.clients.closed(peer)  # type: ignore[arg-type]
    assert tracks(rig, message) == {"g": TrackType.NOT_ONLINE}
    rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    assert tracks(rig, message) == {}


def test_what_was_pulled_is_not_consumed(rig: Rig) -> None:
    message = rig.stored()[1]
    join(rig, "g")
    fields = pull_fields("T", 0, 0, consumerGroup="g", sysFlag=int(PullFlag.SUBSCRIPTION))
    ask(rig, RequestCode.PULL_MESSAGE, **fields)
    assert progress(rig, "g")[0].pull_offset == 4
    assert tracks(rig, message) == {"g": TrackType.NOT_CONSUME_YET}


@pytest.mark.parametrize("kind", ["CONSUME_POP", "CONSUME_PASSIVELY"])
def test_what_was_popped_is_consumed_once_acknowledged(rig: Rig, kind: str) -> None:
    first, second, third, _ = rig.stored()
    join(rig, "g", consume_type=kind)
    handles = pop(rig, "g", 2)
    assert progress(rig, "g")[0].lent_offsets == [0, 1]
    assert [tracks(rig, one)["g"] for one in (first, second, third)] == [
        TrackType.NOT_CONSUME_YET
    ] * 3
    ack(rig, "g", handles[1])
    assert tracks(rig, first)["g"] is TrackType.NOT_CONSUME_YET
    assert tracks(rig, second)["g"] is TrackType.CONSUMED
    assert tracks(rig, third)["g"] is TrackType.NOT_CONSUME_YET
    found = progress(rig, "g")[0]
    assert (found.consume_offset, found.pull_offset, found.lent_offsets) == (0, 2, [0])
    ack(rig, "g", handles[0])
    assert tracks(rig, first)["g"] is TrackType.CONSUMED
    found = progress(rig, "g")[0]
    assert (found.consume_offset, found.pull_offset) == (2, 2)
    assert found.lent_offsets == ([] if kind == "CONSUME_POP" else None)


def test_what_others_popped_does_not_count(rig: Rig) -> None:
    join(rig, "g", consume_type="CONSUME_POP")
    join(rig, "h")
    pop(rig, "g", 2)
    rig.state.offsets.commit("T", "h", 0, 4)
    assert progress(rig, "h")[0].lent_offsets is None
    answer = ask(rig, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    everybody = fastjson.decode(answer.body, AllConsumeStats)
    assert (everybody.total_behind, everybody.total_in_flight) == (4, 2)  # of g; h is done


def test_too_much_popped_to_be_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    message = rig.stored()[1]
    join(rig, "g", consume_type="CONSUME_POP")
    pop(rig, "g", 3)
    monkeypatch.setattr(groups, "LENT_MAX", 2)
    found = progress(rig, "g")[0]
    assert (found.consume_offset, found.lent_offsets) == (0, None)
    assert tracks(rig, message)["g"] is TrackType.NOT_CONSUME_YET
    monkeypatch.setattr(groups, "CHECKPOINTS_MAX", 0)
    found = progress(rig, "g")[0]
    assert (found.consume_offset, found.lent_offsets) == (3, None)
    assert tracks(rig, message)["g"] is TrackType.UNKNOWN
