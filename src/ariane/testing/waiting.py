"""Waiting, in real time, for what another thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ariane.clock import SystemClock

POLL_S: Final = 0.002


def wait_until(count: Callable[[], int], wanted: int, within_s: float, what: str) -> None:
    """Return once there are as many as wanted; raises AssertionError when the time is up."""
    pause, clock = threading.Event(), SystemClock()
    deadline_s = clock.monotonic_s() + within_s
    while (found := count()) < wanted:
        if clock.monotonic_s() > deadline_s:
            raise AssertionError(f"{found} {what} after {within_s:g} s, not {wanted}")
        pause.wait(POLL_S)
