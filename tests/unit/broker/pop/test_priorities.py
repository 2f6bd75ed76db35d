"""Topics of priorities, as clients of RocketMQ 5.5 use them: queues stand for priorities."""

from __future__ import annotations

import pytest

from ariane.broker.pop.revive import SLOT_MS
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import StoreError
from ariane.protocol import fastjson
from ariane.protocol.bodies import SubscriptionGroupConfig
from ariane.protocol.message import encode_properties
from tests.unit.broker.pop.popping import INVISIBLE_MS, Popping, bodies

PRIORITY = {"message.type": "PRIORITY"}


@pytest.fixture
def broker() -> Popping:
    broker = Popping()
    broker.topic("T", 4, attributes=PRIORITY)
    return broker


def send(broker: Popping, priority: object, body: bytes = b"x", *, queue_id: int = 0) -> str:
    properties = encode_properties({"UNIQ_KEY": "U", "_SYS_MSG_PRIORITY_": str(priority)})
    answer = broker.send(queue_id=queue_id, body=body, properties=properties)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.ext["queueId"]


def set_group(broker: Popping, attributes: dict[str, str]) -> int:
    body = fastjson.encode(SubscriptionGroupConfig(name="g", attributes=attributes))
    refusal = broker.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    return (refusal or broker.peer.sent[-1]).code


@pytest.mark.parametrize(
    ("priority", "queue"),
    [(0, "0"), (2, "2"), (3, "3"), (4, "3"), (10**20, "3"), (-1, "1"), ("high", "1")],
)
def test_a_message_goes_to_the_queue_of_its_priority(
    broker: Popping, priority: object, queue: str
) -> None:
    assert send(broker, priority, queue_id=1) == queue


def test_the_highest_is_popped_first_each_time(broker: Popping) -> None:
    for number in range(200):
        for priority in (0, 3, 1, 2):
            send(broker, priority, b"p%d" % priority)
        got = [body for _ in range(4) for body in bodies(broker.pop(maxMsgNums=1))]
        assert got == [b"p3", b"p2", b"p1", b"p0"], number


def test_what_comes_back_comes_after_the_others(broker: Popping) -> None:
    send(broker, 3, b"forgotten")
    assert bodies(broker.pop()) == [b"forgotten"]
    broker.clock.advance((INVISIBLE_MS + 3 * SLOT_MS) / 1000)
    for _ in range(100):
        send(broker, 0, b"new")
        assert bodies(broker.pop(maxMsgNums=1)) == [b"new"]
    assert bodies(broker.pop()) == [b"forgotten"]


def test_a_group_may_go_by_priority_less_often(broker: Popping) -> None:
    assert set_group(broker, {"+priority.factor": "0"}) == ResponseCode.SUCCESS
    first = set()
    for _ in range(8):
        for priority in range(4):
            send(broker, priority, b"p%d" % priority)
        first |= set(bodies(broker.pop(maxMsgNums=1)))
        while broker.pop():
            pass
    assert first != {b"p3"}
    assert set_group(broker, {"-priority.factor": ""}) == ResponseCode.SUCCESS
    test_the_highest_is_popped_first_each_time(broker)


def test_attributes_of_groups_are_edited_and_kept(broker: Popping) -> None:
    assert set_group(broker, {"+priority.factor": "40"}) == ResponseCode.SUCCESS
    assert set_group(broker, {}) == ResponseCode.SUCCESS
    group = broker.state.groups.get("g")
    assert group is not None
    assert group.attributes == {"priority.factor": "40"}


@pytest.mark.parametrize(
    "attributes",
    [{"+priority.factor": "101"}, {"+priority.factor": "x"}, {"+lite.bind.topic": "T"}],
)
def test_attributes_that_there_are_not_are_refused(
    broker: Popping, attributes: dict[str, str]
) -> None:
    assert set_group(broker, attributes) == ResponseCode.INVALID_PARAMETER


def change(broker: Popping, **settings: object) -> None:
    """Set what `mqadmin updateBrokerConfig` sets while the broker runs."""
    text = "".join(f"{key}={str(value).lower()}\n" for key, value in settings.items())
    refusal = broker.call(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())
    assert (refusal or broker.peer.sent[-1]).code == ResponseCode.SUCCESS


def pass_invisible(broker: Popping) -> None:
    broker.clock.advance((INVISIBLE_MS + 3 * SLOT_MS) / 1000)


def test_zero_may_be_the_highest(broker: Popping) -> None:
    change(broker, priorityOrderAsc=False)
    for priority in (2, 0, 3, 1):
        send(broker, priority, b"p%d" % priority)
    assert bodies(broker.pop()) == [b"p0", b"p1", b"p2", b"p3"]


def test_what_comes_back_may_come_before_the_others(broker: Popping) -> None:
    send(broker, 0, b"forgotten")
    broker.pop()
    pass_invisible(broker)
    change(broker, popFromRetryProbabilityForPriority=100)
    send(broker, 3, b"new")
    assert bodies(broker.pop(maxMsgNums=1)) == [b"forgotten"]


@pytest.mark.parametrize("ascends", [True, False])
def test_what_comes_back_may_keep_its_priority(broker: Popping, ascends: bool) -> None:
    change(
        broker,
        priorityOrderAsc=ascends,
        useSeparateRetryQueue=True,
        popFromRetryProbabilityForPriority=100,
    )
    for priority in range(4):
        send(broker, priority, b"p%d" % priority)
    broker.pop()
    pass_invisible(broker)
    again = broker.pop()
    wanted = [3, 2, 1, 0] if ascends else [0, 1, 2, 3]
    assert [each.queue_id for each in again] == wanted
    assert bodies(again) == [b"p%d" % priority for priority in wanted]
    assert {each.offset for each in again} == {0}  # each in a queue of its own
    pass_invisible(broker)  # and from the retry topic back into the same queue of it
    assert [(each.queue_id, each.offset) for each in broker.pop()] == [(n, 1) for n in wanted]


def test_retry_queues_are_added_when_the_topic_has_more(broker: Popping) -> None:
    send(broker, 2, b"before")
    broker.pop()
    pass_invisible(broker)
    assert [(each.body, each.queue_id) for each in broker.pop()] == [(b"before", 0)]
    change(broker, useSeparateRetryQueue=True)
    broker.topic("T", 6, attributes=PRIORITY)
    send(broker, 5, b"after")
    broker.pop()
    pass_invisible(broker)
    found = [(each.body, each.queue_id) for each in broker.pop()]
    assert found == [(b"after", 5), (b"before", 0)]


def test_a_kill_between_giving_back_to_several_queues_and_their_notes_gives_nothing_twice(
    broker: Popping,
) -> None:
    change(broker, useSeparateRetryQueue=True)
    for priority in range(4):
        send(broker, priority, b"p%d" % priority)
    broker.pop()
    journal = broker.state.pop.journal
    journal.append = failing  # type: ignore[assignment,method-assign]
    pass_invisible(broker)
    again = broker.killed(queues=4)
    pass_invisible(again)
    assert [len(again.stored("%RETRY%g_T", queue_id)) for queue_id in range(4)] == [1] * 4


def failing(*_: object) -> object:
    raise StoreError("no room")
