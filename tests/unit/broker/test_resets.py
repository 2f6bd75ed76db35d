"""Groups moved by telling their members, and members asked where they stand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ariane.broker.clients import Client
from ariane.broker.dispatch import dispatch
from ariane.codes import FrameFlag, RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.errors import ConnectionLost, RequestTimeout
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerData, MessageQueue, ResetOffsets, SubscriptionData
from ariane.protocol.bodies.statistics import ConsumerStatus
from ariane.protocol.command import Command, reply
from tests.unit.broker.rig import Peer, Rig

RESET, STATUS = (
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
)


class Member(Peer):
    """A consumer that answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Command, float, asyncio.Future[Command]]] = []

    def start_request(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.asked.append((command, timeout_s, future))
        return future

    @property
    def told(self) -> list[Command]:
        """What it was told of resets."""
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        return [command for command in self.sent if command.code == code]


@pytest.fixture
def rig() -> Rig:
    rig = Rig(BrokerConfig(resets_here=False))
    rig.topic("T", 2)
    for _ in range(4):
        rig.send("T", 0)
        rig.clock.advance(1)
    for queue_id, consume_offset in ((0, 2), (1, 0)):
        rig.state.offsets.commit("T", "g", queue_id, consume_offset)
    return rig


def join(rig: Rig, client_id: str, version: int = 479) -> Member:
    member = Member()
    rig.state.groups.for_consumer("g")
    consumer = ConsumerData(group="g", subscriptions=[SubscriptionData(topic="T")])
    rig.state.clients.join(Client(member, client_id, "JAVA", version), consumer)  # type: ignore[arg-type]
    return member


def reset(rig: Rig, **ext: Any) -> Command:
    fields = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"} | ext
    answer = rig.call(RESET, fields)
    assert answer is not None
    return answer


def offsets_in(command: Command) -> dict[int, int]:
    found = fastjson.decode(command.body, ResetOffsets).offsets
    return {queue.queue_id: offset for queue, offset in found.items()}


def test_every_member_is_told_where_to_go_on(rig: Rig) -> None:
    members = [join(rig, "c1"), join(rig, "c2")]
    at_ms = rig.clock.wall_ms() - 3_500
    answer = reset(rig, timestamp=at_ms)
    assert answer.code == ResponseCode.SUCCESS
    assert offsets_in(answer) == {0: 1, 1: 0}
    for member in members:
        (told,) = member.told
        assert told.flag == FrameFlag.ONE_WAY
        assert (told.ext["topic"], told.ext["group"], told.ext["timestamp"]) == (
            "T", "g", str(at_ms),
        )  # fmt: skip
        assert offsets_in(told) == {0: 1, 1: 0}
    assert rig.state.offsets.get("T", "g", 0) == 2  # the members will commit it


def test_a_group_goes_forward_only_by_force(rig: Rig) -> None:
    member = join(rig, "c1")
    assert offsets_in(reset(rig, isForce="false")) == {0: 2, 1: 0}
    assert offsets_in(reset(rig, isForce="true")) == {0: 4, 1: 0}
    assert offsets_in(reset(rig, isForce="false", timestamp=0)) == {0: 0, 1: 0}
    assert [offsets_in(told)[0] for told in member.told] == [2, 4, 0]


def test_cpp_gets_a_list(rig: Rig) -> None:
    member = join(rig, "c1")
    fields = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true"}
    command = Command(RESET, opaque=1, ext=fields, language="CPP")
    answer = dispatch(rig.state, rig.peer, command)  # type: ignore[arg-type]
    assert answer is not None
    assert offsets_in(answer) == {0: 4, 1: 0}
    (told,) = member.told
    assert fastjson.loads(told.body) == {
        "offsetTable": [
            {"brokerName": "broker-a", "offset": 4, "queueId": 0, "topic": "T"},
            {"brokerName": "broker-a", "offset": 0, "queueId": 1, "topic": "T"},
        ]
    }


def test_why_members_cannot_be_told(rig: Rig) -> None:
    assert reset(rig).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert reset(rig, topic="nowhere").code == ResponseCode.TOPIC_NOT_EXIST
    never_here = reset(rig, group="strangers")
    assert (never_here.code, never_here.remark) == (
        ResponseCode.SYSTEM_ERROR, "THe consumer group <strangers> not exist",
    )  # fmt: skip
    new, old = join(rig, "c1"), join(rig, "c2", version=27)
    too_old = reset(rig)
    assert too_old.code == ResponseCode.SYSTEM_ERROR
    assert "version=27" in (too_old.remark or "")
    assert new.told == old.told == []


def test_a_queue_that_is_none_of_the_topics(rig: Rig) -> None:
    rig.configure(resets_here=True)
    rig.state.groups.for_consumer("g")
    assert reset(rig, queueId=2).code == ResponseCode.INVALID_PARAMETER
    assert rig.state.offsets.get("T", "g", 2) is None


# Where members stand.


async def heard() -> None:
    """Let the loop carry answers on."""
    for _ in range(3):
        await asyncio.sleep(0)


def ask(rig: Rig, tool: Peer, **ext: Any) -> Command | None:
    return rig.call(STATUS, {"topic": "T", "group": "g"} | ext, peer=tool)


def status_of(consume_offset: int) -> Command:
    queue = MessageQueue(broker_name="broker-a", queue_id=0, topic="T")
    return reply(Command(221), body=fastjson.encode(ConsumerStatus(queues={queue: consume_offset})))


async def test_all_members_are_asked_and_their_answers_gathered(rig: Rig) -> None:
    first, second, tool = join(rig, "c1"), join(rig, "c2"), Peer()
    assert ask(rig, tool) is None
    for member, consume_offset in ((first, 3), (second, 7)):
        ((command, timeout_s, future),) = member.asked
        assert (command.code, command.ext, timeout_s) == (221, {"topic": "T", "group": "g"}, 5.0)
        assert tool.sent == []
        future.set_result(status_of(consume_offset))
    await heard()
    (answer,) = tool.sent
    found = fastjson.decode(answer.body, ConsumerStatus)
    assert {client: set(queues.values()) for client, queues in found.clients.items()} == {
        "c1": {3},
        "c2": {7},
    }
    assert found.queues == {}


async def test_one_member_may_be_meant(rig: Rig) -> None:
    first, second, tool = join(rig, "c1"), join(rig, "c2"), Peer()
    ask(rig, tool, clientAddr="c2")
    assert (len(first.asked), len(second.asked)) == (0, 1)
    ask(rig, tool, clientAddr="c3")
    await heard()
    (answer,) = tool.sent
    assert fastjson.decode(answer.body, ConsumerStatus).clients == {}


async def test_who_does_not_answer_well_is_left_out(rig: Rig) -> None:
    members, tool = [join(rig, f"c{number}") for number in range(5)], Peer()
    ask(rig, tool)
    futures = [member.asked[0][2] for member in members]
    futures[0].set_result(status_of(3))
    futures[1].set_exception(RequestTimeout("late"))
    futures[2].set_exception(ConnectionLost("gone"))
    futures[3].set_result(reply(Command(221), 1, remark="busy"))
    futures[4].set_result(reply(Command(221), body=b"[}"))
    await heard()
    (answer,) = tool.sent
    assert (answer.code, list(fastjson.decode(answer.body, ConsumerStatus).clients)) == (0, ["c0"])


def test_nobody_to_ask(rig: Rig) -> None:
    answer = ask(rig, Peer())
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    join(rig, "c1", version=0)
    answer = ask(rig, Peer())
    assert answer is not None
    assert "version=0" in (answer.remark or "")
