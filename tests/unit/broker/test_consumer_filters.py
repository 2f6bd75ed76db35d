"""Filters by expression: registered by heartbeats, kept, lost and found; and pulls through them."""

from __future__ import annotations

from typing import Any

import pytest

from ariane.broker import consumer_filters
from ariane.broker.clients import Client
from ariane.broker.consumer_filters import FILTERS_PATH
from ariane.broker.filters.bloom import bit_positions
from ariane.codes import PullFlag, RequestCode, ResponseCode
from ariane.errors import CorruptFile
from ariane.protocol.bodies import ConsumerData, SubscriptionData
from ariane.protocol.command import Command
from ariane.protocol.message import decode_records
from tests.unit.broker.rig import Rig, pull_fields

FOUND, NONE, NOT_FOUND = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_NOT_FOUND,
)
GOLDEN = """{
	"filterDataByTopic":{
		"T":{
			"groupFilterData":{
				"g":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[90,68,28]
					},
					"bornTime":%d,
					"clientVersion":400,
					"consumerGroup":"g",
					"dead":false,
					"deadTime":0,
					"expression":"a = 99",
					"expressionType":"SQL92",
					"topic":"T"
				}
			},
			"topic":"T"
		}
	}
}"""  # as a broker of Apache's 5.5.0 wrote it


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("T", queues=1)
    return rig


def send(rig: Rig, *values: object) -> None:
    for value in values:
        rig.send(properties=f"UNIQ_KEY\x01K\x02a\x01{value}\x02", body=str(value).encode())


def subscribe(rig: Rig, expression: str, version: int = 1, **fields: Any) -> None:
    rig.subscribe("g", "T", expression, expression_type="SQL92", version=version, **fields)


def pull(rig: Rig, offset: int = 0, **fields: Any) -> tuple[int, list[bytes], int]:
    """The code, the bodies, and where to go on."""
    wanted = {"consumerGroup": "g", "sysFlag": 0, "expressionType": "SQL92"} | fields
    answer = rig.call(RequestCode.PULL_MESSAGE, pull_fields("T", 0, offset, **wanted))
    assert answer is not None
    bodies = [message.body for message in decode_records(answer.body)]
    return answer.code, bodies, int(answer.ext.get("nextBeginOffset", -1))


def saved(rig: Rig) -> str:
    rig.state.filters.save()
    return rig.disk.read(FILTERS_PATH).decode()


# Pulls.


def test_a_pull_gets_what_matches_and_goes_on_behind_what_was_looked_at(rig: Rig) -> None:
    send(rig, 1, 7, 2, 8, 3)
    subscribe(rig, "a > 5")
    assert pull(rig) == (FOUND, [b"7", b"8"], 5)
    assert pull(rig, maxMsgNums=1) == (FOUND, [b"7"], 3)
    assert pull(rig, 4) == (NONE, [], 5)
    assert pull(rig, 5) == (NOT_FOUND, [], 5)


def test_a_pull_may_bring_its_own_expression(rig: Rig) -> None:
    send(rig, 1, 7)
    for _ in range(2):
        own = {"sysFlag": PullFlag.SUBSCRIPTION, "subscription": "a < 5"}
        assert pull(rig, **own) == (FOUND, [b"1"], 2)
    for wrong in ({"subscription": "a <"}, {"subscription": ""}, {"expressionType": "SQL"}):
        code, _, _ = pull(rig, **(own | wrong))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_many_own_expressions_do_not_pile_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filters, "REQUEST_FILTER_COUNT_MAX", 3)
    send(rig, 1)
    for number in (*range(10), 9, 0):
        own = {"sysFlag": PullFlag.SUBSCRIPTION, "subscription": f"a = {number}"}
        assert pull(rig, **own)[0] == (FOUND if number == 1 else NONE)
    assert len(rig.state.filters._requested) == 3


def test_a_long_run_of_others_is_crossed_piece_by_piece(rig: Rig) -> None:
    send(rig, *([1] * 1000), 7)
    subscribe(rig, "a > 5")
    assert pull(rig) == (NONE, [], 800)
    assert pull(rig, 800) == (FOUND, [b"7"], 1001)


