"""Closing: once, to its end, and every step of it.

Whoever closes may be cancelled, may close again, and may meet an error half-way; none of that may
leave something open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger("ariane.client")

Step = Callable[[], Awaitable[object]]


class Closing:
    """How one thing is closed: by these steps, in their order."""

    def __init__(self, *steps: Step) -> None:
        self._steps = steps
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether anybody has closed it."""
        return self._task is not None

    def begin(self) -> asyncio.Task[None]:
        """Close in the background; what is closing already goes on."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(take_every(self._steps))
            self._task.add_done_callback(looked_at)
        return self._task

    async def end(self) -> None:
        """Close, and wait for it; goes on to its end when the caller is cancelled.

        Raises the first error that a step raised, to those who waited for it.
        """
        task = self.begin()
        if not task.done():
            await asyncio.shield(task)


async def take_every(steps: Iterable[Step]) -> None:
    """Take one step after the other whatever an earlier one raised; then raise the first error."""
    errors: list[BaseException] = []
    for step in steps:
        try:
            await step()
        except (Exception, asyncio.CancelledError) as error:
            log.warning("closing goes on after an error: %r", error)
            errors.append(error)
    if errors:
        raise errors[0]


def looked_at(task: asyncio.Task[None]) -> None:
    """Its error is told elsewhere; nobody need ask the task for it."""
    if not task.cancelled():
        task.exception()
