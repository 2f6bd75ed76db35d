"""Leases on queues for orderly consumers: one client of a group at a time, for a minute.

A lease ends by time or by its owner alone, never because a connection broke: the consumer behind a
broken connection may still be at work on the messages it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ariane.clock import Clock
from ariane.protocol.bodies import MessageQueue

LEASE_S: Final = 60.0


class Lease(NamedTuple):
    """Who holds a queue, and until when."""

    client_id: str
    ends_s: float


class QueueLocks:
    """(group, queue) -> lease."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leases: dict[tuple[str, MessageQueue], Lease] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or renew what is free or its own; returns the queues the client now holds."""
        now_s = self._clock.monotonic_s()
        held = []
        for queue in queues:
            lease = self._leases.get((group, queue))
            if lease is None or lease.client_id == client_id or lease.ends_s <= now_s:
                self._leases[group, queue] = Lease(client_id, now_s + LEASE_S)
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up what the client holds; the leases of others stay."""
        for queue in queues:
            lease = self._leases.get((group, queue))
            if lease is not None and lease.client_id == client_id:
                del self._leases[group, queue]

    def is_held(self, group: str) -> bool:
        """Whether anybody of the group holds a lease."""
        now_s = self._clock.monotonic_s()
        return any(
            lease.ends_s > now_s for (owner, _), lease in self._leases.items() if owner == group
        )

    def forget_expired(self) -> None:
        """Drop leases that ran out, so that groups that are gone leave nothing behind."""
        now_s = self._clock.monotonic_s()
        expired = [key for key, lease in self._leases.items() if lease.ends_s <= now_s]
        for key in expired:
            del self._leases[key]
