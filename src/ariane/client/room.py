"""A bound on what is under way: who finds it full waits until some of it has ended."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """Counts bytes; `take` never refuses, `wait` is for those who can."""

    def __init__(self, bytes_max: int) -> None:
        self.used = 0
        self._bytes_max = bytes_max
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether newcomers should wait."""
        return self.used >= self._bytes_max

    def take(self, byte_count: int) -> None:
        """Begin something of this size."""
        self.used += byte_count

    def give(self, byte_count: int) -> None:
        """Something of this size has ended."""
        self.used -= byte_count
        if self._waiting and not self.is_full:
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
            self._waiting.clear()

    async def wait(self) -> None:
        """Return once there is room."""
        while self.is_full:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
