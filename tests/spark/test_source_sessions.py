"""Batch reads in sessions that are set up otherwise than ours, and frames used in many ways."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import Ariane
from tests.spark.test_source_stream import numbers
from tests.spark.topics import topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def setting(spark: "SparkSession", name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before or "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.sql.session.timeZone", "Asia/Shanghai"),
        ("spark.sql.caseSensitive", "true"),
    ],
)
def test_rows_do_not_depend_on_what_a_session_prefers(
    spark: "SparkSession", cluster: Ariane, name: str, value: str
) -> None:
    with topic_of(cluster.namesrv_address, "session-settings", queue_count=1) as topic:
        if not topic.stored():
            topic.fill(0, numbers(3), keys="k", properties={"ключ": "鍵"})
        with setting(spark, name, value):
            frame = spark.read.format("rocketmq").options(**topic.options).load()
            rows = frame.selectExpr("unix_millis(storeTimestamp) AS ms", "*").collect()
        assert [(row.ms, row.body, row.properties) for row in rows] == [
            (message.stored_at_ms, message.body, message.properties) for message in topic.stored()
        ]


def test_a_frame_may_be_used_again_and_in_part(spark: "SparkSession", cluster: Ariane) -> None:
    with topic_of(cluster.namesrv_address, "session-frames") as topic:
        topic.fill(0, numbers(300))
        topic.fill(1, numbers(10))
        frame = spark.read.format("rocketmq").options(**topic.options).load()
        assert (frame.limit(3).count(), len(frame.take(2))) == (3, 2)
        assert frame.select("topic").count() == frame.count() == 310
        assert frame.union(frame).count() == 620
        assert frame.join(frame, ["queueId", "queueOffset"]).count() == 310
        assert (frame.cache().count(), frame.unpersist().count()) == (310, 310)
