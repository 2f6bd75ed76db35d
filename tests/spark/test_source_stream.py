"""Streaming reads of a real broker through Spark."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ariane.spark.mirror import OffsetMirror
from ariane.testing import EmbeddedBroker
from tests.harness.processes import Ariane, wait_until
from tests.spark.topics import Topic, topic_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DEADLINE_S = 60


class Collected:
    """Rows of a query as they come, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        rows = frame.select("queueId", "queueOffset").collect()
        self.batches[batch_id] = [(row.queueId, row.queueOffset) for row in rows]

    @property
    def rows(self) -> list[tuple[int, int]]:
        """All rows, in the order of batches."""
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def of(self, queue_id: int) -> list[int]:
        """The offsets of one queue, as they came."""
        return [offset for queue, offset in self.rows if queue == queue_id]


def start(
    spark: "SparkSession",
    topic: Topic,
    checkpoint: Path,
    sink: Callable[["DataFrame", int], None],
    *,
    available_now: bool = True,
    name: str | None = None,
    **more: str,
) -> "StreamingQuery":
    stream = spark.readStream.format("rocketmq").options(**{**topic.options, **more}).load()
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    if available_now:
        writer = writer.trigger(availableNow=True)
    if name is not None:
        writer = writer.queryName(name)
    return writer.start()


def finish(query: "StreamingQuery") -> None:
    assert query.awaitTermination(DEADLINE_S)


def failure(query: "StreamingQuery") -> str:
    with pytest.raises(Exception) as caught:
        query.awaitTermination(DEADLINE_S)
    return str(caught.value)


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def committed(topic: Topic, group: str) -> dict[int, int | None]:
    consumer = topic.client.pull_consumer(group)
    return {queue.queue_id: consumer.committed(queue) for queue in topic.queues()}


def test_available_now_reads_all_there_is_in_limited_batches_and_a_restart_nothing_again(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path
) -> None:
    with topic_of(cluster.namesrv_address, "stream-now") as topic:
        topic.fill(0, numbers(300))
        topic.fill(1, numbers(100))
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
        first = Collected()
        query = start(spark, topic, tmp_path, first, **limits, group="stream-now-group")
        finish(query)
        assert [Counter(queue for queue, _ in rows) for rows in first.batches.values()] == [
            {0: 150, 1: 50},  # shared out by backlog
            {0: 150, 1: 50},
        ]
        assert (first.of(0), first.of(1)) == (list(range(300)), list(range(100)))
        progress = query.recentProgress[0].sources[0]
        ends = {"stream-now": {"broker-a": {"0": 300, "1": 100}}}
        assert json.loads(progress.latestOffset)["queues"] == ends  # the backlog can be seen
        # Spark tells of the end of a batch when it plans the next: of the last one, never.
        assert committed(topic, "stream-now-group") == {0: 150, 1: 50}

        topic.fill(1, numbers(5, 100))
        again = Collected()
        finish(start(spark, topic, tmp_path, again, **limits))
        assert again.rows == [(1, offset) for offset in range(100, 105)]

        # The last batch was not committed before the driver died: it is read again, the same.
        (tmp_path / "commits/2").unlink()
        (tmp_path / "commits/.2.crc").unlink()
        replayed = Collected()
        finish(start(spark, topic, tmp_path, replayed, **limits))
        assert replayed.rows == again.rows


def test_a_running_query_goes_on_with_new_queues_and_topics_and_its_lag_can_be_seen(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path
) -> None:
    mirror = OffsetMirror(cluster.namesrv_address)
    spark.streams.addListener(mirror)
    collected = Collected()
    try:
        with topic_of(cluster.namesrv_address, "stream-live-a", queue_count=1) as topic:
            topic.fill(0, numbers(10))
            pattern = {"subscribePattern": "stream-live-.*", "namesrv": cluster.namesrv_address}
            reader = spark.readStream.format("rocketmq").options(**pattern)  # from the latest on
            query = (
                reader.load()
                .writeStream.foreachBatch(collected)
                .option("checkpointLocation", str(tmp_path))
                .queryName("stream-live")
                .start()
            )
            try:
                query.processAllAvailable()
                assert collected.rows == []
                topic.client.admin.create_topic(topic.name, write_queue_count=2)
                topic.fill(1, numbers(3))  # a new queue, from its first message on
                topic.fill(0, numbers(2, 10))
                query.processAllAvailable()
                assert (collected.of(0), collected.of(1)) == ([10, 11], [0, 1, 2])
                with topic_of(cluster.namesrv_address, "stream-live-b", queue_count=7) as other:
                    other.fill(6, numbers(4))  # a new topic that the pattern takes
                    wait_until(
                        lambda: collected.of(6) == [0, 1, 2, 3], "the new topic", seconds=DEADLINE_S
                    )
                wait_until(
                    lambda: committed(topic, "spark-stream-live") == {0: 12, 1: 3},
                    "the listener to mirror the progress",
                    seconds=DEADLINE_S,
                )
            finally:
                query.stop()
    finally:
        spark.streams.removeListener(mirror)
        mirror.close()


