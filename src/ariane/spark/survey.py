"""What a plan must know of a cluster, whoever answers: brokers (`cluster.py`) or files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import QueueBounds
from ariane.spark.offsets import Queue
from ariane.spark.options import Selection


@dataclass(frozen=True, slots=True)
class Survey:
    """The queues that were chosen, as they are now."""

    layout: Mapping[Queue, QueueBounds]
    away: frozenset[str] = frozenset()  # brokers of queues we know that no name server knows
    stored_ms: Mapping[str, int] = field(default_factory=dict)  # of each broker's youngest message


class Cluster(Protocol):
    """Where queues are asked about."""

    def survey(
        self, selection: Selection, *, known: Collection[Queue] = (), may_miss: bool = False
    ) -> Survey:
        """The queues chosen. A broker of `known` queues that is away is given time to come back.

        A topic that is not there is an error unless it is one of theirs, or may be missing.
        """
        ...

    def offsets_at(self, times: Mapping[Queue, int]) -> dict[Queue, int]:
        """The first offset stored at or after a moment (ms); the queue's end when there is none."""
        ...

    def oldest_ms(self, queues: Collection[Queue]) -> dict[Queue, int]:
        """When the oldest message of each was stored; those are left out that nobody can tell of.

        One that was stored after it is said to have been read shows that the queue is another.
        """
        ...

    def record_bytes(self, ranges: Mapping[Queue, tuple[int, int]]) -> dict[Queue, float]:
        """How large the messages of each range are on average, by a sample."""
        ...

    def mirror(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Tell brokers how far a group has got; what fails is logged, and told again next time."""
        ...

    def close(self) -> None:
        """Take leave."""
        ...


def assigned(
    wanted: Collection[Queue], there: Mapping[Queue, QueueBounds], known: Iterable[Queue]
) -> dict[Queue, QueueBounds]:
    """The queues that the user named; all must be there, unless they were read before."""
    if missing := sorted(set(wanted) - there.keys() - set(known)):
        raise ConfigError(
            f"assign names queues that are not there: {'; '.join(str(queue) for queue in missing)}"
        )
    return {queue: there[queue] for queue in wanted if queue in there}
