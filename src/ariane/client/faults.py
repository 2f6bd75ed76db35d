"""Which brokers a producer should leave alone for a while: RocketMQ's latency fault tolerance.

A broker that answered slowly, or not at all, is avoided for a time that grows with how slow it was.
Avoided is a preference, never a refusal: when nobody better is left, it is chosen all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# (an answer that took at least this long, keeps its broker out of the way for so long), in ms.
AVOID_AFTER_MS: Final = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
SLOW_S: Final = AVOID_AFTER_MS[-1][0] / 1000  # quicker answers speak against nobody
FAILURE_LATENCY_MS: Final = 10_000  # what a request that failed counts as


def avoid_ms_of(latency_ms: float) -> int:
    """How long to avoid a broker that took this long to answer."""
    return next((avoid for at_least, avoid in AVOID_AFTER_MS if latency_ms >= at_least), 0)


class FaultTable:
    """When each broker that disappointed us may be used again, on the monotonic clock."""

    def __init__(self) -> None:
        self._usable_at_s: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether any broker is remembered; while none is, nothing need be asked or told."""
        return bool(self._usable_at_s)

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

    def forgive(self, *, now_s: float) -> None:
        """Forget faults whose time is up."""
        for broker in [name for name, at_s in self._usable_at_s.items() if at_s <= now_s]:
            del self._usable_at_s[broker]

    def is_usable(self, broker: str, *, now_s: float) -> bool:
        """Whether nothing speaks against the broker."""
        return self._usable_at_s.get(broker, now_s) <= now_s


def choose(
    brokers: Sequence[str],
    turn: int,
    faults: FaultTable,
    *,
    now_s: float,
    last_broker: str | None = None,
) -> int:
    """Which to take, by turn: the next that is usable and did not just fail, else the next best."""
    count = len(brokers)
    others = [
        place for place in (range(turn, turn + count)) if brokers[place % count] != last_broker
    ]
    for place in others:
        if faults.is_usable(brokers[place % count], now_s=now_s):
            return place % count
    return (others[0] if others else turn) % count
