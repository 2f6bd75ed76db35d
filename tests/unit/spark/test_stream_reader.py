"""Spark's calls on a stream reader, made by hand."""

import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import LongType, StructType

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import QueueRange
from ariane.spark.options import source_options
from ariane.spark.reader import RowReader
from ariane.spark.stream_reader import StreamReader
from tests.unit.spark.fakes import A0, FakeCluster

SCHEMA = StructType().add("queueOffset", LongType())
START: dict[str, Any] = {"version": 1, "queues": {"orders": {"broker-a": {"0": 0}}}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster({A0: (0, 100)})
    cluster.sizes = {A0: 10.0}
    monkeypatch.setattr("ariane.spark.cluster.cluster_of", lambda access: cluster)
    return cluster


def reader_of(**options: str) -> StreamReader:
    given = {"subscribe": "orders", "namesrv": "127.0.0.1:9876", **options}
    source = source_options(given, is_stream=True)
    return StreamReader(source, RowReader(source, SCHEMA))


def end(offset: dict[str, Any]) -> int:
    return int(offset["queues"]["orders"]["broker-a"]["0"])


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "30"}, ReadMaxRows(30)),
        ({"maxBytesPerTrigger": "300"}, ReadMaxBytes(300)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "30"}, ReadMaxRows(30)),
    ],
)
def test_the_limit_that_spark_is_told(options: dict[str, str], limit: ReadLimit) -> None:
    assert reader_of(**options).getDefaultReadLimit() == limit


@pytest.mark.parametrize(
    ("options", "limit", "offset"),
    [
        ({}, ReadAllAvailable(), 100),
        ({"maxOffsetsPerTrigger": "30"}, ReadAllAvailable(), 100),
        ({"maxOffsetsPerTrigger": "30"}, ReadMaxRows(30), 30),
        ({"maxOffsetsPerTrigger": "30"}, ReadMaxRows(20), 20),
        ({"maxOffsetsPerTrigger": "30", "maxBytesPerTrigger": "100"}, ReadMaxRows(30), 10),
        ({}, ReadMaxBytes(400), 40),
        ({}, ReadMinRows(1), 100),
        ({"maxOffsetsPerTrigger": "30"}, ReadMaxFiles(1), 30),
    ],
)
def test_every_limit_of_sparks(
    cluster: FakeCluster, options: dict[str, str], limit: ReadLimit, offset: int
) -> None:
    assert end(reader_of(**options).latestOffset(START, limit)) == offset


def test_nothing_new_is_the_offset_it_was_given(cluster: FakeCluster) -> None:
    reader = reader_of()
    offset = reader.latestOffset(START, ReadAllAvailable())
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset


def test_the_backlog_is_reported_from_what_was_just_seen(cluster: FakeCluster) -> None:
    reader = reader_of(maxOffsetsPerTrigger="30")
    assert reader.reportLatestOffset() is None
    reader.latestOffset(START, reader.getDefaultReadLimit())
    asked = len(cluster.known)
    assert end(reader.reportLatestOffset() or {}) == 100
    assert len(cluster.known) == asked


def test_partitions_are_small_and_travel(cluster: FakeCluster) -> None:
    reader = reader_of(startingOffsets="earliest")
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    sent = pickle.dumps(partition)
    assert len(sent) < 500
    assert pickle.loads(sent).value == (QueueRange("orders", "broker-a", 0, 0, 100),)


def test_one_batch_costs_one_look_at_the_cluster(cluster: FakeCluster) -> None:
    reader = reader_of()
    latest = reader.latestOffset(START, ReadAllAvailable())
    reader.partitions(START, latest)
    assert len(cluster.known) == 1


def test_available_now_stays_where_it_was_told_to(cluster: FakeCluster) -> None:
    reader = reader_of()
    reader.prepareForTriggerAvailableNow()
    cluster.set(A0, 0, 200)
    assert end(reader.latestOffset(START, reader.getDefaultReadLimit())) == 100


def test_progress_is_mirrored_only_when_a_group_is_named(cluster: FakeCluster) -> None:
    reader_of().commit(START)
    assert cluster.mirrored == []
    reader_of(group="spark-orders").commit(START)
    assert cluster.mirrored == [("spark-orders", {A0: 0})]


def test_readers_travel_to_executors_before_they_have_opened_anything() -> None:
    reader = pickle.loads(pickle.dumps(reader_of(subExpression="paid")))
    assert list(reader.read(InputPartition(None))) == []  # what Spark makes when there is none
    reader.stop()


def test_stopping_takes_leave(cluster: FakeCluster) -> None:
    reader = reader_of()
    reader.initialOffset()
    reader.stop()
    assert cluster.is_closed


def test_a_checkpoint_of_another_source_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="not written by this source"):
        reader_of().latestOffset({"orders": {"0": 5}}, ReadAllAvailable())
