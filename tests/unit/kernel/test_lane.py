"""Whose is what during a read: answers go to the peer that asked; a reader that fails is gone."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ariane.clock import ManualClock
from ariane.disk import Disk, RealDisk, SimulatedDisk
from ariane.errors import FrameError, ProtocolError
from ariane.kernel.lane import Lane, TopicSlot
from ariane.kernel.queue import Queue
from ariane.kernel.session import Session
from ariane.kernel.waiting import Shelf, Waiting
from ariane.protocol.command import Command, CommandDecoder, command_of
from tests.unit.store.shelf import bodies, config_with, open_store

MANY = 1 << 28
CONFIG = config_with(disk_stop_ratio=1.0, force_clean_enabled=False)


class Rig:
    """A lane to topics T and N of a small store, and peers that send to it."""

    def __init__(self, disk: Disk | None = None, *, held_bytes_max: int = MANY) -> None:
        self.store = open_store(disk or SimulatedDisk(), ManualClock(), CONFIG)
        self.make_room: Callable[[Queue, int], bool] = self.store.make_room
        self.after: list[Callable[[], None]] = []
        waiting = Waiting(Shelf(b"S", 18, None), Shelf(b"W", 1, None), lambda _: 0)
        waiting.configure(
            suffix=b"",
            broker_name=b"b",
            is_timer_on=False,
            delay_ms_max=1,
            precision_ms=1000,
            slot_messages_max=1,
        )
        self.lane = Lane(
            self.store.log,
            waiting,
            decode=command_of,
            begin=lambda: 1000,
            make_room=lambda queue, count: self.make_room(queue, count),  # noqa: PLW0108 - as it is then
            on_placed=self.placed,
            on_timed=lambda: None,
            on_arrivals=lambda _: None,
            park=lambda peer, answers, offset: peer.parked.append((answers, offset)),
            hold=None,
            host=b"\x7f\0\0\1\0\0\x2a\x9f",
            parks=False,
            shows_at_once=True,
            frame_bytes_max=1 << 24,
            header_bytes_max=1 << 16,
            held_bytes_max=held_bytes_max,
        )
        self.lane.configure(
            suffix=b"",
            region=b"R",
            trace_on=True,
            message_bytes_max=1 << 22,
            bytes_max=1 << 20,
            **self.store.read_limits,
        )
        self.placed_count = 0
        self.lane.index = self.store.index
        for topic in ("T", "N"):
            slot = TopicSlot(topic.encode(), 4)
            self.lane.open_topic(slot)
            slot.open_queue(0, self.store.queue(topic, 0))

    def placed(self) -> None:
        self.placed_count += 1
        self.store.advance()


class Peer:
    """One connection: what it was sent, and why it was closed."""

    def __init__(self, rig: Rig, *, in_rounds: bool = False) -> None:
        self.is_closed = self.is_congested = False
        self.sent: list[bytes] = []
        self.parked: list[tuple[bytes, int]] = []
        self.soon = 0
        self.lost: list[str] = []
        self.send: Callable[[bytes], None] = self.sent.append
        self.reader = Session(
            rig.lane,
            self,
            b"\x7f\0\0\1\0\0\0\1",
            channel=None,
            after_round=rig.after.append if in_rounds else None,
        )

    def write(self, frames: bytes) -> None:
        self.send(frames)

    def close(self, reason: str) -> None:
        self.is_closed = True
        self.lost.append(reason)

    def fail(self, error: ProtocolError) -> None:
        self.close(str(error))

    def go_on_soon(self) -> None:
        self.soon += 1

    def go_on(self, commands: list[Command]) -> None:
        raise AssertionError("nobody reads a channel here")

    def feed(self, data: bytes) -> list[Command]:
        self.reader.get_buffer(-1)[: len(data)] = data
        return self.reader.received(len(data))

    @property
    def answered(self) -> list[int]:
        return [command.opaque for command in CommandDecoder().feed(b"".join(self.sent))]


def message(opaque: int, body: bytes = b"hello", topic: str = "T", **more: str) -> bytes:
    fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    fields |= {"i": f"UNIQ_KEY\x01K{opaque}\x02"} | more
    return Command(310, opaque=opaque, ext=fields, body=body).encode()


def test_answers_of_a_closed_connection_reach_nobody_else() -> None:
    rig = Rig()
    one, other = Peer(rig), Peer(rig)
    (command,) = one.feed(message(7) + Command(35, opaque=8).encode())
    assert command.opaque == 8  # the connection is closed while a handler has this in hand
    other.feed(message(1))
    assert other.answered == [1]
    one.reader.close()
    other.feed(message(2))
    assert (one.answered, other.answered) == ([7], [1, 2])


def test_answers_stay_with_their_reader_when_too_much_is_held() -> None:
    rig = Rig(held_bytes_max=4)
    one, other = Peer(rig), Peer(rig)
    with pytest.raises(FrameError, match="unfinished frames"):
        one.feed(message(7) + message(9)[:-3])
    other.feed(message(1))
    assert (one.answered, other.answered) == ([7], [1])
    assert one.reader.partial_bytes == 0


def test_after_an_exception_nobody_foresaw_nothing_of_the_stream_is_believed() -> None:
    rig = Rig()
    peer = Peer(rig)
    first, second = message(1, b"one-" * 20), message(2, b"two-" * 20, topic="N")

    def no_descriptors(queue: Queue, count: int) -> bool:
        raise OSError(errno.EMFILE, "Too many open files")

    assert peer.feed(first[:-40]) == []
    rig.store.make_room(rig.store.queue("T", 0), 1)
    rig.make_room = no_descriptors
    with pytest.raises(OSError, match="Too many open files"):
        peer.feed(first[-40:] + second)
    assert peer.answered == [1]
    assert peer.reader.partial_bytes == 0  # else the next bytes would end a message sent before
    assert bodies(rig.store, "T") == [b"one-" * 20]


def test_one_peer_whose_answers_cannot_be_sent_does_not_cost_the_others_theirs(
    tmp_path: Path,
) -> None:
    rig = Rig(RealDisk(tmp_path))
    peers = [Peer(rig, in_rounds=True) for _ in range(3)]

    def broken(data: bytes) -> None:
        raise RuntimeError("a bug")

    peers[1].send = broken
    rig.store.make_room(rig.store.queue("T", 0), 3)
    for opaque, peer in enumerate(peers):
        peer.feed(message(opaque))
    assert [peer.answered for peer in peers] == [[], [], []]  # until the round's one write
    (end_round,) = rig.after
    with pytest.raises(RuntimeError, match="a bug"):
        end_round()
    assert [peer.answered for peer in peers] == [[0], [], [2]]
    assert peers[1].lost == ["internal error: RuntimeError"]


def test_one_session_works_at_a_time() -> None:
    rig = Rig()
    one, other = Peer(rig), Peer(rig)

    def in_between(queue: Queue, count: int) -> bool:
        other.feed(message(2))
        return True

    rig.make_room = in_between
    with pytest.raises(AssertionError, match="a session works already"):
        one.feed(message(1))
    rig.make_room = rig.store.make_room
    other.feed(message(3))
    assert (one.answered, other.answered) == ([], [3])


def test_answers_wait_for_the_disk_as_soon_as_they_shall() -> None:
    rig = Rig()
    peer = Peer(rig)
    peer.feed(message(1))
    rig.lane.parks = True
    peer.feed(message(2))
    rig.lane.parks = False
    peer.feed(message(3))
    assert peer.answered == [1, 3]
    ((answers, log_offset),) = peer.parked
    assert [command.opaque for command in CommandDecoder().feed(answers)] == [2]
    assert 0 < log_offset < rig.store.log.end


def test_whoever_wants_to_know_hears_that_the_log_grew() -> None:
    rig = Rig()
    peer = Peer(rig)
    peer.feed(message(1))
    assert rig.placed_count == 0
    rig.lane.tells_placed = True
    peer.feed(message(2) + message(3))
    assert rig.placed_count == 1
    rig.lane.shows_at_once = rig.lane.tells_placed = False
    visible = rig.store.log.visible
    peer.feed(message(4))
    assert rig.store.log.visible == visible < rig.store.log.end


def test_a_frame_that_trickles_in_takes_the_memory_of_what_came() -> None:
    rig = Rig()
    peer = Peer(rig)
    frame = message(1, bytes(3 << 20))
    for first in range(0, len(frame) - 1, 10_000):
        piece = frame[first : min(first + 10_000, len(frame) - 1)]
        assert peer.feed(piece) == []
        came = first + len(piece)
        assert peer.reader.partial_bytes == came
        assert came <= rig.lane.held_bytes <= min(2 * came, len(frame))
    rig.store.make_room(rig.store.queue("T", 0), 1)
    peer.feed(frame[-1:] + frame[:3])
    assert rig.lane.held_bytes == 3
    peer.reader.close()
    assert rig.lane.held_bytes == 0


def test_a_peer_that_is_behind_gets_no_more_until_it_has_caught_up() -> None:
    rig = Rig()
    peer = Peer(rig)

    def stall(data: bytes) -> None:
        peer.sent.append(data)
        peer.is_congested = True

    peer.send = stall
    assert peer.feed(message(1) + message(2)[:9]) == []
    assert peer.feed(message(2)[9:] + message(3)) == []  # read by somebody before it was known
    assert peer.answered == [1, 2, 3]
    (command,) = peer.feed(Command(35, opaque=4).encode() + message(5))
    assert command.opaque == 4
    assert peer.reader.received(0) == []
    assert peer.answered == [1, 2, 3]
    peer.is_congested = False
    assert peer.reader.received(0) == []
    assert peer.answered == [1, 2, 3, 5]


@pytest.mark.parametrize(
    "escape", ["\\x", "\\u12", "\\u12zz", "\\ud800", "\\ud800\\u0041", "\\udc00"]
)
def test_a_field_that_nobody_reads_must_be_json_all_the_same(escape: str) -> None:
    rig = Rig()
    peer = Peer(rig)
    frame = message(1, zz="MARK")
    head = frame[8:].replace(b"MARK", escape.encode())
    grown = len(head) - len(frame[8:])
    lengths = [int.from_bytes(frame[at : at + 4], "big") + grown for at in (0, 4)]
    broken = b"".join(length.to_bytes(4, "big") for length in lengths) + head
    with pytest.raises(ProtocolError):
        CommandDecoder().feed(broken)
    with pytest.raises(ProtocolError):
        peer.feed(broken)
    assert bodies(rig.store, "T") == []


@pytest.mark.parametrize("escape", ["\\n", "\\/", '\\"', "\\u00e9", "\\ud83d\\ude00"])
def test_a_field_with_escapes_takes_the_lane(escape: str) -> None:
    rig = Rig()
    peer = Peer(rig)
    rig.store.make_room(rig.store.queue("T", 0), 1)
    frame = message(1, zz="MARK")
    head = frame[8:].replace(b"MARK", escape.encode())
    grown = len(head) - len(frame[8:])
    lengths = [int.from_bytes(frame[at : at + 4], "big") + grown for at in (0, 4)]
    assert peer.feed(b"".join(length.to_bytes(4, "big") for length in lengths) + head) == []
    assert peer.answered == [1]


@pytest.mark.parametrize(
    ("plain", "odd"),
    [
        (b'"zz":"MARK"', b'"zz":truth'),
        (b'"zz":"MARK"', b'"zz":1-2'),
        (b'"zz":"MARK"', b'"zz":007'),
        (b'"zz":"MARK"', b'"zz":-'),
    ],
)
def test_a_bare_value_that_nobody_reads_must_be_json_all_the_same(plain: bytes, odd: bytes) -> None:
    rig = Rig()
    peer = Peer(rig)
    frame = message(1, zz="MARK")
    assert plain in frame
    head = frame[8:].replace(plain, odd)
    grown = len(head) - len(frame[8:])
    lengths = [int.from_bytes(frame[at : at + 4], "big") + grown for at in (0, 4)]
    broken = b"".join(length.to_bytes(4, "big") for length in lengths) + head
    with pytest.raises(ProtocolError):
        CommandDecoder().feed(broken)
    with pytest.raises(ProtocolError):
        peer.feed(broken)
    assert bodies(rig.store, "T") == []
