"""Which queues the broker gives to whom, and how groups are switched between pull and pop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ariane.broker.clients import Client
from ariane.broker.pop.assignment import RULES, share_to_pop, share_to_pull
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.protocol.bodies import ConsumerData, MessageQueue
from tests.unit.broker.pop.popping import Popping
from tests.unit.broker.rig import Peer


def queues(count: int, broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue(broker_name=broker, queue_id=n, topic="T") for n in range(count)]


def ids(found: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in found]


# (queues, members) -> the share of each member, as Java's client computes them too
AVERAGE = [
    (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (2, 3, [[0], [1], []]),
    (4, 1, [[0, 1, 2, 3]]),
]
CIRCLE = [
    (8, 2, [[0, 2, 4, 6], [1, 3, 5, 7]]),
    (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
    (2, 3, [[0], [1], []]),
]


@pytest.mark.parametrize(
    ("rule", "queue_count", "member_count", "shares"),
    [("AVG", *row) for row in AVERAGE] + [("AVG_BY_CIRCLE", *row) for row in CIRCLE],
)
def test_shares_to_pull(
    rule: str, queue_count: int, member_count: int, shares: list[list[int]]
) -> None:
    members = [f"c{n}" for n in range(member_count)]
    found = [
        ids(share_to_pull(RULES[rule], member, queues(queue_count), members)) for member in members
    ]
    assert found == shares
    assert share_to_pull(RULES[rule], "stranger", queues(queue_count), members) == []


POP = [
    # queues, members, others' shares -> the share of each member
    (4, 2, 0, [[-1], [-1]]),
    (4, 2, -1, [[-1], [-1]]),
    (4, 3, 2, [[-1]] * 3),
    (4, 4, 1, [[0, 1], [1, 2], [2, 3], [3, 0]]),
    (4, 4, 2, [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]),
    (2, 5, 1, [[0], [1], [0], [1], [0]]),
]


@pytest.mark.parametrize(("queue_count", "member_count", "share_count", "shares"), POP)
def test_shares_to_pop(
    queue_count: int, member_count: int, share_count: int, shares: list[list[int]]
) -> None:
    members = [f"c{n}" for n in range(member_count)]
    found = [
        ids(share_to_pop(RULES["AVG"], member, queues(queue_count), members, share_count))
        for member in members
    ]
    assert found == shares


def test_to_pop_everything_is_one_queue_a_broker() -> None:
    found = share_to_pop(RULES["AVG"], "c", queues(4, "a") + queues(2, "b"), ["c"], 0)
    assert [(queue.broker_name, queue.queue_id) for queue in found] == [("a", -1), ("b", -1)]


# As requests.


@pytest.fixture
def broker() -> Popping:
    broker = Popping(queues=4)
    for n in range(2):
        client = Client(Peer(), f"c{n}", "JAVA", 479)  # type: ignore[arg-type]
        broker.state.clients.join(client, ConsumerData(group="g"))
    return broker


def ask(broker: Popping, client_id: str = "c0", **fields: Any) -> Any:
    asked = {
        "clientId": client_id, "consumerGroup": "g", "messageModel": "CLUSTERING",
        "strategyName": "AVG", "topic": "T",
    } | fields  # fmt: skip
    broker.peer.sent.clear()
    broker.call(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(asked).encode())
    (answer,) = broker.peer.sent
    assert answer.code == 0
    return json.loads(answer.body)


def queue_ids(answer: Any) -> list[int]:
    return [each["messageQueue"]["queueId"] for each in answer["messageQueueAssignments"]]


def set_mode(broker: Popping, **fields: Any) -> Any:
    mode = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, "topic": "T"} | fields
    broker.peer.sent.clear()
    answer = broker.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())
    return answer or broker.peer.sent[-1]


def test_pull_by_default_split_among_the_members(broker: Popping) -> None:
    assert ask(broker) == {
        "messageQueueAssignments": [
            {
                "messageQueue": {"brokerName": "broker-a", "queueId": n, "topic": "T"},
                "mode": "PULL",
            }
            for n in (0, 1)
        ]
    }
    assert queue_ids(ask(broker, "c1")) == [2, 3]
    assert queue_ids(ask(broker, "c1", strategyName="AVG_BY_CIRCLE")) == [1, 3]
    assert queue_ids(ask(broker, "stranger")) == []


def test_a_group_is_switched_to_pop_and_back(broker: Popping) -> None:
    assert set_mode(broker).code == 0
    (assignment,) = ask(broker)["messageQueueAssignments"]
    assert (assignment["mode"], assignment["messageQueue"]["queueId"]) == ("POP", -1)
    assert ask(broker, consumerGroup="g", topic="%RETRY%g") == {}  # there is none yet
    assert set_mode(broker, mode="PULL").code == 0
    assert queue_ids(ask(broker)) == [0, 1]


def test_modes_survive_and_are_shown_as_apache_does(broker: Popping) -> None:
    set_mode(broker, popShareQueueNum=3)
    text = broker.disk.read("config/messageRequestMode.json")
    assert json.loads(text) == {
        "messageRequestModeMap": {
            "T": {
                "g": {
                    "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3, "topic": "T",
                }
            }
        }
    }  # fmt: skip
    after = broker.killed(queues=4)
    answer = after.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert answer is not None
    assert json.loads(answer.body) == json.loads(text)


def test_what_is_not_known_leaves_a_consumer_as_it_is(broker: Popping) -> None:
    assert ask(broker, topic="None") == {}
    assert ask(broker, strategyName="CONSISTENT_HASH") == {}
    assert ask(broker, consumerGroup="offline") == {}


def test_broadcast_and_brokers_that_do_not_assign_give_everything(broker: Popping) -> None:
    assert queue_ids(ask(broker, messageModel="BROADCASTING")) == [0, 1, 2, 3]
    broker.configure(assigns_queues=False)
    assert queue_ids(ask(broker, "c1")) == [0, 1, 2, 3]


def test_a_broker_may_pop_by_default_but_never_from_retry_topics() -> None:
    broker = Popping(BrokerConfig(request_mode="POP"), queues=4)
    broker.topic("%RETRY%g", 1)
    client = Client(Peer(), "c0", "JAVA", 479)  # type: ignore[arg-type]
    broker.state.clients.join(client, ConsumerData(group="g"))
    assert ask(broker)["messageQueueAssignments"][0]["mode"] == "POP"
    retry = ask(broker, topic="%RETRY%g")["messageQueueAssignments"]
    assert [each["mode"] for each in retry] == ["PULL"]


def test_setting_the_mode_of_a_new_group_makes_it_if_that_is_allowed(broker: Popping) -> None:
    broker.configure(auto_create_groups=False)
    assert set_mode(broker, consumerGroup="n").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.configure(auto_create_groups=True)
    assert set_mode(broker, consumerGroup="n").code == ResponseCode.SUCCESS
    after = broker.killed(queues=4)
    assert "n" in after.state.groups
    mode = after.state.pop.modes.get("T", "n")
    assert mode is not None
    assert mode.mode == "POP"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION),
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "no such name"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
        ({"popShareQueueNum": "many"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_modes_that_are_refused(
    broker: Popping, fields: dict[str, Any], code: ResponseCode
) -> None:
    answer = set_mode(broker, **fields)
    assert (answer.code, bool(answer.remark)) == (code, True)
