"""Runs a heap of timers from an event loop.

The loop is woken for the earliest timer only; with a ManualClock the clock itself runs them, and
being woken for nothing does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ariane.clock import Timers

logger = logging.getLogger("ariane.remoting")

_FAR_S: Final = 3600.0


class TimerDriver:
    """Keeps one wake-up of the loop in step with the earliest timer, until stopped."""

    def __init__(self, timers: Timers, loop: asyncio.AbstractEventLoop) -> None:
        self._timers = timers
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        timers.on_earlier = self._arm
        self._arm()

    def stop(self) -> None:
        """Run no more timers."""
        self._timers.on_earlier = None
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        due_s = self._timers.next_due_s()
        if due_s is not None:
            wait_s = min(max(0.0, due_s - self._timers.clock.monotonic_s()), _FAR_S)
            self._handle = self._loop.call_later(wait_s, self._run)

    def _run(self) -> None:
        try:
            self._timers.run_due()
        except Exception:  # one callback's fault must not stop all others
            logger.exception("timer failed")
        self._arm()


def drive(timers: Timers, loop: asyncio.AbstractEventLoop) -> TimerDriver:
    """Run `timers` on `loop` until the driver is stopped."""
    return TimerDriver(timers, loop)
