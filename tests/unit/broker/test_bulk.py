"""Bulk reads and read leases: the answers, every refusal, and what a slow reader costs."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from ariane.broker.bulk_reads import WAITING_MAX
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol.command import Command
from ariane.protocol.message import decode_records
from ariane.store.leases import LEASE_COUNT_MAX, LEASE_S_MAX

from .rig import Peer, Rig


def fields(first: int = 0, end: int = 100, **more: Any) -> dict[str, Any]:
    """The header of BULK_READ."""
    return {
        "topic": "T", "queueId": 0, "offset": first, "endOffset": end, "maxBytes": 1 << 20
    } | more  # fmt: skip


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.topic("T", queues=2)
    for i in range(30):
        made.send(body=b"%d" % i * 10, properties=f"TAGS\x01t{i % 3}\x02")
    return made


def read(rig: Rig, peer: Peer | None = None, **more: Any) -> Command:
    """The answer, which a broker without threads gives before the call returns."""
    peer = peer or Peer()
    before = len(peer.sent)
    answer = rig.call(RequestCode.BULK_READ, fields(**more), peer=peer)
    if answer is not None:
        return answer
    (sent,) = peer.sent[before:]
    return sent


def offsets(answer: Command) -> list[int]:
    return [message.queue_offset for message in decode_records(answer.body)]


def test_whole_records_and_the_bounds(rig: Rig) -> None:
    answer = read(rig, first=3, end=20)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext == {"nextOffset": "20", "minOffset": "0", "maxOffset": "30"}
    assert decode_records(answer.body) == rig.stored()[3:20]
    assert offsets(read(rig, first=25, end=1000)) == list(range(25, 30))


def test_it_ends_where_the_bytes_do_but_brings_one_record_at_least(rig: Rig) -> None:
    size = rig.stored()[0].size
    answer = read(rig, maxBytes=3 * size + 5)
    assert offsets(answer) == [0, 1, 2]
    assert answer.ext["nextOffset"] == "3"
    assert offsets(read(rig, maxBytes=1, first=7)) == [7]
    assert offsets(read(rig, maxBytes=-5, first=7)) == [7]


def test_tags_are_let_through_by_their_codes(rig: Rig) -> None:
    answer = read(rig, subscription="t1 || t2", end=11)
    assert offsets(answer) == [1, 2, 4, 5, 7, 8, 10]
    assert answer.ext["nextOffset"] == "11"
    nothing = read(rig, subscription="none")
    assert (nothing.code, nothing.body, nothing.ext["nextOffset"]) == (0, b"", "30")


@pytest.mark.parametrize(
    ("first", "queue_id", "bounds"), [(30, 0, (0, 30)), (31, 0, (0, 30)), (0, 1, (0, 0))]
)
def test_where_no_message_is_the_bounds_say_so(
    rig: Rig, first: int, queue_id: int, bounds: tuple[int, int]
) -> None:
    answer = read(rig, first=first, queueId=queue_id)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert (int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])) == bounds


REFUSALS = {
    "no such topic": ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST, "'U' does not exist"),
    "no such queue": ({"queueId": 2}, ResponseCode.INVALID_PARAMETER, "has 2 queues"),
    "a negative queue": ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "has 2 queues"),
    "nothing asked for": ({"first": 5, "end": 5}, ResponseCode.INVALID_PARAMETER, "at least one"),
    "a negative offset": ({"first": -1}, ResponseCode.INVALID_PARAMETER, "from 0 on"),
    "no offset": ({"offset": "x"}, ResponseCode.SYSTEM_ERROR, "offset"),
    "too many tags": (
        {"subscription": "||".join(f"t{i}" for i in range(2000))},
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "1 to 1024",
    ),
}


@pytest.mark.parametrize(("more", "code", "words"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(rig: Rig, more: dict[str, Any], code: int, words: str) -> None:
    answer = read(rig, **more)
    assert answer.code == code
    assert words in (answer.remark or "")


def test_what_may_not_be_read_is_not(rig: Rig) -> None:
    rig.topic("T", queues=2, permission=2)
    assert read(rig).code == ResponseCode.NO_PERMISSION
    rig.topic("T", queues=2)
    rig.configure(permission=2)
    assert read(rig).code == ResponseCode.NO_PERMISSION


def test_dead_letters_are_write_only_and_read_all_the_same(rig: Rig) -> None:
    rig.topic("%DLQ%g", queues=1, permission=2)
    rig.send("%DLQ%g", body=b"given up")
    (letter,) = decode_records(read(rig, topic="%DLQ%g").body)
    assert letter.body == b"given up"


def test_a_reader_that_takes_nothing_waits_and_costs_nothing_more(rig: Rig) -> None:
    slow, other = Peer(), Peer()
    slow.is_congested = True
    for _ in range(WAITING_MAX):
        assert rig.call(RequestCode.BULK_READ, fields(), peer=slow) is None
    refused = rig.call(RequestCode.BULK_READ, fields(), peer=slow)
    assert refused is not None and refused.code == ResponseCode.SYSTEM_BUSY
    assert slow.sent == []
    assert offsets(read(rig, other)) == list(range(30))  # nobody waits for it
    slow.drain()
    assert [offsets(answer) for answer in slow.sent] == [list(range(30))] * WAITING_MAX
    slow.is_congested = True
    assert rig.call(RequestCode.BULK_READ, fields(), peer=slow) is None
    slow.close()
    slow.drain()
    assert len(slow.sent) == WAITING_MAX


def lease(rig: Rig, log_offset: int, seconds: int = 60, name: str = "me") -> Command:
    ext = {"leaseId": name, "logOffset": log_offset, "seconds": seconds}
    answer = rig.call(RequestCode.READ_LEASE, ext)
    assert answer is not None
    return answer


def test_a_lease_tells_what_proves_that_both_see_the_same_log(rig: Rig) -> None:
    message = rig.stored()[4]
    record = rig.state.store.record_at(message.log_offset)
    assert record is not None
    answer = lease(rig, message.log_offset, 10_000)
    assert answer.ext == {
        "seconds": str(int(LEASE_S_MAX)),
        "storePath": rig.state.store_config.root,
        "minLogOffset": "0",
        "recordCrc": str(zlib.crc32(record)),
    }
    assert lease(rig, message.log_offset + 1).ext["recordCrc"] == "-1"


def test_leases_end_when_told_or_forgotten_and_have_a_limit(rig: Rig) -> None:
    leases, clock = rig.state.store.leases, rig.clock
    lease(rig, 500, name="a")
    lease(rig, 300, 600, name="b")
    assert leases.floor(clock.monotonic_s()) == 300
    lease(rig, 900, 600, name="b")  # renewed further on
    assert leases.floor(clock.monotonic_s()) == 500
    clock.advance(61)
    assert leases.floor(clock.monotonic_s()) == 900
    assert lease(rig, 0, 0, name="b").ext["seconds"] == "0"
    assert leases.floor(clock.monotonic_s()) is None
    for i in range(LEASE_COUNT_MAX):
        assert lease(rig, 0, name=f"n{i}").code == ResponseCode.SUCCESS
    assert lease(rig, 0, name="one more").code == ResponseCode.SYSTEM_BUSY
    assert lease(rig, 0, name="n7").code == ResponseCode.SUCCESS
    assert lease(rig, 0, name="").code == ResponseCode.INVALID_PARAMETER
    assert lease(rig, 0, name="x" * 65).code == ResponseCode.INVALID_PARAMETER
