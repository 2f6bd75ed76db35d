"""What a batch query reads."""

import pytest

from ariane.errors import ConfigError, DataLoss
from ariane.spark.batch_plan import batch_partitions
from ariane.spark.bytes.contract import QueueRange
from ariane.spark.options import source_options
from tests.unit.spark.fakes import A0, A1, FakeCluster


def read(cluster: FakeCluster, **options: str) -> list[tuple[int, int, int]]:
    given = {"subscribe": "orders", "namesrv": "127.0.0.1:9876", **options}
    parts = batch_partitions(source_options(given, is_stream=False), cluster)
    return [(one.queue_id, one.start, one.end) for part in parts for one in part]


CLUSTER = FakeCluster({A0: (2, 10), A1: (0, 4)})
CLUSTER.at_times = {A0: 5, A1: 4}


def offsets(zero: int, one: int) -> str:
    return f'{{"orders":{{"broker-a":{{"0":{zero},"1":{one}}}}}}}'


def test_all_that_is_there() -> None:
    assert read(CLUSTER) == [(0, 2, 10), (1, 0, 4)]


def test_ranges_by_offset() -> None:
    chosen = read(CLUSTER, startingOffsets=offsets(3, -2), endingOffsets=offsets(7, -1))
    assert chosen == [(0, 3, 7), (1, 0, 4)]


def test_ranges_by_time() -> None:
    assert read(CLUSTER, endingTimestamp="9") == [(0, 2, 5), (1, 0, 4)]
    from_time = {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(CLUSTER, **from_time) == [(0, 5, 10)]
    with pytest.raises(ConfigError, match="no message was stored"):
        read(CLUSTER, startingTimestamp="9")


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ConfigError, match="start at 6 and end at 5"):
        read(CLUSTER, startingOffsets=offsets(6, 0), endingTimestamp="9")


def test_offsets_that_are_gone_or_never_were() -> None:
    with pytest.raises(DataLoss, match="wanted offset 1, available 2"):
        read(CLUSTER, startingOffsets=offsets(1, 0))
    lenient = read(CLUSTER, startingOffsets=offsets(1, 0), failOnDataLoss="false")
    assert lenient == [(0, 2, 10), (1, 0, 4)]
    for wrong in ({"endingOffsets": offsets(11, 4)}, {"startingOffsets": offsets(11, 4)}):
        with pytest.raises(DataLoss, match="wanted offset 11, available 10"):
            read(CLUSTER, failOnDataLoss="false", **wrong)


def test_partitions_by_bytes() -> None:
    cluster = FakeCluster({A0: (0, 10)})
    cluster.sizes = {A0: 100.0}
    given = {
        "subscribe": "orders",
        "namesrv": "127.0.0.1:9876",
        "maxBytesPerPartition": "500",
    }
    parts = batch_partitions(source_options(given, is_stream=False), cluster)
    assert parts == [
        [QueueRange("orders", "broker-a", 0, 0, 5)],
        [QueueRange("orders", "broker-a", 0, 5, 10)],
    ]