def test_a_costly_expression_gets_shorter_pieces(rig: Rig) -> None:
    for _ in range(20):
        rig.send(properties="a\x01" + "x" * 10_000 + "\x02")
    subscribe(rig, " OR ".join(f"a CONTAINS 'y{number}'" for number in range(100)))
    code, _, next_offset = pull(rig)
    assert code == NONE
    assert 0 < next_offset < 20


def test_the_lane_stays_out(rig: Rig) -> None:
    send(rig, 1, 7)
    subscribe(rig, "a > 5")
    pull(rig)
    assert not rig.state.lane._lane.grants
    rig.subscribe("g", "T", "*", version=2)
    pull(rig, expressionType="TAG", subVersion=2)
    assert rig.state.lane._lane.grants


def test_retries_are_not_filtered(rig: Rig) -> None:
    rig.topic("%RETRY%g", queues=1)
    rig.send("%RETRY%g", properties="a\x011\x02")
    heartbeat(rig, "g", by_expression("T", "a > 5"), SubscriptionData(topic="%RETRY%g"))
    answer = rig.call(
        RequestCode.PULL_MESSAGE, pull_fields("%RETRY%g", 0, 0, consumerGroup="g", sysFlag=0)
    )
    assert answer is not None
    assert answer.code == FOUND


# Long polling.


def answers(rig: Rig) -> list[Command]:
    """What came late; members are told of each other too."""
    return [command for command in rig.peer.sent if command.is_response]


def test_a_held_pull_is_not_woken_by_what_does_not_match(rig: Rig) -> None:
    subscribe(rig, "a > 5")
    held = pull_fields("T", 0, 0, consumerGroup="g", sysFlag=PullFlag.SUSPEND)
    assert rig.call(RequestCode.PULL_MESSAGE, held) is None
    send(rig, 1, 2, 3)
    rig.clock.advance(1)
    assert answers(rig) == []
    send(rig, 7)
    rig.clock.advance(0)
    (answer,) = answers(rig)
    assert [message.body for message in decode_records(answer.body)] == [b"7"]
    assert answer.ext["nextBeginOffset"] == "4"


def test_a_held_pull_that_nothing_matched_goes_on_behind_it(rig: Rig) -> None:
    subscribe(rig, "a > 5")
    held = pull_fields("T", 0, 0, consumerGroup="g", sysFlag=PullFlag.SUSPEND)
    assert rig.call(RequestCode.PULL_MESSAGE, held) is None
    send(rig, *([1] * 900))  # more than one look takes in
    rig.clock.advance(16)
    (answer,) = answers(rig)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (NOT_FOUND, "900")


def test_a_held_pull_with_an_expression_of_its_own(rig: Rig) -> None:
    flags = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
    fields = pull_fields(
        "T", 0, 0, sysFlag=int(flags), expressionType="SQL92", subscription="a = 'x'"
    )
    assert rig.call(RequestCode.PULL_MESSAGE, fields) is None
    send(rig, "y")
    rig.clock.advance(0)
    assert answers(rig) == []
    send(rig, "x")
    rig.clock.advance(0)
    assert [answer.code for answer in answers(rig)] == [FOUND]


# Registration.


def heartbeat(rig: Rig, group: str, *subscriptions: SubscriptionData) -> None:
    rig.state.groups.for_consumer(group)
    client = Client(rig.peer, "client@1", "JAVA", 479)  # type: ignore[arg-type]
    consumer = ConsumerData(group=group, subscriptions=list(subscriptions))
    rig.state.clients.join(client, consumer)


def by_expression(topic: str, expression: str) -> SubscriptionData:
    return SubscriptionData(topic=topic, expression=expression, expression_type="SQL92", version=1)


def test_a_wrong_expression_is_told_by_the_pull(rig: Rig) -> None:
    send(rig, 7)
    subscribe(rig, "a >", version=1)
    answer = rig.call(
        RequestCode.PULL_MESSAGE, pull_fields("T", 0, 0, consumerGroup="g", sysFlag=0)
    )
    assert answer is not None
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "a property or a value is expected" in (answer.remark or "")
    assert (consumer_filter := rig.state.filters.get("T", "g"))
    assert "a property" in consumer_filter.fault
    assert pull(rig)[0] == ResponseCode.FILTER_DATA_NOT_EXIST
    subscribe(rig, "a > 5", version=2)
    assert pull(rig)[0] == FOUND


