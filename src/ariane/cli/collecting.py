"""Keeps Python's collector of cycles from holding a server up.

A full collection looks at every object there is, and nobody is served meanwhile: with forty
thousand queues that took a fifth of a second. What has lived through one that took long is here to
stay, so it is set aside and never looked at again; the next ones look at what is new. A server with
little in it never comes to that. Objects set aside still go when nobody refers to them any more;
only circles among them would stay, and ours are broken when their owners close.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from ariane.clock import Clock

LONG_S: Final = 0.01
FULL: Final = 2  # the generation of a collection that looks at everything


class Collecting:
    """Listens to the collector until stopped."""

    def __init__(self, clock: Clock, set_aside: Callable[[], None] = gc.freeze) -> None:
        self._clock = clock
        self._set_aside = set_aside
        self._began_s = 0.0
        gc.callbacks.append(self._told)

    def stop(self) -> None:
        """Listen no more, and let everything be looked at again."""
        gc.callbacks.remove(self._told)
        gc.unfreeze()

    def _told(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began_s = self._clock.monotonic_s()
        elif self._clock.monotonic_s() - self._began_s > LONG_S:
            self._set_aside()
