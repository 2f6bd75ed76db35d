"""Look-ups: by key, by id, by time, and the ends of a queue."""

from __future__ import annotations

from typing import Any

import pytest

from ariane.codes import RequestCode, ResponseCode
from ariane.protocol.command import Command
from ariane.protocol.message import decode_offset_id, decode_records
from tests.unit.broker.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Ten messages one second apart, keys k0 to k4 twice each."""
    rig = Rig()
    rig.topic("T")
    for n in range(10):
        rig.send(body=b"%d" % n, properties=f"KEYS\x01k{n % 5} all\x02UNIQ_KEY\x01U{n}\x02")
        rig.clock.advance(1.0)
    return rig


def ask(rig: Rig, code: int, **fields: Any) -> Command:
    answer = rig.call(code, fields)
    assert answer is not None
    return answer


def by_key(rig: Rig, key: str, **fields: Any) -> Command:
    header = {"topic": "T", "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    return ask(rig, RequestCode.QUERY_MESSAGE, **header | fields)


def bodies(answer: Command) -> set[bytes]:
    return {message.stored_body for message in decode_records(answer.body)}


def test_messages_by_key(rig: Rig) -> None:
    answer = by_key(rig, "k3")
    assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, {b"3", b"8"})
    assert set(answer.ext) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert len(bodies(by_key(rig, "all"))) == 10


def test_messages_by_unique_key(rig: Rig) -> None:
    answer = by_key(rig, "U7", _UNIQUE_KEY_QUERY="true", maxNum=1, indexType="U")
    assert bodies(answer) == {b"7"}


def test_a_unique_key_query_returns_more_than_it_asks_for(rig: Rig) -> None:
    assert len(bodies(by_key(rig, "all", maxNum=2))) == 2
    assert len(bodies(by_key(rig, "all", maxNum=2, _UNIQUE_KEY_QUERY="true"))) == 10


def test_within_a_range_of_time(rig: Rig) -> None:
    start_ms = 1_700_000_000_000
    answer = by_key(rig, "all", beginTimestamp=start_ms + 2000, endTimestamp=start_ms + 4000)
    assert bodies(answer) == {b"2", b"3", b"4"}


def test_no_such_key(rig: Rig) -> None:
    answer = by_key(rig, "nobody")
    assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert answer.remark == "can not find message, maybe time range not correct"
    assert set(answer.ext) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


def test_a_message_by_the_id_its_sender_was_given(rig: Rig) -> None:
    message_id = rig.send(body=b"found").ext["msgId"]
    host, log_offset = decode_offset_id(message_id)
    assert host == ("127.0.0.1", 10911)
    answer = ask(rig, RequestCode.VIEW_MESSAGE_BY_ID, offset=log_offset)
    assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, {b"found"})


@pytest.mark.parametrize("log_offset", [-1, 1, 1 << 40, -(1 << 62)])
def test_no_message_at_that_offset(rig: Rig, log_offset: int) -> None:
    answer = ask(rig, RequestCode.VIEW_MESSAGE_BY_ID, offset=log_offset)
    assert (answer.code, str(log_offset) in (answer.remark or "")) == (1, True)


TIMES = {
    "exactly": (3000, "LOWER", 3),
    "between": (3001, "lower", 4),
    "before all": (-9_000_000, "LOWER", 0),
    "after all": (9_000_000, None, 10),
    "exactly, upper": (3000, "UPPER", 3),
    "between, upper": (3001, "upper", 3),
    "before all, upper": (-9_000_000, "UPPER", 0),
    "after all, upper": (9_000_000, "UPPER", 9),
}


@pytest.mark.parametrize(("after_ms", "boundary", "offset"), TIMES.values(), ids=TIMES)
def test_an_offset_by_time(rig: Rig, after_ms: int, boundary: str | None, offset: int) -> None:
    fields: dict[str, Any] = {"boundaryType": boundary} if boundary else {}
    answer = ask(
        rig,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        topic="T",
        queueId=0,
        timestamp=1_700_000_000_000 + after_ms,
        **fields,
    )
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": str(offset)})


def test_the_ends_of_a_queue(rig: Rig) -> None:
    for queue_id, first, end in ((0, "0", "10"), (1, "0", "0"), (77, "0", "0")):
        queue = {"topic": "T", "queueId": queue_id}
        assert ask(rig, RequestCode.GET_MIN_OFFSET, **queue).ext == {"offset": first}
        assert ask(rig, RequestCode.GET_MAX_OFFSET, **queue, committed="true").ext == {
            "offset": end
        }


def test_the_oldest_message_s_time(rig: Rig) -> None:
    for queue_id, stored_ms in ((0, "1700000000000"), (1, "-1")):
        answer = ask(rig, RequestCode.GET_EARLIEST_MSG_STORETIME, topic="T", queueId=queue_id)
        assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"timestamp": stored_ms})


def test_looking_makes_nothing(rig: Rig) -> None:
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        ask(rig, code, topic="../nowhere", queueId=2**31 - 1)
    ask(rig, RequestCode.GET_EARLIEST_MSG_STORETIME, topic="nowhere", queueId=0)
    assert rig.disk.directories("consumequeue") == ["T"]