def test_a_removed_queue_fails_or_is_gone_without_as_the_option_says(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path
) -> None:
    with topic_of(cluster.namesrv_address, "stream-removed") as topic:
        topic.fill(0, numbers(2))
        topic.fill(1, numbers(3))
        earliest = {"startingOffsets": "earliest"}
        finish(start(spark, topic, tmp_path, Collected(), **earliest))
        topic.client.admin.create_topic(topic.name, write_queue_count=1)
        topic.fill(0, numbers(1, 2))
        words = failure(start(spark, topic, tmp_path, Collected(), **earliest))
        assert "topic stream-removed, broker broker-a, queue 1: wanted offset 3" in words
        assert "removed" in words
        lenient = Collected()
        finish(start(spark, topic, tmp_path, lenient, failOnDataLoss="false"))
        assert lenient.rows == [(0, 2)]


@pytest.mark.ariane(mappedFileSizeCommitLog=1 << 16)
def test_retention_passing_under_a_query_fails_or_is_stepped_over_as_the_option_says(
    spark: "SparkSession", ariane_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    with topic_of(ariane_broker.name_server, "stream-expired", queue_count=1) as topic:
        topic.fill(0, numbers(2))
        finish(start(spark, topic, tmp_path, Collected(), startingOffsets="earliest"))
        for _ in range(30):
            topic.fill(0, ["x" * 5000])
        ariane_broker.advance(80 * 3600)
        [queue] = topic.queues()
        first = topic.client.pull_consumer().min_offset(queue)
        assert first > 2
        words = failure(start(spark, topic, tmp_path, Collected()))
        assert (
            f"topic stream-expired, broker broker-a, queue 0: wanted offset 2, available {first}"
            in words
        )
        lenient = Collected()
        finish(start(spark, topic, tmp_path, lenient, failOnDataLoss="false"))
        assert lenient.of(0) == list(range(first, 32))


def test_a_topic_deleted_and_created_again_is_always_an_error(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path
) -> None:
    with topic_of(cluster.namesrv_address, "stream-recreated", queue_count=1) as topic:
        topic.fill(0, numbers(5))
        finish(start(spark, topic, tmp_path, Collected(), startingOffsets="earliest"))
        topic.create_anew()
        topic.fill(0, numbers(3))
        words = failure(start(spark, topic, tmp_path, Collected(), failOnDataLoss="false"))
        assert "wanted offset 5, available 3" in words
        assert "created again" in words


def test_two_narrow_columns_and_a_filter_in_a_stream(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path
) -> None:
    with topic_of(cluster.namesrv_address, "stream-narrow", queue_count=1) as topic:
        topic.fill(0, numbers(5), tags="a")
        topic.fill(0, numbers(5, 5), tags="b")
        seen: list[Any] = []
        stream = (
            spark.readStream.format("ariane")
            .options(**topic.options, startingOffsets="earliest", subExpression="b")
            .schema("storeTimestamp timestamp, queueOffset bigint")
            .load()
        )
        query = (
            stream.writeStream.foreachBatch(lambda frame, _: seen.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)
        assert [row.queueOffset for row in seen] == [5, 6, 7, 8, 9]
        assert list(seen[0].asDict()) == ["storeTimestamp", "queueOffset"]


def test_ends_are_refused(spark: "SparkSession", cluster: Ariane, tmp_path: Path) -> None:
    with topic_of(cluster.namesrv_address, "stream-ends") as topic:
        with pytest.raises(Exception, match="endingOffsets is for batch queries") as caught:
            query = start(spark, topic, tmp_path, Collected(), endingOffsets="latest")
            query.awaitTermination(DEADLINE_S)
        assert "a stream has no end" in str(caught.value)
