"""What every client program does alike: the loops around its sends, and the figures it prints.

Imports nothing that a peer's environment may lack.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

BODY = bytes(range(256)) * 4  # 1 KiB
IN_FLIGHT = 64
WARM_COUNT = 2_000
SUBMITTED_COUNT = 10_000  # messages handed over between two looks at those before


class Stopwatch:
    """From now on: time, and CPU time of this process with all its threads."""

    def __init__(self) -> None:
        self._cpu_s = sum(os.times()[:2])
        self._start_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._start_s

    def report(self, messages: int, **more: float) -> None:
        """Print the figures, as one line of JSON."""
        seconds = self.elapsed_s
        cpu_s = sum(os.times()[:2]) - self._cpu_s
        figures = {
            "messages": messages,
            "seconds": seconds,
            "msgs_per_s": messages / seconds,
            "client_cpu_us": cpu_s / messages * 1e6,
            **more,
        }
        print(json.dumps(figures), flush=True)


async def send_awaited(send: Callable[[], Awaitable[Any]], seconds: float) -> None:
    """So many tasks, each of which awaits every send before its next."""
    await asyncio.gather(*(send() for _ in range(WARM_COUNT)))
    watch = Stopwatch()
    count = 0

    async def one_after_the_other() -> None:
        nonlocal count
        while watch.elapsed_s < seconds:
            for _ in range(16):
                await send()
            count += 16

    await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT)))
    watch.report(count)


async def send_submitted(
    submit: Callable[[], Awaitable[asyncio.Future[Any]]], seconds: float
) -> None:
    """One task hands messages over and hears of them later, all of them."""
    for future in [await submit() for _ in range(WARM_COUNT)]:
        await future
    watch = Stopwatch()
    count = 0
    before: list[asyncio.Future[Any]] = []
    while watch.elapsed_s < seconds:
        futures = [await submit() for _ in range(SUBMITTED_COUNT)]
        for future in before:
            await future
        before = futures
        count += SUBMITTED_COUNT
    for future in before:
        await future
    watch.report(count)
