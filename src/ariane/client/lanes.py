"""The compiled lane of a client's connection, joined to its event loop and its timers."""

from __future__ import annotations

import asyncio
from functools import partial

from ariane.client.hot_sends import Receipts, SendLane
from ariane.client.messages import SendReceipt, SendStatus
from ariane.clock import Timer, Timers
from ariane.errors import RequestTimeout
from ariane.protocol.command import SCRATCH_BYTES, command_of
from ariane.protocol.limits import FRAME_BYTES_MAX, REPLY_HEADER_BYTES_MAX
from ariane.remoting.connection import Connection


def lane_of(connection: Connection, timers: Timers) -> SendLane:
    """The decoder of a connection, and the way that sends take on it."""
    loop = asyncio.get_running_loop()
    deadlines = _Deadlines(connection, timers)
    lane = SendLane(
        Receipts(SendReceipt, SendStatus.OK),
        decode=command_of,
        make_future=partial(asyncio.Future, loop=loop),
        schedule=lambda: loop.call_soon(lane.flush),
        arm=deadlines.arm,
        write=connection.write,
        now_s=timers.clock.monotonic_s,
        scratch=bytearray(SCRATCH_BYTES) if connection.scratch is None else connection.scratch,
        frame_bytes_max=FRAME_BYTES_MAX,
        header_bytes_max=REPLY_HEADER_BYTES_MAX,
    )
    deadlines.lane = lane
    connection.on_close.append(deadlines.abandon)
    return lane


class _Deadlines:
    """Ends sends that are not answered in time, or not at all: one timer for all of them."""

    lane: SendLane

    def __init__(self, connection: Connection, timers: Timers) -> None:
        self._connection = connection
        self._timers = timers
        self._timer: Timer | None = None

    def arm(self, deadline_s: float) -> None:
        """Look again then."""
        self._disarm()
        wait_s = max(0.0, deadline_s - self._timers.clock.monotonic_s())
        self._timer = self._timers.after(wait_s, self._expire)

    def abandon(self, lost: Connection) -> None:
        """The connection is gone."""
        self._disarm()
        for future in self.lane.abandon():
            if not future.done():
                future.set_exception(lost.lost())

    def _expire(self) -> None:
        for future in self.lane.expire(self._timers.clock.monotonic_s()):
            if not future.done():
                future.set_exception(
                    RequestTimeout(f"no answer from {self._connection.peer_text} in time")
                )

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
