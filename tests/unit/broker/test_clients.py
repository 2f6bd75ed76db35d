"""Who is connected: joining, leaving, breaking off, falling silent, and who is told of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ariane.broker.notices import SLICE, TICK_S
from ariane.codes import FrameFlag, RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.errors import ConnectionLost, RequestTimeout
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    CheckClientRequest,
    ConsumerConnections,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    LockReply,
    LockRequest,
    MessageQueue,
    ProducerConnections,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from ariane.protocol.command import Command, reply
from tests.unit.broker.rig import Peer, Rig, TickingClock


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.state.clients.start()
    return rig


def subscription(topic: str = "T", expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, expression=expression, version=version)


def consumer(*subscriptions: SubscriptionData, group: str = "readers", **fields: Any) -> Any:
    return ConsumerData(group=group, subscriptions=list(subscriptions), **fields)


def beat(rig: Rig, peer: Peer, client_id: str, *consumers: Any, **fields: Any) -> Command:
    """Send a heartbeat and take its answer."""
    producers = [ProducerData(group=name) for name in fields.pop("producers", ())]
    data = HeartbeatData(
        client_id=client_id, consumers=list(consumers), producers=producers, **fields
    )
    answer = rig.call(RequestCode.HEART_BEAT, body=fastjson.encode(data), peer=peer)
    assert answer is not None
    return answer


def notices(rig: Rig, peer: Peer) -> list[str]:
    """The groups a peer was told of since it was last asked, and within a second from now."""
    rig.clock.advance(TICK_S)
    told, peer.sent = peer.sent, []
    for command in told:
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert command.flag == FrameFlag.ONE_WAY
    return [command.ext["consumerGroup"] for command in told]


def members(rig: Rig, group: str = "readers") -> list[str] | None:
    """The members of a group as its consumers see them."""
    answer = rig.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    assert answer is not None
    if answer.code != ResponseCode.SUCCESS:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        return None
    return fastjson.decode(answer.body, ConsumerList).client_ids


def test_a_heartbeat_makes_the_group_its_retry_topic_and_a_member(rig: Rig) -> None:
    peer = Peer()
    answer = beat(rig, peer, "c1", consumer(subscription()), producers=["writers"])
    assert answer.code == ResponseCode.SUCCESS
    assert answer.version == 479
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert members(rig) == ["c1"]
    assert rig.state.groups.get("readers") is not None
    retry = rig.state.topics.existing("%RETRY%readers")
    assert (retry.read_queue_count, retry.permission) == (1, 6)
    assert notices(rig, peer) == ["readers"]


def test_members_are_told_when_others_come_and_go(rig: Rig) -> None:
    first, second = Peer(), Peer()
    beat(rig, first, "c1", consumer(subscription()))
    notices(rig, first)
    beat(rig, second, "c2", consumer(subscription()))
    assert notices(rig, first) == notices(rig, second) == ["readers"]
    assert members(rig) == ["c1", "c2"]
    beat(rig, first, "c1", consumer(subscription()))  # nothing new
    assert notices(rig, first) == notices(rig, second) == []
    rig.call(
        RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "readers"}, peer=first
    )
    assert members(rig) == ["c2"]
    assert (notices(rig, first), notices(rig, second)) == ([], ["readers"])
    rig.state.clients.closed(second)  # type: ignore[arg-type]
    assert members(rig) is None


def test_a_broken_connection_is_told_at_once(rig: Rig) -> None:
    first, second = Peer(), Peer()
    for peer, name in ((first, "c1"), (second, "c2")):
        beat(rig, peer, name, consumer(subscription()), consumer(subscription(), group="other"))
    notices(rig, first)
    rig.state.clients.closed(second)  # type: ignore[arg-type]
    assert sorted(notices(rig, first)) == ["other", "readers"]
    rig.state.clients.closed(second)  # type: ignore[arg-type]
    assert notices(rig, first) == []


def test_topics_that_come_and_go_are_told_but_a_newer_expression_is_not(rig: Rig) -> None:
    peer = Peer()
    changed: list[str] = []
    beat(rig, peer, "c1", consumer(subscription("T", "A", 1)))
    rig.state.clients.on_change.append(changed.append)
    notices(rig, peer)
    beat(rig, peer, "c1", consumer(subscription("T", "B", 2)))
    assert notices(rig, peer) == []
    assert changed == ["readers"]
    found = rig.state.clients.subscription("readers", "T")
    assert found is not None
    assert (found.data.expression, found.version, found.tag_codes) == ("B", 2, frozenset({66}))
    beat(rig, peer, "c1", consumer(subscription("T", "A", 1)))  # an older member speaks
    assert rig.state.clients.subscription("readers", "T") == found
    beat(rig, peer, "c1", consumer(subscription("T", "B", 2), subscription("T2")))
    assert notices(rig, peer) == ["readers"]
    beat(rig, peer, "c1", consumer(subscription("T2")))
    assert notices(rig, peer) == ["readers"]
    assert rig.state.clients.subscription("readers", "T") is None


def test_a_storm_is_told_once_a_tick_and_what_came_last_is_told(rig: Rig) -> None:
    stays = Peer()
    beat(rig, stays, "c", consumer(subscription()))
    assert notices(rig, stays) == ["readers"]
    rig.clock.advance(TICK_S)
    for number in range(40):
        passing = Peer()
        beat(rig, passing, f"c{number}", consumer(subscription()))
        rig.clock.advance(TICK_S / 20)
        rig.state.clients.closed(passing)  # type: ignore[arg-type]
    assert len(stays.sent) == 2  # the first change at once, the rest of its second together
    assert notices(rig, stays) == ["readers"] * 3  # and what came after that
    rig.clock.advance(10 * TICK_S)
    assert stays.sent == []


def test_a_large_group_is_told_in_slices_and_who_leaves_meanwhile_is_not() -> None:
    rig = Rig(clock=TickingClock())
    peers = [Peer() for _ in range(2 * SLICE + 1)]
    for number, peer in enumerate(peers):
        beat(rig, peer, f"c{number:03}", consumer(subscription()))
    told = []
    for _ in range(4):
        rig.timers.run_due()
        told.append(sum(bool(peer.sent) for peer in peers))
        rig.state.clients.closed(peers[-1])  # type: ignore[arg-type]
    assert told == [SLICE, 2 * SLICE, 2 * SLICE, 2 * SLICE]
    assert peers[-1].sent == []


def test_the_list_of_members_is_made_once_for_all_who_ask(rig: Rig) -> None:
    first, second = Peer(), Peer()
    beat(rig, first, "c1", consumer(subscription()))
    group = rig.state.clients.consumer_group("readers")
    assert group is not None
    before = group.id_list()
    beat(rig, first, "c1", consumer(subscription()))  # again: nobody came
    assert group.id_list() is before
    beat(rig, second, "c2", consumer(subscription()))
    assert members(rig) == ["c1", "c2"]
    beat(rig, first, "c0", consumer(subscription()))  # under another name
    assert members(rig) == ["c0", "c2"]
    rig.state.clients.closed(second)  # type: ignore[arg-type]
    assert members(rig) == ["c0"]


TAGS = {
    "all": ("*", [], None),
    "empty": ("", [], None),
    "codes as sent": ("TagA", [2598919], {2598919}),
    "codes left out": ("TagA || TagB", [], {2598919, 2598920}),
    "all among tags": ("TagA || *", [], None),
    "negative": ("order-created", [-392709271], {-392709271}),
}


@pytest.mark.parametrize(("expression", "codes", "expected"), TAGS.values(), ids=TAGS)
def test_tags_become_codes(
    rig: Rig, expression: str, codes: list[int], expected: set[int] | None
) -> None:
    data = SubscriptionData(topic="T", expression=expression, tag_codes=codes)
    beat(rig, Peer(), "c1", consumer(data))
    found = rig.state.clients.subscription("readers", "T")
    assert found is not None
    assert found.tag_codes == expected
    assert found.expression_type == "TAG"


def test_broadcasting_groups_are_not_told(rig: Rig) -> None:
    first, second = Peer(), Peer()
    for peer, name in ((first, "c1"), (second, "c2")):
        beat(rig, peer, name, consumer(subscription(), message_model="BROADCASTING"))
    rig.state.clients.closed(second)  # type: ignore[arg-type]
    assert notices(rig, first) == []
    assert members(rig) == ["c1"]


def test_neither_are_groups_or_brokers_that_have_it_off() -> None:
    quiet = Rig(BrokerConfig(notify_consumer_changes=False))
    peer = Peer()
    beat(quiet, peer, "c1", consumer(subscription()))
    assert notices(quiet, peer) == []
    rig = Rig()
    rig.state.groups.put(SubscriptionGroupConfig(name="readers", notify_changes=False))
    beat(rig, peer, "c1", consumer(subscription()))
    assert notices(rig, peer) == []


def test_two_minutes_of_silence_end_a_client(rig: Rig) -> None:
    silent, alive = Peer(), Peer()
    beat(rig, silent, "c1", consumer(subscription()), producers=["writers"])
    beat(rig, alive, "c2", consumer(subscription()))
    for _ in range(4):
        rig.clock.advance(29)
        beat(rig, alive, "c2", consumer(subscription()))
    assert members(rig) == ["c1", "c2"]
    notices(rig, alive)
    rig.clock.advance(20)
    assert members(rig) == ["c2"]
    assert silent.is_closed
    assert not alive.is_closed
    assert notices(rig, alive) == ["readers"]
    assert rig.state.clients.producers == {}


def test_a_client_that_reconnects_is_listed_once(rig: Rig) -> None:
    old, new = Peer(), Peer()
    beat(rig, old, "c1", consumer(subscription()))
    beat(rig, new, "c1", consumer(subscription()))
    assert members(rig) == ["c1"]
    rig.state.clients.closed(old)  # type: ignore[arg-type]
    assert members(rig) == ["c1"]


def test_groups_that_may_not_be_are_left_out_and_the_rest_served() -> None:
    rig = Rig(BrokerConfig(auto_create_groups=False))
    rig.state.groups.put(SubscriptionGroupConfig(name="allowed"))
    answer = beat(
        rig, Peer(), "c1", consumer(subscription()), consumer(subscription(), group="allowed")
    )
    assert answer.code == ResponseCode.SUCCESS
    assert members(rig) is None
    assert members(rig, "allowed") == ["c1"]
    assert rig.state.topics.get("%RETRY%readers") is None


def test_the_second_form_of_heartbeats_leaves_subscriptions_out(rig: Rig) -> None:
    peer = Peer()
    bare = consumer()

    def changed(answer: Command) -> bool:
        return answer.ext["IS_SUB_CHANGE"] == "true"

    lost = beat(rig, peer, "c1", bare, fingerprint=7, without_subscriptions=True)
    assert changed(lost)  # we never heard of them: send all
    assert not changed(beat(rig, peer, "c1", consumer(subscription()), fingerprint=7))
    assert not changed(beat(rig, peer, "c1", bare, fingerprint=7, without_subscriptions=True))
    assert rig.state.clients.subscription("readers", "T") is not None
    assert changed(beat(rig, peer, "c1", bare, fingerprint=8, without_subscriptions=True))
    notices(rig, peer)
    rig.clock.advance(100)
    beat(rig, peer, "c1", bare, fingerprint=8, without_subscriptions=True)
    rig.clock.advance(100)
    assert members(rig) == ["c1"]


BAD_BODIES = {
    "empty": b"",
    "not JSON": b"hello",
    "no client": b"{}",
    "wrong kind": b'{"clientID":[1]}',
    "deep": b"[" * 100_000,
    "too many subscriptions": b'{"clientID":"c","consumerDataSet":[{"groupName":"g",'
    b'"subscriptionDataSet":[' + b",".join([b'{"topic":"T"}'] * 5000) + b"]}]}",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
@pytest.mark.parametrize(
    "code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG]
)
def test_bodies_that_cannot_be_read_are_answered_so(rig: Rig, code: int, body: bytes) -> None:
    answer = rig.call(code, body=body)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert rig.state.clients.consumers == {}


@pytest.mark.parametrize("is_on", [True, False])
def test_what_can_be_filtered_by(rig: Rig, is_on: bool) -> None:
    rig.configure(property_filters=is_on)
    off, bad = ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for kind, expression, code in (
        ("", "a > 1", 0),
        ("TAG", "a > 1", 0),
        ("SQL92", "a > 1", 0 if is_on else off),
        ("SQL92", "a >", bad if is_on else off),
        ("SQL92", "", bad if is_on else off),
        ("SQL93", "a > 1", bad if is_on else off),
    ):
        data = SubscriptionData(topic="T", expression=expression, expression_type=kind)
        body = fastjson.dumps(CheckClientRequest(client_id="c1", group="g", subscription=data))
        answer = rig.call(RequestCode.CHECK_CLIENT_CONFIG, body=body)
        assert answer is not None
        assert answer.code == code


def test_leases_are_answered_with_the_queues_held(rig: Rig) -> None:
    queues = [MessageQueue(broker_name="broker-a", queue_id=i, topic="T") for i in range(2)]

    def lock(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> list[MessageQueue]:
        body = fastjson.encode(LockRequest(client_id=client_id, group="g", queues=queues))
        answer = rig.call(code, body=body)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        return fastjson.decode(answer.body, LockReply).locked if answer.body else []

    assert lock("one") == queues
    assert lock("two") == []
    assert lock("one", RequestCode.UNLOCK_BATCH_MQ) == []
    assert lock("two") == queues


def test_connections_are_listed_with_what_they_read(rig: Rig) -> None:
    peer = Peer(("192.0.2.7", 4711))
    beat(rig, peer, "c1", consumer(subscription("T", "A")), producers=["writers"])
    answer = rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "readers"})
    assert answer is not None
    found = fastjson.decode(answer.body, ConsumerConnections)
    assert [msgspec.structs.astuple(item) for item in found.connections] == [
        ("192.0.2.7:4711", "c1", "JAVA", 479)
    ]
    assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert found.subscriptions["T"].expression == "A"
    answer = rig.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "writers"})
    assert answer is not None
    assert fastjson.decode(answer.body, ProducerConnections).connections == found.connections
    answer = rig.call(RequestCode.GET_ALL_PRODUCER_INFO)
    assert answer is not None
    assert fastjson.loads(answer.body) == {
        "data": {
            "writers": [
                {
                    "clientId": "c1",
                    "language": "JAVA",
                    "lastUpdateTimestamp": rig.clock.wall_ms(),
                    "remoteIP": "192.0.2.7:4711",
                    "version": 479,
                }
            ]
        }
    }
    answer = rig.call(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "readers", "topic": "T"}
    )
    assert answer is not None
    body = fastjson.loads(answer.body)
    assert isinstance(body, dict)
    assert body["subscriptionData"]["subString"] == "A"  # type: ignore[index, call-overload]


def test_who_is_not_there_is_said_with_rocketmqs_codes(rig: Rig) -> None:
    cases = [
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}, 206),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "g"}, 1),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"}, 1),
    ]
    for code, ext, expected in cases:
        answer = rig.call(code, ext)
        assert answer is not None
        assert answer.code == expected


class Consumer(Peer):
    """A client that answers requests when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Command, float, asyncio.Future[Command]]] = []

    def start_request(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.asked.append((command, timeout_s, future))
        return future


ANSWERS: dict[str, tuple[Command | Exception, int, bytes]] = {
    "answered": (
        reply(Command(307), 0, body=b'{"mqTable":{{"topic":"T"}:{}}}'),
        0,
        b'{"mqTable":{{"topic":"T"}:{}}}',
    ),
    "refused": (reply(Command(307), 1, remark="busy"), 1, b""),
    "late": (RequestTimeout("no answer in time"), ResponseCode.CONSUME_MSG_TIMEOUT, b""),
    "gone": (ConnectionLost("closed by the peer"), ResponseCode.SYSTEM_ERROR, b""),
}


@pytest.mark.parametrize(("answer", "code", "body"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_calls_are_relayed_and_answered_untouched(
    rig: Rig, answer: Command | Exception, code: int, body: bytes
) -> None:
    client, tool = Consumer(), Peer()
    beat(rig, client, "c1", consumer(subscription()))
    ext = {"consumerGroup": "readers", "clientId": "c1", "jstackEnable": "false"}
    assert rig.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext, peer=tool) is None
    [(asked, timeout_s, future)] = client.asked
    assert (asked.code, asked.ext, timeout_s) == (307, ext, 10.0)
    if isinstance(answer, Command):
        future.set_result(answer)
    else:
        future.set_exception(answer)
    await asyncio.sleep(0)
    [back] = tool.sent
    assert (back.code, back.body, back.is_response) == (code, body, True)


async def test_a_message_is_handed_to_one_consumer(rig: Rig) -> None:
    rig.topic("T")
    placed = rig.send("T")
    client, tool = Consumer(), Peer()
    beat(rig, client, "c1", consumer(subscription()))
    ext = {"consumerGroup": "readers", "clientId": "c1", "msgId": placed.ext["msgId"], "topic": "T"}
    assert rig.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, peer=tool) is None
    [(asked, _, future)] = client.asked
    assert asked.body == rig.state.store.record_at(0)
    assert asked.ext == ext | {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    future.set_result(reply(asked, 0, body=b'{"consumeResult":"CR_SUCCESS"}'))
    await asyncio.sleep(0)
    assert tool.sent[0].body == b'{"consumeResult":"CR_SUCCESS"}'
    bad = rig.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext | {"msgId": "zz"}, peer=tool)
    assert bad is not None
    assert bad.code == ResponseCode.INVALID_PARAMETER
