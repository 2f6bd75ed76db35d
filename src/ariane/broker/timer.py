"""Lets the store's timer wheel turn: whenever something is due, a slice at a time.

The service sleeps until the wheel has something to do, but never long, and is woken when a message
is timed. What a turn delivered is counted, and whoever waits for it is told, once per queue.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ariane.clock import Timer, Timers

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState

logger = logging.getLogger("ariane.broker")

IDLE_S_MAX: Final = 0.1
TOGETHER_S: Final = 0.005  # messages due or timed within this share a turn
RETRY_S: Final = 0.1  # after the store said no
RATE_SAMPLES: Final = 11  # a second apart


class TimerService:
    """Turns the wheel from `start` to `stop`."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._timers: Timers | None = None
        self._timer: Timer | None = None
        self._is_soon = False
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=RATE_SAMPLES)

    def start(self, timers: Timers) -> None:
        """Turn from now on."""
        self._timers = timers
        self._wake_after(0.0)

    def stop(self) -> None:
        """Turn no more."""
        self._timers = None
        if self._timer is not None:
            self._timer.cancel()

    def soon(self) -> None:
        """A message is about to be timed: look for it before long."""
        if not self._is_soon:
            self._wake_after(TOGETHER_S)

    @property
    def read_behind_ms(self) -> int:
        """How long the slot under way has been."""
        clockwork = self._state.store.timer.clockwork
        return 0 if clockwork is None else self._state.clock.wall_ms() - clockwork.read_ms

    def rates(self) -> tuple[float, float]:
        """Messages taken in and delivered per second, of late."""
        if len(self._samples) < 2:
            return 0.0, 0.0
        (first_s, *before), (last_s, *after) = self._samples[0], self._samples[-1]
        seconds = max(last_s - first_s, 0.001)
        taken, delivered = (b - a for a, b in zip(before, after, strict=True))
        return taken / seconds, delivered / seconds

    def _wake_after(self, delay_s: float) -> None:
        if self._timers is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_soon = delay_s <= TOGETHER_S
        self._timer = self._timers.after(delay_s, self._run)

    def _run(self) -> None:
        self._is_soon = False
        delay_s = RETRY_S
        try:
            delay_s = self._turn()
        except Exception:  # whatever is wrong with one message must not stop the wheel
            logger.exception("the timer wheel failed to turn; it is tried again")
        self._wake_after(delay_s)

    def _turn(self) -> float:
        """Let the wheel turn once; how long there is nothing to do then, in seconds."""
        state = self._state
        turn = state.store.timer.turn()
        for (topic, queue_id), (messages, byte_count) in turn.delivered.items():
            state.stats.put_to(topic).add(messages, byte_count)
            state.arrived(topic, queue_id)
        self._sample()
        if turn.is_more:
            return 0.0
        next_ms = state.store.timer.next_ms
        if turn.fault is not None or next_ms is None:
            return RETRY_S
        wait_s = (next_ms - state.clock.wall_ms()) / 1000
        return min(max(wait_s, TOGETHER_S), IDLE_S_MAX)

    def _sample(self) -> None:
        now_s = self._state.clock.monotonic_s()
        clockwork = self._state.store.timer.clockwork
        if clockwork is not None and (not self._samples or now_s - self._samples[-1][0] >= 1.0):
            self._samples.append((now_s, clockwork.taken, clockwork.delivered))
