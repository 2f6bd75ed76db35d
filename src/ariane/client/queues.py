"""Rules that pick a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ariane.kernel.hashing import java_hash
from ariane.protocol.bodies import MessageQueue

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]


def by_hash(key: str) -> Selector:
    """Always the same queue for the same key, and the one that Java's clients would choose."""
    code = abs(java_hash(key.encode()))

    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        # Java's abs of its least int is negative, and its selector then takes the first queue.
        return queues[code % len(queues) if code < 1 << 31 else 0]

    return select
