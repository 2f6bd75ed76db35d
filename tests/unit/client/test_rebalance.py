"""The six rules against what Apache's own classes answer (tests/golden/allocations)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ariane.client.rebalance import (
    Average,
    Circle,
    Config,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    allocate,
    in_order,
    members_in_order,
)
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue
from tests.harness.processes import ROOT

VECTORS: list[dict[str, Any]] = [
    msgspec.json.decode(line)
    for line in (ROOT / "tests/golden/allocations/vectors.jsonl").read_bytes().splitlines()
]


def room_of(name: str) -> str:
    room, at, _ = name.partition("@")
    return room if at and room else "elsewhere"


def nearby(strategy: Strategy) -> MachineRoomNearby:
    return MachineRoomNearby(strategy, lambda queue: room_of(queue.broker_name), room_of)


STRATEGIES: dict[str, Callable[[list[MessageQueue]], Strategy]] = {
    "average": lambda queues: Average(),
    "circle": lambda queues: Circle(),
    "consistent_hash": lambda queues: ConsistentHash(),
    "consistent_hash_3": lambda queues: ConsistentHash(virtual_nodes=3),
    "machine_room": lambda queues: MachineRoom({"room1", "room3"}),
    "nearby_average": lambda queues: nearby(Average()),
    "nearby_circle": lambda queues: nearby(Circle()),
    "config": lambda queues: Config(queues[: (len(queues) + 1) // 2]),
}


def queues_of(vector: dict[str, Any]) -> list[MessageQueue]:
    return [queue_of(*place) for place in vector["queues"]]


def queue_of(topic: str, broker: str, number: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def test_queues_and_members_stand_in_javas_order() -> None:
    for vector in VECTORS:
        queues = queues_of(vector)
        assert in_order(queues) == [queues[i] for i in vector["sorted_queues"]]
        assert members_in_order(vector["members"]) == vector["sorted_members"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_member_gets_what_java_gives_it(name: str) -> None:
    for vector in VECTORS:
        queues = in_order(queues_of(vector))
        strategy = STRATEGIES[name](queues)
        assert strategy.name == vector[f"{name}_name"]
        shares = {
            member: [queues.index(queue) for queue in allocate(strategy, member, queues, members)]
            for members in [vector["members"]]
            for member in members
        }
        assert shares == vector[name]


def test_a_member_that_the_group_does_not_know_yet_gets_nothing() -> None:
    queues = [queue_of("t", "a", 0)]
    assert allocate(Average(), "me", queues, ["you"]) == []
    assert allocate(Average(), "me", queues, []) == []
    assert allocate(Average(), "me", [], ["me"]) == []


def test_a_member_counts_once_however_many_connections_it_has() -> None:
    queues = [queue_of("t", "a", number) for number in range(4)]
    assert allocate(Average(), "a", queues, ["a", "b", "a"]) == queues[:2]


def test_rooms_must_be_known() -> None:
    strategy = MachineRoomNearby(Average(), lambda queue: "", lambda member: "room")
    with pytest.raises(ClientError, match="no machine room is known"):
        allocate(strategy, "me", [queue_of("t", "a", 0)], ["me"])


def test_configured_queues_of_other_topics_are_left_out() -> None:
    mine, other = queue_of("t", "a", 1), queue_of("u", "a", 0)
    strategy = Config([mine, other])
    assert allocate(strategy, "me", [queue_of("t", "a", n) for n in range(2)], ["me"]) == [mine]
