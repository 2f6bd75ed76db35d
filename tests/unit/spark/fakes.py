"""A cluster that says what a test wants it to say."""

from collections.abc import Collection, Mapping

from ariane.spark.bytes.contract import QueueBounds
from ariane.spark.offsets import Queue
from ariane.spark.options import Selection
from ariane.spark.survey import Survey

A0 = Queue("orders", "broker-a", 0)
A1 = Queue("orders", "broker-a", 1)
B0 = Queue("orders", "broker-b", 0)


class FakeCluster:
    """Queues with bounds; brokers that are away; what was asked and told."""

    def __init__(self, bounds: Mapping[Queue, tuple[int, int]]) -> None:
        self.layout = {queue: QueueBounds(*ends) for queue, ends in bounds.items()}
        self.away: frozenset[str] = frozenset()
        self.at_times: dict[Queue, int] = {}
        self.sizes: dict[Queue, float] = {}
        self.mirrored: list[tuple[str, dict[Queue, int]]] = []
        self.known: list[frozenset[Queue]] = []  # of each survey
        self.stored_ms: dict[str, int] = {}  # of each broker's youngest message
        self.oldest: dict[Queue, int] = {}
        self.is_closed = False

    def set(self, queue: Queue, first: int, end: int) -> None:
        self.layout[queue] = QueueBounds(first, end)

    def survey(
        self, selection: Selection, *, known: Collection[Queue] = (), may_miss: bool = False
    ) -> Survey:
        self.known.append(frozenset(known))
        return Survey(dict(self.layout), self.away, dict(self.stored_ms))

    def offsets_at(self, times: Mapping[Queue, int]) -> dict[Queue, int]:
        return {queue: self.at_times[queue] for queue in times}

    def oldest_ms(self, queues: Collection[Queue]) -> dict[Queue, int]:
        return {queue: self.oldest[queue] for queue in queues}

    def record_bytes(self, ranges: Mapping[Queue, tuple[int, int]]) -> dict[Queue, float]:
        return {queue: self.sizes[queue] for queue in ranges}

    def mirror(self, group: str, offsets: Mapping[Queue, int]) -> None:
        self.mirrored.append((group, dict(offsets)))

    def close(self) -> None:
        self.is_closed = True
