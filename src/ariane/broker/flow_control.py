"""When the broker is too busy to be useful, it says so: SYSTEM_BUSY, in RocketMQ's words.

There is no request queue to measure, but there is the loop: a heartbeat that comes late tells how
long whatever is handled now has waited in the socket. An append that stalled on the page cache is
the same sickness with a name of its own, and what waited behind it hears that name. Answers that
peers leave untaken fill the memory. While they hold too much of it nobody may pull, so whoever
takes nothing then is dropped before the others have waited long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ariane.clock import Timers
from ariane.codes import ResponseCode
from ariane.config import BrokerConfig, StoreConfig
from ariane.errors import RequestRejected
from ariane.remoting.connection import Connection

BEAT_S: Final = 0.05
BEATS_PER_COUNT: Final = 10  # between two looks at all connections
CALM_S: Final = 0.1  # a heartbeat less late than this delays nobody enough to matter
IN_FLIGHT_BYTES_MAX: Final = 256 << 20  # answers peers have not taken yet, all connections together
DEAF_S: Final = 5.0  # how long a peer may take nothing while others may not pull because of it


class Busy(RequestRejected):
    """The broker asks the client to try elsewhere, or later."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


class FlowControl:
    """Decides, before a request is carried out, whether it has waited too long to be worth it."""

    def __init__(
        self,
        timers: Timers,
        config: Callable[[], BrokerConfig],
        store_config: Callable[[], StoreConfig],
        connections: Callable[[], Iterable[Connection]] = tuple,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
    ) -> None:
        self._monotonic_s = timers.clock.monotonic_s
        self._config = config
        self._store_config = store_config
        self._connections = connections
        self._in_flight_bytes_max = in_flight_bytes_max
        self._in_flight_bytes = 0
        self._untaken: dict[Connection, tuple[int, float]] = {}  # how much, and since when
        self._beat_due_s = self._monotonic_s() + BEAT_S
        self._is_page_cache_busy = False
        self._beat_count = 0
        self._timer = timers.every(BEAT_S, self._beat)

    def stop(self) -> None:
        """Measure no more."""
        self._timer.cancel()

    def admit_send(self) -> None:
        """Refuse a send that waited too long, or that waited behind a stalled append."""
        if self._is_page_cache_busy:
            raise Busy("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while")
        self._admit(self._config().send_wait_max_ms)

    def admit_pull(self) -> None:
        """Refuse a pull that waited too long, or when peers leave too many answers untaken."""
        if self._is_overloaded():
            raise Busy("[OVERLOAD]system busy, start flow control for a while")
        self._admit(self._config().pull_wait_max_ms)

    def is_calm(self) -> bool:
        """Whether nothing at all is being refused; asked once per socket read, so in few steps."""
        return (
            self._monotonic_s() - self._beat_due_s < CALM_S
            and not self._is_page_cache_busy
            and self._in_flight_bytes <= self._in_flight_bytes_max
        )

    def append_took(self, duration_s: float) -> None:
        """Learn how long an append held the loop."""
        if duration_s * 1000 > self._store_config().page_cache_busy_ms:
            self._is_page_cache_busy = True

    def answered(self, byte_count: int) -> None:
        """Learn of an answer on its way; corrected by the next look at the connections."""
        self._in_flight_bytes += byte_count

    def waited_ms(self) -> int:
        """How long what is handled now may have waited for the loop."""
        return max(0, round((self._monotonic_s() - self._beat_due_s) * 1000))

    def _admit(self, wait_max_ms: int) -> None:
        waited_ms = self.waited_ms()
        if waited_ms > wait_max_ms and self._config().fast_failure:
            raise Busy(
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {waited_ms}ms, size of queue: 0"
            )

    def _beat(self) -> None:
        self._beat_due_s = self._monotonic_s() + BEAT_S
        self._is_page_cache_busy = False
        self._beat_count += 1
        if self._beat_count % BEATS_PER_COUNT == 0:
            self._in_flight_bytes = sum(each.unread_bytes for each in self._connections())
            self._untaken = self._without_deaf() if self._is_overloaded() else {}

    def _is_overloaded(self) -> bool:
        return self._in_flight_bytes > self._in_flight_bytes_max

    def _without_deaf(self) -> dict[Connection, tuple[int, float]]:
        """Who has answers to take, after dropping those who took none of them for too long."""
        now_s = self._monotonic_s()
        untaken = {}
        for each in self._connections():
            byte_count = each.unread_bytes
            if not byte_count:
                continue
            before, since_s = self._untaken.get(each, (0, now_s))
            if byte_count < before:
                since_s = now_s
            elif now_s - since_s >= DEAF_S:
                each.drop_deaf()
            untaken[each] = (byte_count, since_s)
        return untaken
