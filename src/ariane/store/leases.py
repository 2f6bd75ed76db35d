"""Who reads the log's files from outside, and from where on: retention waits for them, for a while.

A lease is a promise not to remove the log from an offset on before a time; its holder renews it or
loses it. Times are those of a clock that nobody sets.
"""

from __future__ import annotations

from typing import Final

LEASE_S_MAX: Final = 600.0
LEASE_COUNT_MAX: Final = 4_096


class Leases:
    """Leases by the names their holders gave them."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, float]] = {}  # log offset, until

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, name: str, log_offset: int, seconds: float, now_s: float) -> float:
        """Keep the log from an offset on; for how many seconds it is kept (0: too many do)."""
        self._expire(now_s)
        if name not in self._held and len(self._held) >= LEASE_COUNT_MAX:
            return 0.0
        granted_s = min(seconds, LEASE_S_MAX)
        self._held[name] = (log_offset, now_s + granted_s)
        return granted_s

    def release(self, name: str) -> None:
        """Its holder needs nothing any more."""
        self._held.pop(name, None)

    def floor(self, now_s: float) -> int | None:
        """The log offset from which on nothing may go; None when all may."""
        self._expire(now_s)
        return min((log_offset for log_offset, _ in self._held.values()), default=None)

    def _expire(self, now_s: float) -> None:
        for name in [name for name, (_, until_s) in self._held.items() if until_s <= now_s]:
            del self._held[name]
