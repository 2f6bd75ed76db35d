"""The loop that servers run on: asyncio's own, sleeping where its sockets are served.

A turn of asyncio's loop costs more than most requests. Here the poller is asked what asyncio's
selector would be asked, and answers when there is something for the loop itself: a callback, a
timer whose time has come, or one of the few descriptors that are not the poller's. Sockets are
served without a turn.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

from ariane.remoting.poller import Poller


def server_loop() -> asyncio.AbstractEventLoop:
    """A new loop, for servers."""
    return RoundsLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


if hasattr(select, "epoll"):

    class _Selector(selectors.EpollSelector):
        """Watches what is not the poller's."""

        poller: Poller

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            return super().select(0) if self.poller.wait(timeout) else []

    class RoundsLoop(asyncio.SelectorEventLoop):
        """An event loop with a poller, which hears of everything that the loop is asked to do."""

        def __init__(self) -> None:
            selector = _Selector()
            super().__init__(selector)
            self.poller = selector.poller = Poller(self, selector.fileno())

        def call_soon(  # type: ignore[override]
            self, *arguments: Any, **keywords: Any
        ) -> asyncio.Handle:
            """Call back in the next turn."""
            self.poller.is_loop_due = True
            return super().call_soon(*arguments, **keywords)

        def call_at(  # type: ignore[override]
            self, *arguments: Any, **keywords: Any
        ) -> asyncio.TimerHandle:
            """Call back when it is time, which may be sooner than anything else."""
            self.poller.is_loop_due = True
            return super().call_at(*arguments, **keywords)

        def stop(self) -> None:
            """Stop after this turn."""
            self.poller.is_loop_due = True
            super().stop()

        def close(self) -> None:
            """Give everything back."""
            super().close()
            self.poller.close()