def test_a_wrong_expression_takes_the_place_of_a_right_one(rig: Rig) -> None:
    send(rig, 7)
    subscribe(rig, "a > 5", version=1)
    assert pull(rig)[0] == FOUND
    subscribe(rig, "a >", version=2)
    assert pull(rig, subVersion=2)[0] == ResponseCode.FILTER_DATA_NOT_EXIST


@pytest.mark.parametrize(("expression", "kind"), [("", "SQL92"), ("a > 5", "SQL93")])
def test_what_cannot_be_a_filter(rig: Rig, expression: str, kind: str) -> None:
    send(rig, 7)
    rig.subscribe("g", "T", expression, expression_type=kind)
    assert pull(rig)[0] == ResponseCode.FILTER_DATA_NOT_EXIST


def test_the_newest_expression_counts(rig: Rig) -> None:
    send(rig, 1, 2, 3)
    subscribe(rig, "a = 1", version=10)
    assert pull(rig, subVersion=11)[0] == ResponseCode.SUBSCRIPTION_NOT_LATEST
    subscribe(rig, "a = 2", version=9)  # another member, behind the times
    assert pull(rig)[1] == [b"1"]
    subscribe(rig, "a = 3", version=11)
    assert pull(rig, subVersion=10)[1] == [b"3"]


def test_a_filter_older_than_the_subscription(rig: Rig) -> None:
    send(rig, 1)
    subscribe(rig, "a = 1", version=10)
    found = rig.state.filters.get("T", "g")
    assert found is not None
    found.version = 9
    assert pull(rig, subVersion=10)[0] == ResponseCode.FILTER_DATA_NOT_LATEST


def test_from_expression_to_tags_and_back(rig: Rig) -> None:
    send(rig, 1, 7)
    subscribe(rig, "a > 5", version=1)
    rig.subscribe("g", "T", "*", version=2)
    assert pull(rig)[1] == [b"1", b"7"]
    subscribe(rig, "a < 5", version=3)
    assert pull(rig)[1] == [b"1"]


def test_the_last_to_leave_takes_the_filter_out_of_use(rig: Rig) -> None:
    subscribe(rig, "a > 5")
    found = rig.state.filters.get("T", "g")
    assert found is not None
    assert not found.is_dead
    rig.state.clients.leave(rig.peer, consumer_group="g", producer_group=None)  # type: ignore[arg-type]
    assert found.is_dead
    assert pull(rig)[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST
    subscribe(rig, "a > 5")
    assert rig.state.filters.get("T", "g") is found
    assert not found.is_dead


def test_a_topic_no_longer_subscribed_to(rig: Rig) -> None:
    heartbeat(rig, "g", by_expression("T", "a > 5"), by_expression("U", "b > 5"))
    heartbeat(rig, "h", by_expression("T", "c > 5"))
    heartbeat(rig, "g", by_expression("U", "b > 5"))
    assert {(found.topic, found.group): found.is_dead for found in rig.state.filters} == {
        ("T", "g"): True,
        ("U", "g"): False,
        ("T", "h"): False,
    }


def test_a_dead_filter_gives_way_to_an_older_version(rig: Rig) -> None:
    send(rig, 1, 2)
    subscribe(rig, "a = 1", version=10)
    rig.state.clients.leave(rig.peer, consumer_group="g", producer_group=None)  # type: ignore[arg-type]
    subscribe(rig, "a = 2", version=5)  # its clock was set back
    assert pull(rig, subVersion=5)[1] == [b"2"]


def test_deleted_topics_and_groups_take_their_filters_along(rig: Rig) -> None:
    subscribe(rig, "a > 5")
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert list(rig.state.filters) == []
    rig.topic("T", queues=1)
    subscribe(rig, "a > 5", version=2)
    rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert list(rig.state.filters) == []


# What is kept.


def test_the_file_is_apaches(rig: Rig) -> None:
    born_ms = rig.clock.wall_ms()
    subscribe(rig, "a = 99", version=400)
    assert pull(rig)[0] == NOT_FOUND
    assert saved(rig) == GOLDEN % born_ms


def test_a_wrong_filter_is_said_at_once_and_not_kept(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):  # as heartbeats do
        subscribe(rig, "a >")
    assert [record.getMessage() for record in caplog.records if "refused" in record.msg] == [
        "filter refused group=g topic=T reason=a property or a value is expected,"
        " but found the end of the expression"
    ]
    assert saved(rig) == '{\n\t"filterDataByTopic":{}\n}'


def test_one_heartbeat_has_only_so_much_compiled(rig: Rig) -> None:
    long = " AND ".join(f"property{number} > 5" for number in range(100))
    heartbeat(rig, "g", *(by_expression(f"T{number}", long) for number in range(4)))
    compiled = [bool(found.program) for found in rig.state.filters]
    assert compiled == [True, True, False, False]


def test_a_restart_finds_filters_dead_until_their_consumers_come(rig: Rig) -> None:
    send(rig, 1, 7)
    subscribe(rig, "a > 5", version=10)
    assert pull(rig)[0] == FOUND
    rig.state.filters.save_now()
    rig.state.store.stop()
    again = Rig(disk=rig.disk)
    again.topic("T", queues=1)
    again.state.filters.load(rig.disk)
    found = again.state.filters.get("T", "g")
    assert found is not None
    assert (found.expression, found.version, found.is_dead) == ("a > 5", 10, True)
    subscribe(again, "a > 5", version=10)
    assert pull(again)[1] == [b"7"]
    assert not found.is_dead


def test_some_time_after_its_death_a_filter_is_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_filters, "DEAD_MS_MAX", 60_000)
    subscribe(rig, "a > 5")
    assert pull(rig)[0] == NOT_FOUND
    rig.state.clients.leave(rig.peer, consumer_group="g", producer_group=None)  # type: ignore[arg-type]
    rig.clock.advance(59)
    assert '"dead":true' in saved(rig)
    rig.clock.advance(1)
    assert saved(rig) == '{\n\t"filterDataByTopic":{}\n}'


