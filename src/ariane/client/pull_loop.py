"""Pulling one queue again and again, ahead of whoever consumes it, until enough waits.

A broker that says no, or nothing, is asked again after a while that grows; one that does not know
us is told of us first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from ariane.client.process_queue import Limits, ProcessQueue
from ariane.client.pulling import COUNT_MAX, Fetched, Puller
from ariane.client.received import Origin
from ariane.client.routes import Address
from ariane.client.session import Session
from ariane.client.subscription import Filter
from ariane.codes import ResponseCode
from ariane.errors import ArianeError, ClientError, RequestFailed

ROOM_CHECK_S: Final = 0.05
THROTTLED_S: Final = 0.02
UNKNOWN_S: Final = 0.1
FAILED_S: Final = 1.0
FAILED_MAX_S: Final = 3.0

# The broker has not heard what we want, or has forgotten it.
UNKNOWN_CODES: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)

log = logging.getLogger("ariane.client")


class Pulled(Protocol):
    """Whoever has the queue that is pulled."""

    @property
    def process(self) -> ProcessQueue:
        """What is held of it."""
        ...

    def wanted(self) -> tuple[Filter, int] | None:
        """The filter and its version; None while nothing may be pulled."""
        ...

    def offset_to_commit(self) -> int | None:
        """What to tell the broker along with a pull."""
        ...

    def take(self, fetched: Fetched, spent_s: float) -> None:
        """A pull has been answered."""
        ...

    async def meet_again(self, address: Address) -> None:
        """The broker may have forgotten us."""
        ...


class PullLoop:
    """Pulls one queue until stopped."""

    def __init__(
        self,
        session: Session,
        puller: Puller,
        owner: Pulled,
        holder: Origin,
        *,
        limits: Limits,
        may_pull: asyncio.Event,
        may_span: bool = False,
        count_max: int = COUNT_MAX,
        interval_s: float = 0.0,
    ) -> None:
        self._session = session
        self._puller = puller
        self._owner = owner
        self._holder = holder
        self._process = owner.process
        self._limits = limits
        self._may_pull = may_pull
        self._may_span = may_span
        self._count_max = count_max
        self._interval_s = interval_s
        self.is_full = False  # waits until `finished` tells of room, or for a while
        self._room = asyncio.Event()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to pull."""
        self._task = asyncio.get_running_loop().create_task(self._pull_forever())

    async def stop(self) -> None:
        """Pull no more; what is held stays."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def finished(self) -> None:
        """Something that was held is not any more."""
        if self.is_full and self._fullness() is None:
            self._room.set()

    async def _pull_forever(self) -> None:
        while self._task is not None and not self._process.is_dropped:
            if not self._may_pull.is_set():
                await self._may_pull.wait()
            elif self._fullness() is not None:
                await self._wait_for_room()
            elif wait_s := await self._pull_safely():
                await self._session.sleep(wait_s)

    async def _pull_safely(self) -> float:
        """Pull once; what nobody foresaw costs a pause, not the queue."""
        try:
            return await self._pull()
        except Exception:
            log.exception("pull failed queue=%s", self._process.queue)
            return FAILED_S

    async def _pull(self) -> float:
        """Pull once; returns how long to wait before the next."""
        if (wanted := self._owner.wanted()) is None:
            return FAILED_S
        clock = self._session.clock
        begun_s = clock.monotonic_s()
        try:
            fetched = await self._puller.pull(
                self._process.queue,
                self._process.position,
                wanted[0],
                holder=self._holder,
                version=wanted[1],
                commit_offset=self._owner.offset_to_commit(),
                count_max=self._count_max,
            )
        except ArianeError as error:
            return await self._failed(error)
        self._failures = 0
        if not self._process.is_dropped:
            self._owner.take(fetched, clock.monotonic_s() - begun_s)
        return self._interval_s if fetched.messages else 0.0

    async def _failed(self, error: ArianeError) -> float:
        """Do what may help; returns how long to wait."""
        level = logging.INFO if self._failures else logging.WARNING
        log.log(level, "pull failed queue=%s: %s", self._process.queue, error)
        back_off: int = 1 << min(self._failures, 8)
        self._failures += 1
        code = error.code if isinstance(error, RequestFailed) else None
        if code == ResponseCode.FLOW_CONTROL:
            return min(THROTTLED_S * back_off, FAILED_MAX_S)
        if code not in UNKNOWN_CODES:
            self._session.refresh_route(self._process.queue.topic)
        try:
            await self._owner.meet_again(await self._puller.address(self._process.queue))
        except ClientError as failure:
            log.info("no broker queue=%s: %s", self._process.queue, failure)
        first_s = UNKNOWN_S if code in UNKNOWN_CODES else FAILED_S
        return min(first_s * back_off, FAILED_MAX_S)

    async def _wait_for_room(self) -> None:
        self.is_full = True
        self._room.clear()
        timer = self._session.timers.after(ROOM_CHECK_S, self._room.set)
        try:
            await self._room.wait()
        finally:
            self.is_full = False
            timer.cancel()

    def _fullness(self) -> str | None:
        return self._process.fullness(self._limits, may_span=self._may_span)
