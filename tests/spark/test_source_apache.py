"""The source against Apache's own broker, by what every broker answers."""

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.apache import JARS, Apache
from tests.harness.processes import wait_until
from tests.spark.test_source_stream import Collected, finish, numbers, start
from tests.spark.topics import topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop


def mqadmin(apache: Apache, *words: str) -> str:
    """What Apache's own tool prints."""
    command = ["java", "-XX:TieredStopAtLevel=1", f"-Duser.home={apache.directory}"]
    main = ["-cp", f"{JARS}/*", "org.apache.rocketmq.tools.command.MQAdminStartup"]
    done = subprocess.run(
        [*command, *main, *words, "-n", apache.namesrv_address],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_batch_reads(spark: "SparkSession", apache: Apache) -> None:
    with topic_of(apache.namesrv_address, "apache-batch") as topic:
        topic.fill(0, numbers(100), tags="a", keys="k", properties={"price": "3"})
        topic.fill(1, numbers(100), tags="b", properties={"price": "9"})
        wait_until(lambda: len(topic.stored()) == 200, "all messages to be there")
        frame = spark.read.format("rocketmq").options(**topic.options)
        rows = {(row.queueId, row.queueOffset): row for row in frame.load().collect()}
        for message in topic.stored():
            row = rows.pop((message.queue_id, message.queue_offset))
            assert (row.msgId, row.body) == (message.message_id, message.body)
            assert (row.tags, row.properties) == (message.properties["TAGS"], message.properties)
            assert row.physicalOffset == message.log_offset
        assert not rows
        assert frame.option("subExpression", "b").load().count() == 100
        frame = spark.read.format("rocketmq").options(**topic.options, sqlFilter="price < 5")
        assert {row.queueId for row in frame.load().select("queueId").collect()} == {0}
        moment_ms = topic.stored()[0].stored_at_ms
        by_time = spark.read.format("rocketmq").options(
            **topic.options, startingTimestamp=str(moment_ms)
        )
        assert by_time.load().count() == 200
        ended = spark.read.format("rocketmq").options(
            **topic.options, endingTimestamp=str(moment_ms)
        )
        assert ended.load().count() == 0


def test_a_stream_whose_lag_apaches_own_tool_shows(
    spark: "SparkSession", apache: Apache, tmp_path: Path
) -> None:
    with topic_of(apache.namesrv_address, "apache-stream") as topic:
        topic.fill(0, numbers(30))
        topic.fill(1, numbers(10))
        wait_until(lambda: len(topic.stored()) == 40, "all messages to be there")
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        collected = Collected()
        query = start(spark, topic, tmp_path, collected, group="apache-lag", **options)
        finish(query)
        assert (collected.of(0), collected.of(1)) == (list(range(30)), list(range(10)))
        assert len(collected.batches) == 2
        end = json.loads(query.lastProgress.sources[0].endOffset)  # type: ignore[union-attr]
        assert end["queues"] == {"apache-stream": {"broker-a": {"0": 30, "1": 10}}}

        topic.fill(0, numbers(1, 30))
        wait_until(lambda: len(topic.stored()) == 41, "one message more")
        again = Collected()
        finish(start(spark, topic, tmp_path, again, group="apache-lag", **options))
        assert again.rows == [(0, 30)]

        lines = mqadmin(apache, "consumerProgress", "-g", "apache-lag").splitlines()
        shown = {
            words[2]: words[3:5]
            for line in lines
            if (words := line.split()) and words[0] == topic.name
        }
        # Spark tells of the end of a batch when it plans the next, so the last one is lag.
        assert shown == {"0": ["31", "30"], "1": ["10", "10"]}
