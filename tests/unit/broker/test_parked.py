"""Answers that wait for the disk: in order, in time, and never a success that is not one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest

from ariane.broker.parked import Parked
from ariane.clock import ManualClock, Timers
from ariane.codes import ResponseCode
from ariane.config import StoreConfig
from ariane.protocol.command import Command, reply
from ariane.protocol.message import BatchEntry, encode_batch
from ariane.store.watermarks import SYNC_FLUSH, Mark, Policy, Watermarks
from tests.unit.broker.rig import SMALL_STORE, Peer, Rig, pull_fields, send_fields

SYNC_STORE = msgspec.structs.replace(SMALL_STORE, flush_mode="SYNC_FLUSH")


class Disk:
    """A store of which only the watermark is real, and a client."""

    def __init__(self, **bounds: int) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.clock.timers.append(self.timers)
        self.on_advance: list[Callable[[], None]] = []
        self.marks = Watermarks(SYNC_FLUSH, 0)
        self.marks.round_ended(1 << 20)
        self.store = SimpleNamespace(
            marks=self.marks, read_only_reason=None, on_advance=self.on_advance
        )
        self.parked = Parked(self.store, self.timers, lambda: 5.0, **bounds)  # type: ignore[arg-type]
        self.peer = Peer()

    def park(self, after: int, *opaques: int) -> None:
        frames = b"".join(
            Command(0, opaque=opaque, flag=1, ext={"msgId": "M"}).encode() for opaque in opaques
        )
        self.parked.park(self.peer, frames, after)  # type: ignore[arg-type]

    def flush(self, end: int, reason: str | None = None) -> None:
        self.marks.move(Mark.FLUSHED, end)
        self.store.read_only_reason = reason
        for tell in self.on_advance:
            tell()

    def answers(self) -> list[tuple[int, int]]:
        return [(answer.opaque, answer.code) for answer in self.peer.sent]


def test_one_flush_answers_everything_it_covers() -> None:
    disk = Disk()
    disk.park(100, 1, 2)
    disk.park(200, 3)
    disk.park(300, 4)
    disk.flush(99)
    assert disk.answers() == []
    disk.flush(200)
    assert disk.answers() == [(1, 0), (2, 0), (3, 0)]
    assert len(disk.parked) == 1


def test_a_late_flush_is_told_as_late_with_where_the_message_is() -> None:
    disk = Disk()
    disk.park(100, 1)
    disk.clock.advance(3.0)
    disk.park(200, 2)
    disk.clock.advance(1.99)
    assert disk.answers() == []
    disk.clock.advance(0.2)
    assert disk.answers() == [(1, ResponseCode.FLUSH_DISK_TIMEOUT)]
    assert disk.peer.sent[0].ext == {"msgId": "M"}
    disk.flush(200)
    assert disk.answers()[1:] == [(2, 0)]
    disk.clock.advance(10.0)
    assert len(disk.answers()) == 2
    assert disk.timers.next_due_s() is None


def test_a_failed_flush_is_never_a_success() -> None:
    disk = Disk()
    disk.park(100, 1)
    disk.park(200, 2, 3)
    disk.flush(100, "fdatasync failed")
    unavailable = ResponseCode.SERVICE_NOT_AVAILABLE
    assert disk.answers() == [(1, 0), (2, unavailable), (3, unavailable)]
    assert disk.peer.sent[2].remark == "fdatasync failed"


def test_a_long_answer_can_be_told_late_too() -> None:
    disk = Disk()
    ids = ",".join(["7F00000100002A9F0000000000000000"] * 20_000)
    answer = reply(Command(320, opaque=9))
    answer.ext = {"msgId": ids}
    disk.parked.park(disk.peer, answer.encode(), 100)  # type: ignore[arg-type]
    disk.clock.advance(6.0)
    assert disk.answers() == [(9, ResponseCode.FLUSH_DISK_TIMEOUT)]


def test_who_waits_for_all_answers_is_called_when_the_last_has_left() -> None:
    disk = Disk()
    empty: list[int] = []
    disk.parked.when_empty(lambda: empty.append(0))
    assert empty == [0]
    disk.park(100, 1)
    disk.park(200, 2)
    disk.parked.when_empty(lambda: empty.append(len(disk.answers())))
    disk.flush(100)
    assert empty == [0]
    disk.flush(200)
    assert empty == [0, 2]
    disk.park(300, 3)
    disk.parked.when_empty(lambda: empty.append(len(disk.answers())))
    disk.clock.advance(10.0)  # told as late
    assert empty == [0, 2, 3]


def test_what_is_over_the_bound_is_told_as_late_at_once() -> None:
    frame = len(Command(0, opaque=1, flag=1, ext={"msgId": "M"}).encode())
    late = ResponseCode.FLUSH_DISK_TIMEOUT
    disk = Disk(connection_bytes_max=2 * frame, bytes_max=3 * frame)
    for opaque in (1, 2, 3):
        disk.park(100, opaque)
    assert disk.answers() == [(3, late)]
    assert disk.peer.sent[0].ext == {"msgId": "M"}
    first, disk.peer = disk.peer, Peer()
    disk.park(100, 4)
    disk.park(100, 5)
    assert disk.answers() == [(5, late)]
    disk.flush(100)
    assert disk.answers() == [(5, late), (4, 0)]
    assert [answer.opaque for answer in first.sent] == [3, 1, 2]
    disk.park(200, 6)  # there is room again
    assert len(disk.parked) == 1


def test_a_connection_that_closes_takes_its_answers_along() -> None:
    frame = len(Command(0, opaque=1, flag=1, ext={"msgId": "M"}).encode())
    disk = Disk(bytes_max=2 * frame)
    empty: list[int] = []
    gone = disk.peer
    disk.park(100, 1)
    disk.park(200, 2)
    disk.parked.when_empty(lambda: empty.append(0))
    gone.close()
    assert empty == [0]
    assert len(disk.parked) == 0
    disk.park(200, 9)  # too late for it
    disk.peer = Peer()
    disk.park(200, 3)
    disk.park(300, 4)
    disk.flush(200)
    assert disk.answers() == [(3, 0)]
    disk.clock.advance(10.0)
    assert disk.answers() == [(3, 0), (4, ResponseCode.FLUSH_DISK_TIMEOUT)]
    assert gone.sent == []


@pytest.mark.parametrize(
    ("safe", "reached", "code"),
    [
        ((Mark.REPLICATED, Mark.FLUSHED), Mark.REPLICATED, ResponseCode.FLUSH_DISK_TIMEOUT),
        ((Mark.REPLICATED, Mark.FLUSHED), Mark.FLUSHED, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        ((Mark.REPLICATED, Mark.FLUSHED), None, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        ((Mark.COMMITTED,), Mark.FLUSHED, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_lateness_is_told_by_what_is_late(
    safe: tuple[Mark, ...], reached: Mark | None, code: ResponseCode
) -> None:
    disk = Disk()
    disk.marks.policy = Policy(Mark.STORED, shown=safe, safe=safe)
    disk.parked = Parked(disk.store, disk.timers, lambda: 5.0)  # type: ignore[arg-type]
    disk.park(100, 1)
    if reached is not None:
        disk.marks.move(reached, 100)
    disk.clock.advance(6.0)
    assert disk.answers() == [(1, code)]


# The same through the broker.


@pytest.mark.parametrize(
    ("mode", "properties", "syncs"),
    [
        ("SYNC_FLUSH", "UNIQ_KEY\x01U\x02", 1),
        ("SYNC_FLUSH", "UNIQ_KEY\x01U\x02WAIT\x01true\x02", 1),
        ("ASYNC_FLUSH", "UNIQ_KEY\x01U\x02", 0),
    ],
)
def test_the_disk_has_what_sync_flush_acknowledges(mode: str, properties: str, syncs: int) -> None:
    rig = Rig(store_config=msgspec.structs.replace(SMALL_STORE, flush_mode=mode))
    rig.topic("T")
    assert rig.send(properties=properties).code == ResponseCode.SUCCESS
    store = rig.state.store
    assert (store.flushed == store.written) is bool(syncs)


def rig_with_a_dead_disk(store_config: StoreConfig) -> Rig:
    rig = Rig(store_config=store_config)
    rig.topic("T")
    rig.state.groups.for_consumer("readers")
    rig.send(body=b"safe")
    rig.disk.plant("sync", OSError(5, "input/output error"))
    return rig


def test_a_disk_that_fails_is_said_to_whoever_waits_and_whoever_comes() -> None:
    rig = rig_with_a_dead_disk(SYNC_STORE)
    answer = rig.call(310, send_fields(), b"lost")
    answers = [answer] if answer is not None else rig.peer.sent
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert rig.send(body=b"more").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [message.stored_body for message in rig.stored()] == [b"safe"]


def test_who_does_not_wait_is_answered_at_once_but_nobody_reads_it_before_the_disk_has_it() -> None:
    rig = rig_with_a_dead_disk(SYNC_STORE)
    assert rig.pull(offset=1, sysFlag=6) is None
    answer = rig.send(properties="UNIQ_KEY\x01U\x02WAIT\x01false\x02")
    assert answer.code == ResponseCode.SUCCESS
    rig.clock.advance(0)
    assert rig.peer.sent == []
    assert [message.stored_body for message in rig.stored()] == [b"safe"]


def test_a_batch_waits_as_its_header_says() -> None:
    body = encode_batch([BatchEntry(body=b"x", properties="WAIT\x01false\x02")])
    rig = rig_with_a_dead_disk(SYNC_STORE)
    answer = rig.call(320, send_fields(is_batch=True, properties="WAIT\x01true\x02"), body)
    answers = [answer] if answer is not None else rig.peer.sent
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE]


def test_a_held_pull_sees_a_message_when_it_is_safe() -> None:
    rig = Rig(store_config=SYNC_STORE)
    rig.topic("T")
    assert rig.call(11, pull_fields("T", 0, 0, sysFlag=6)) is None
    rig.send(body=b"new")
    rig.clock.advance(0)
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.SUCCESS]
