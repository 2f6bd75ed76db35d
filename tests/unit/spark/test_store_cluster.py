"""A cluster of files: the same questions, answered without a broker."""

import pytest

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import QueueBounds
from ariane.spark.offsets import Queue
from ariane.spark.options import Selection
from ariane.spark.store_cluster import StoreCluster
from ariane.spark.survey import Survey


class Files:
    """A store with a few queues."""

    def __init__(self, broker: str, queues: dict[str, dict[int, tuple[int, int]]]) -> None:
        self.broker = broker
        self._queues = queues

    def topics(self) -> list[str]:
        return sorted(self._queues)

    def queues(self, topic: str) -> list[int]:
        return sorted(self._queues.get(topic, {}))

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        return QueueBounds(*self._queues[topic][queue_id])

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return timestamp_ms // 10

    def mean_record_bytes(self, topic: str, queue_id: int, first: int, end: int) -> float:
        return float(end - first)


A = Files("broker-a", {"orders": {0: (0, 5), 1: (2, 3)}, "RMQ_SYS_TRACE_TOPIC": {0: (0, 1)}})
B = Files("broker-b", {"orders": {0: (0, 1)}, "%DLQ%billing": {0: (0, 9)}})
CLUSTER = StoreCluster([B, A])

A0, A1, B0 = (
    Queue("orders", "broker-a", 0),
    Queue("orders", "broker-a", 1),
    Queue("orders", "broker-b", 0),
)


def test_queues_of_all_stores() -> None:
    survey = CLUSTER.survey(Selection(topics=("orders",)))
    assert survey == Survey({A0: QueueBounds(0, 5), A1: QueueBounds(2, 3), B0: QueueBounds(0, 1)})
    assert list(survey.layout) == [A0, A1, B0]


@pytest.mark.parametrize(
    ("pattern", "topics"), [(".*", {"orders"}), ("%DLQ%.*", {"%DLQ%billing"}), ("none", set())]
)
def test_topics_by_pattern(pattern: str, topics: set[str]) -> None:
    layout = CLUSTER.survey(Selection(pattern=pattern)).layout
    assert {queue.topic for queue in layout} == topics


def test_queues_by_themselves() -> None:
    assert set(CLUSTER.survey(Selection(queues=frozenset({A1}))).layout) == {A1}
    with pytest.raises(ConfigError, match=r"assign names .* not there: .*queue 7"):
        CLUSTER.survey(Selection(queues=frozenset({A1, A1._replace(queue_id=7)})))


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="'payments' has no queue in broker-a, broker-b"):
        CLUSTER.survey(Selection(topics=("payments",)))
    known = [Queue("payments", "broker-a", 0)]  # a running query is told of the loss instead
    assert CLUSTER.survey(Selection(topics=("payments",)), known=known) == Survey({})


def test_offsets_by_time_and_sizes() -> None:
    assert CLUSTER.offsets_at({A0: 40, B0: 0}) == {A0: 4, B0: 0}
    assert CLUSTER.record_bytes({A0: (1, 5)}) == {A0: 4.0}


def test_files_keep_no_progress() -> None:
    with pytest.raises(ConfigError, match="give namesrv beside storePath"):
        CLUSTER.mirror("spark-x", {A0: 1})
