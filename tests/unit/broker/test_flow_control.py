"""Flow control: what waited too long is refused, with RocketMQ's code and words."""

from __future__ import annotations

import pytest

from ariane.broker.flow_control import BEAT_S, BEATS_PER_COUNT, DEAF_S, Busy, FlowControl
from ariane.clock import ManualClock, Timers
from ariane.codes import ResponseCode
from ariane.config import BrokerConfig, StoreConfig


class Peer:
    """A connection whose answers stay where they are."""

    def __init__(self, unread_bytes: int) -> None:
        self.unread_bytes = unread_bytes
        self.is_dropped = False

    def drop_deaf(self) -> None:
        self.unread_bytes = 0
        self.is_dropped = True


class Loop:
    """A loop that can be made to hang: time passes and no timer runs."""

    def __init__(self, config: BrokerConfig | None = None, unread_bytes: int = 0) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.peer = Peer(unread_bytes)
        self.peers = [self.peer]
        self.flow = FlowControl(
            self.timers,
            lambda: config or BrokerConfig(),
            StoreConfig,
            lambda: self.peers,  # type: ignore[arg-type, return-value]
        )

    def run(self, seconds: float) -> None:
        self.clock.timers = [self.timers]
        self.clock.advance(seconds)

    def hang(self, seconds: float) -> None:
        self.clock.timers = []
        self.clock.advance(seconds)


def refusal(admit: object) -> str | None:
    try:
        admit()  # type: ignore[operator]
    except Busy as busy:
        assert busy.code is ResponseCode.SYSTEM_BUSY
        return str(busy)
    return None


def test_a_loop_that_runs_admits_everything() -> None:
    loop = Loop()
    for _ in range(20):
        loop.run(0.03)
        assert refusal(loop.flow.admit_send) is None
        assert refusal(loop.flow.admit_pull) is None


@pytest.mark.parametrize(
    ("hang_s", "send_refused", "pull_refused"),
    [(0.15, False, False), (0.2 + 2 * BEAT_S, True, False), (5.2, True, True)],
)
def test_what_waited_too_long_is_refused(
    hang_s: float, send_refused: bool, pull_refused: bool
) -> None:
    loop = Loop()
    loop.run(1.0)
    loop.hang(hang_s)
    remarks = [refusal(loop.flow.admit_send), refusal(loop.flow.admit_pull)]
    assert [remark is not None for remark in remarks] == [send_refused, pull_refused]
    for remark in filter(None, remarks):
        assert remark.startswith(
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        )
    loop.run(BEAT_S)
    assert refusal(loop.flow.admit_send) is None


def test_fast_failure_can_be_turned_off() -> None:
    loop = Loop(BrokerConfig(fast_failure=False))
    loop.hang(60.0)
    assert refusal(loop.flow.admit_send) is None


def test_sends_behind_a_stalled_append_hear_of_the_page_cache() -> None:
    loop = Loop(BrokerConfig(fast_failure=False))
    loop.flow.append_took(0.9)
    assert refusal(loop.flow.admit_send) is None
    loop.flow.append_took(1.1)
    assert refusal(loop.flow.admit_send) == (
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while"
    )
    assert refusal(loop.flow.admit_pull) is None
    loop.run(2 * BEAT_S)
    assert refusal(loop.flow.admit_send) is None


def test_pulls_stop_while_peers_leave_their_answers_untaken() -> None:
    loop = Loop(unread_bytes=300 << 20)
    assert refusal(loop.flow.admit_pull) is None
    loop.run((BEATS_PER_COUNT + 1) * BEAT_S)
    assert refusal(loop.flow.admit_pull) == (
        "[OVERLOAD]system busy, start flow control for a while"
    )
    loop.peer.unread_bytes = 0
    loop.run((BEATS_PER_COUNT + 1) * BEAT_S)
    assert refusal(loop.flow.admit_pull) is None
    loop.flow.answered(300 << 20)  # between two looks too
    assert refusal(loop.flow.admit_pull) is not None


def test_peers_that_take_nothing_do_not_keep_others_from_pulling_for_long() -> None:
    loop = Loop()
    deaf, slow = (Peer(100 << 20) for _ in range(2)), Peer(100 << 20)
    loop.peers += [*deaf, slow]
    for _ in range(int(DEAF_S / BEAT_S) + 4 * BEATS_PER_COUNT):
        loop.run(BEAT_S)
        slow.unread_bytes -= 1
    assert [peer.is_dropped for peer in loop.peers] == [False, True, True, False]
    assert refusal(loop.flow.admit_pull) is None


def test_peers_may_take_their_time_when_nobody_waits_for_it() -> None:
    loop = Loop(unread_bytes=200 << 20)
    loop.run(10 * DEAF_S)
    assert not loop.peer.is_dropped
