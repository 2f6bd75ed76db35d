"""Held pulls: woken by what they wait for, answered in time, forgotten with their connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from ariane.broker import long_polling
from ariane.broker.long_polling import AT_ONCE_MAX, SLICE, LongPolling
from ariane.broker.requests import Reply, Request
from ariane.clock import ManualClock, Timers
from ariane.codes import ResponseCode
from ariane.errors import TopicNotFound
from ariane.kernel.held import Held
from ariane.protocol.command import Command
from ariane.protocol.headers.pull import PullReply
from tests.unit.broker.rig import TickingClock


class Queues:
    """As much of a store as long polling looks at: tags by queue, and how many are visible."""

    def __init__(self) -> None:
        self.tags: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.visible: dict[tuple[str, int], int] = {}
        self.queues: dict[tuple[str, int], Any] = defaultdict(
            lambda: SimpleNamespace(is_waiting=False, end=0)
        )
        self.on_advance: list[Callable[[], None]] = []

    def queue(self, topic: str, queue_id: int) -> Any:
        return self.queues[topic, queue_id]

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.visible.get((topic, queue_id), len(self.tags[topic, queue_id]))


class Peer:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.is_closed = False
        self.on_close: list[Callable[[Any], None]] = []
        self.sent: list[Command] = []
        self.written: list[bytes] = []

    def write(self, frame: bytes) -> None:
        self.written.append(frame)

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def close(self) -> None:
        self.is_closed = True
        for callback in self.on_close:
            callback(self)


class Rig:
    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.timers = Timers(self.clock)
        self.clock.timers.append(self.timers)
        self.store = Queues()
        self.held = LongPolling(self.store, self.timers)  # type: ignore[arg-type]
        self.peer = Peer()
        self.reads = 0
        self.is_lane_open = False

    def pull(
        self, queue_id: int = 0, *, offset: int = 0, tag: str = "*", wait_s: float = 15.0
    ) -> None:
        opaque = len(self.peer.sent) + len(self.held) + 1
        request = Request(Command(11, opaque=opaque), None, self.peer)  # type: ignore[arg-type]
        until_s = self.clock.monotonic_s() + wait_s
        again = lambda first: self.read(queue_id, first, tag)  # noqa: E731 - it is one value of Held
        shortcut = lambda first: self.frame(queue_id, first, opaque)  # noqa: E731 - as above
        self.held.hold(Held(request, "T", queue_id, offset, until_s, again, shortcut))

    def frame(self, queue_id: int, first: int, opaque: int) -> bytes | None:
        """What the lane answers, when it is open."""
        end = self.store.max_offset("T", queue_id)
        return b"%d from %d" % (opaque, first) if self.is_lane_open and end > first else None

    def read(self, queue_id: int, first: int, tag: str) -> Reply:
        self.reads += 1
        tags = self.store.tags["T", queue_id]
        end = self.store.max_offset("T", queue_id)
        found = [n for n in range(first, end) if tag in ("*", tags[n])]
        code = ResponseCode.PULL_NOT_FOUND
        if first < end:
            code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        header = PullReply(suggested_broker_id=0, next_offset=end, min_offset=0, max_offset=end)
        return Reply.of(header, code=code, body=b"".join(b"%d " % n for n in found))

    def arrive(self, *tags: str, queue_id: int = 0) -> None:
        self.store.tags["T", queue_id] += tags
        self.store.queue("T", queue_id).end += len(tags)
        self.held.arrived("T", queue_id)

    def answers(self) -> list[tuple[int, int, bytes]]:
        return self.answers_to(self.peer)

    def answers_to(self, peer: Peer) -> list[tuple[int, int, bytes]]:
        return [(answer.opaque, answer.code, answer.body) for answer in peer.sent]


def test_an_arrival_wakes_the_pulls_of_its_queue_only() -> None:
    rig = Rig()
    rig.pull(0)
    rig.pull(0)
    rig.pull(1)
    rig.arrive("a")
    rig.clock.advance(0)
    assert rig.answers() == [(1, 0, b"0 "), (2, 0, b"0 ")]
    assert len(rig.held) == 1


def test_the_lane_answers_at_once_what_it_can() -> None:
    rig = Rig()
    rig.is_lane_open = True
    rig.pull(0)
    rig.pull(1)
    rig.store.tags["T", 0] += ["a"]
    rig.held.answer_at_once([("T", 0), ("T", 1)])
    assert (rig.peer.written, rig.reads, len(rig.held)) == ([b"1 from 0"], 0, 1)
    assert [queue.is_waiting for queue in rig.store.queues.values()] == [False, True]


def test_what_the_lane_answers_one_connection_is_written_together() -> None:
    rig = Rig()
    rig.is_lane_open = True
    rig.pull(0)
    rig.pull(1)
    rig.store.tags["T", 0] += ["a"]
    rig.store.tags["T", 1] += ["a"]
    rig.held.answer_at_once([("T", 0), ("T", 1)])
    assert rig.peer.written == [b"1 from 02 from 0"]
    assert len(rig.held) == 0


def test_what_the_lane_leaves_is_for_the_handlers() -> None:
    rig = Rig()
    rig.pull()
    rig.store.tags["T", 0] += ["a"]
    rig.held.answer_at_once([("T", 0)])
    assert (rig.peer.written, len(rig.held)) == ([], 1)
    rig.held.arrived("T", 0)
    rig.clock.advance(0)
    assert rig.answers() == [(1, 0, b"0 ")]


def test_the_lane_answers_when_a_message_becomes_visible() -> None:
    rig = Rig()
    rig.is_lane_open = True
    rig.store.visible["T", 0] = 0
    rig.pull()
    rig.arrive("a")
    rig.clock.advance(0)
    assert rig.peer.written == []
    rig.store.visible["T", 0] = 1
    rig.store.on_advance[0]()
    assert (rig.peer.written, rig.reads) == ([b"1 from 0"], 0)


def test_arrivals_of_one_turn_are_read_together() -> None:
    rig = Rig()
    rig.pull()
    rig.arrive("a")
    rig.arrive("b", "c")
    rig.clock.advance(0)
    assert rig.answers() == [(1, 0, b"0 1 2 ")]
    assert rig.reads == 1


def test_other_tags_do_not_wake_and_are_not_looked_at_twice() -> None:
    rig = Rig()
    rig.pull(tag="x")
    rig.arrive("a")
    rig.clock.advance(0)
    rig.arrive("b")
    rig.clock.advance(0)
    assert (rig.answers(), rig.reads) == ([], 2)
    rig.arrive("x")
    rig.clock.advance(0)
    assert rig.answers() == [(1, 0, b"2 ")]


def test_a_pull_that_saw_only_other_tags_ends_past_them() -> None:
    rig = Rig()
    rig.pull(tag="x", wait_s=1.0)
    rig.arrive("a", "b")
    rig.clock.advance(1.2)
    (answer,) = rig.peer.sent
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "2")


def test_what_is_not_visible_yet_wakes_when_the_watermark_moves() -> None:
    rig = Rig()
    rig.store.visible["T", 0] = 0
    rig.pull()
    rig.arrive("a")
    rig.clock.advance(0)
    assert rig.answers() == []
    rig.store.visible["T", 0] = 1
    for tell in rig.store.on_advance:
        tell()
    assert rig.answers() == [(1, 0, b"0 ")]


def test_what_came_before_the_pull_but_shows_after_it_wakes_it() -> None:
    rig = Rig()
    rig.store.visible["T", 0] = 0
    rig.arrive("a")
    rig.pull()
    rig.store.visible["T", 0] = 1
    for tell in rig.store.on_advance:
        tell()
    assert rig.answers() == [(1, 0, b"0 ")]


@pytest.mark.parametrize("wait_s", [0.0, 0.049, 1.0, 15.0, 27.99])
def test_time_out_is_answered_at_its_time_within_a_tenth_of_a_second(wait_s: float) -> None:
    rig = Rig()
    rig.clock.advance(0.123)
    rig.pull(wait_s=wait_s)
    rig.clock.advance(max(0.0, wait_s - 0.001))
    assert rig.answers() == []
    rig.clock.advance(0.101)
    assert rig.answers() == [(1, ResponseCode.PULL_NOT_FOUND, b"")]
    assert len(rig.held) == 0


def test_a_closed_connection_takes_its_pulls_along() -> None:
    rig = Rig()
    rig.pull(0)
    rig.pull(1)
    rig.peer.close()
    assert len(rig.held) == 0
    rig.arrive("a")
    rig.clock.advance(30.0)
    assert rig.reads == 0
    rig.pull(0)  # comes too late
    assert len(rig.held) == 0


def test_the_queue_is_watched_while_somebody_waits() -> None:
    rig = Rig()
    rig.pull()
    rig.pull()
    assert rig.store.queue("T", 0).is_waiting
    rig.arrive("a")
    rig.clock.advance(0)
    assert not rig.store.queue("T", 0).is_waiting


def test_a_topic_that_goes_takes_its_pulls_along() -> None:
    rig = Rig()
    rig.pull()

    def gone(queue_id: int, first: int, tag: str) -> Reply:
        raise TopicNotFound("T")

    rig.read = gone  # type: ignore[method-assign]
    rig.held.release("other")
    assert rig.answers() == []
    rig.held.release("T")
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.TOPIC_NOT_EXIST]


@pytest.mark.provokes("held pull failed")
def test_our_own_fault_in_one_pull_does_not_keep_the_others() -> None:
    rig = Rig()
    good = rig.read
    rig.pull(0)
    rig.pull(0)

    def bad_once(queue_id: int, first: int, tag: str) -> Reply:
        rig.read = good  # type: ignore[method-assign]
        raise ZeroDivisionError("planted")

    rig.read = bad_once  # type: ignore[method-assign]
    rig.arrive("a")
    rig.clock.advance(0)
    assert [answer.code for answer in rig.peer.sent] == [ResponseCode.SYSTEM_ERROR, 0]


def test_there_is_an_end_to_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "HELD_PER_CONNECTION_MAX", 3)
    rig = Rig()
    for _ in range(5):
        rig.pull()
    assert (len(rig.held), [code for _, code, _ in rig.answers()]) == (3, [19, 19])


def test_nobody_waits_for_a_one_way_pull() -> None:
    rig = Rig()
    request = Request(Command(11, flag=2), None, rig.peer)  # type: ignore[arg-type]
    rig.held.hold(
        Held(request, "T", 0, 0, 15.0, lambda first: rig.read(0, first, "*"), lambda _: None)
    )
    assert len(rig.held) == 0


def test_ten_thousand_pulls_come_and_go() -> None:
    rig = Rig()
    for n in range(10_000):
        rig.pull(n % 100, wait_s=10 + n % 7)
    rig.arrive("a", queue_id=3)
    rig.clock.advance(0)
    assert (len(rig.held), len(rig.peer.sent)) == (9_900, 100)
    rig.clock.advance(20.0)
    assert (len(rig.held), len(rig.peer.sent)) == (0, 10_000)
    assert rig.timers.next_due_s() is None  # nothing left running for nobody


def test_a_crowd_is_woken_in_slices_in_order_and_nobody_twice() -> None:
    rig = Rig(TickingClock())
    for _ in range(3 * SLICE):
        rig.pull()
    leaving, rig.peer = rig.peer, Peer()
    rig.pull()
    rig.arrive("a")
    rig.timers.run_due()
    assert [opaque for opaque, _, _ in rig.answers_to(leaving)] == list(range(1, SLICE + 1))
    rig.arrive("b")  # those under way are not woken twice, and see both
    rig.timers.run_due()
    assert len(leaving.sent) == 2 * SLICE
    assert {body for _, _, body in rig.answers_to(leaving)} == {b"0 ", b"0 1 "}
    leaving.close()
    rig.timers.run_due()
    assert len(leaving.sent) == 2 * SLICE
    assert [body for _, _, body in rig.answers()] == [b"0 1 "]
    assert len(rig.held) == 0


def test_a_crowd_ends_in_slices_beside_those_that_wake() -> None:
    rig = Rig(TickingClock())
    for _ in range(4 * SLICE):
        rig.pull(queue_id=1, wait_s=0.01)
    for _ in range(SLICE):
        rig.pull(queue_id=2)
    rig.arrive("a", queue_id=2)
    rig.clock.pass_by(1.0)
    counts = [0]
    while len(rig.held):
        rig.timers.run_due()
        counts.append(len(rig.peer.sent))
    assert max(after - before for before, after in pairwise(counts)) == 2 * SLICE
    assert counts[-1] == 5 * SLICE


def test_few_pulls_are_answered_at_once_by_the_lane_and_a_crowd_is_not() -> None:
    rig = Rig()
    rig.is_lane_open = True
    for _ in range(AT_ONCE_MAX + 1):
        rig.pull()
    rig.store.tags["T", 0] += "a"
    rig.held.answer_at_once([("T", 0)])
    assert rig.peer.written == []
    rig.held.arrived("T", 0)
    rig.clock.advance(0)
    assert len(rig.peer.written) == AT_ONCE_MAX + 1
