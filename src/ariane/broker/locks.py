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
LEASES_MAX: Final = 200_000


class Lease(NamedTuple):
    """Who holds a queue, and until when."""

    client_id: str
    ends_s: float


class QueueLocks:
    """group -> queue -> lease; of all groups together, no more than `LEASES_MAX`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, Lease]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or renew what is free or its own; returns the queues the client now holds."""
        now_s = self._clock.monotonic_s()
        leases = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lease = leases.get(queue)
            if lease is None and self._count >= LEASES_MAX:
                continue  # as if somebody else had it; leases end within a minute
            if lease is None or lease.client_id == client_id or lease.ends_s <= now_s:
                self._count += lease is None
                leases[queue] = Lease(client_id, now_s + LEASE_S)
                held.append(queue)
        self._forget_empty(group)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up what the client holds; the leases of others stay."""
        leases = self._groups.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]
                self._count -= 1
        self._forget_empty(group)

    def is_held(self, group: str) -> bool:
        """Whether anybody of the group holds a lease."""
        now_s = self._clock.monotonic_s()
        return any(lease.ends_s > now_s for lease in self._groups.get(group, {}).values())

    def forget_expired(self) -> None:
        """Drop leases that ran out, so that groups that are gone leave nothing behind."""
        now_s = self._clock.monotonic_s()
        for group, leases in list(self._groups.items()):
            for queue in [queue for queue, lease in leases.items() if lease.ends_s <= now_s]:
                del leases[queue]
                self._count -= 1
            self._forget_empty(group)

    def _forget_empty(self, group: str) -> None:
        if not self._groups.get(group):
            self._groups.pop(group, None)
