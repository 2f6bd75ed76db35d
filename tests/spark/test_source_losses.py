"""Streams whose topics are replaced while nobody looks."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.processes import Ariane
from tests.spark.test_source_stream import Collected, failure, finish, numbers, start
from tests.spark.topics import topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_topic_made_anew_that_has_grown_past_the_offset_fails_or_not_as_the_option_says(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path
) -> None:
    with topic_of(cluster.namesrv_address, "stream-regrown", queue_count=1) as topic:
        topic.fill(0, numbers(5))
        finish(start(spark, topic, tmp_path, Collected(), startingOffsets="earliest"))
        topic.create_anew()
        topic.fill(0, numbers(8))
        words = failure(start(spark, topic, tmp_path, Collected()))
        assert (
            "topic stream-regrown, broker broker-a, queue 0: wanted offset 5, available 0" in words
        )
        assert "deleted and created again" in words
        lenient = Collected()
        finish(start(spark, topic, tmp_path, lenient, failOnDataLoss="false"))
        assert lenient.rows == [(0, 5), (0, 6), (0, 7)]
        again = Collected()
        finish(start(spark, topic, tmp_path, again))  # it is this topic's own offset by now
        assert again.rows == []