def test_nothing_is_written_while_nothing_changes(rig: Rig) -> None:
    subscribe(rig, "a > 5")
    pull(rig)
    saved(rig)
    rig.disk.remove(FILTERS_PATH)
    subscribe(rig, "a > 5")
    pull(rig)
    rig.state.filters.save()
    assert not rig.disk.exists(FILTERS_PATH)


def test_a_file_that_cannot_be_read(rig: Rig) -> None:
    rig.state.filters.file.saver.write(FILTERS_PATH, b'{"filterDataByTopic":{"T":[]}}')
    with pytest.raises(CorruptFile):
        rig.state.filters.load(rig.disk)


def test_filters_are_bounded_and_the_dead_make_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_filters, "FILTER_COUNT_MAX", 3)
    filters = rig.state.filters

    def register(group: str, expression: str = "a > 5") -> None:
        filters.register(group, [by_expression("T", expression)])

    for group in ("g1", "g2", "g3", "g4"):
        register(group)
    assert [found.group for found in filters] == ["g1", "g2", "g3"]
    filters.register("g2", [])
    filters.register("g1", [])
    register("g5")
    assert [found.group for found in filters] == ["g1", "g3", "g5"]
    monkeypatch.setattr(consumer_filters, "EXPRESSION_BYTES_MAX", 20)
    register("g6", "a > 55555")
    assert [found.group for found in filters] == ["g3", "g5", "g6"]
    register("g7", "a > 5")
    assert [found.group for found in filters] == ["g3", "g5", "g6"]


BITS = {
    ("T", "g"): (90, 68, 28),
    ("orders", "a_consumer_group"): (71, 4, 49),
    ("T12345", "groupname"): (34, 82, 87),
    ("é", "%RETRY%x"): (85, 2, 0),
    ("TopicTest_very_long_name_0123456789", "CID_very_long_group_name_for_hashing"): (38, 111, 39),
}


@pytest.mark.parametrize(("names", "bits"), BITS.items(), ids=lambda names: str(names)[:20])
def test_bits_are_those_apache_computes(names: tuple[str, str], bits: tuple[int, ...]) -> None:
    assert bit_positions(*names) == bits


def test_a_closed_connection_takes_its_filters_out_of_use(rig: Rig) -> None:
    subscribe(rig, "a > 5")
    rig.state.clients.closed(rig.peer)  # type: ignore[arg-type]
    assert [found.is_dead for found in rig.state.filters] == [True]
