"""Which brokers a producer should leave alone for a while: RocketMQ's latency fault tolerance.

A broker that answered slowly, or not at all, is avoided for a time that grows with how slow it was.
Avoided is a preference, never a refusal: when nobody better is left, it is chosen all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ariane.protocol.bodies import MessageQueue

# (an answer that took at least this long, keeps its broker out of the way for so long), in ms.
AVOID_AFTER_MS: Final = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
FAILURE_LATENCY_MS: Final = 10_000  # what a request that failed counts as


def avoid_ms_of(latency_ms: float) -> int:
    """How long to avoid a broker that took this long to answer."""
    return next((avoid for at_least, avoid in AVOID_AFTER_MS if latency_ms >= at_least), 0)


class FaultTable:
    """When each broker that disappointed us may be used again, on the monotonic clock."""

    def __init__(self) -> None:
        self._usable_at_s: dict[str, float] = {}

    def answered(self, broker: str, latency_s: float, *, now_s: float) -> None:
        """Note a request that was carried out; a quick answer clears an old fault."""
        avoid_ms = avoid_ms_of(latency_s * 1000)
        if avoid_ms:
            self._usable_at_s[broker] = now_s + avoid_ms / 1000
        else:
            self._usable_at_s.pop(broker, None)

    def failed(self, broker: str, *, now_s: float) -> None:
        """Note a request that was not carried out."""
        self._usable_at_s[broker] = now_s + avoid_ms_of(FAILURE_LATENCY_MS) / 1000

    def is_usable(self, broker: str, *, now_s: float) -> bool:
        """Whether nothing speaks against the broker."""
        return self._usable_at_s.get(broker, now_s) <= now_s


def choose_queue(
    queues: Sequence[MessageQueue],
    turn: int,
    faults: FaultTable,
    *,
    now_s: float,
    last_broker: str | None = None,
) -> MessageQueue:
    """The next queue by turn, on a usable broker that did not just fail; else the next best."""
    candidate = queues[turn % len(queues)]
    if candidate.broker_name != last_broker and faults.is_usable(
        candidate.broker_name, now_s=now_s
    ):
        return candidate
    others = [queue for queue in _from(queues, turn) if queue.broker_name != last_broker]
    usable = (queue for queue in others if faults.is_usable(queue.broker_name, now_s=now_s))
    return next(usable, None) or (others[0] if others else candidate)


def _from(queues: Sequence[MessageQueue], turn: int) -> Iterator[MessageQueue]:
    start = turn % len(queues)
    yield from queues[start:]
    yield from queues[:start]
