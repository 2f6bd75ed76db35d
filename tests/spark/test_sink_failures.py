"""The sink on real Spark when a task fails: nothing of it is seen, and all of it the next time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from ariane.sync import Client
from tests.harness.processes import Ariane
from tests.spark.test_sink import bodies

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def failing_once(marker: Path, body: str) -> Column:
    """The body as it is; the task that comes to this one fails, the first time."""

    def pass_on(text: str) -> str:
        if text == body and not marker.exists():
            marker.touch()
            raise RuntimeError("a test asked for this failure")
        return text

    return udf(pass_on, "string", useArrow=False)("body").alias("body")


def test_a_job_whose_task_failed_wrote_nothing(
    spark: SparkSession, cluster: Ariane, tmp_path: Path
) -> None:
    with Client(cluster.namesrv_address) as client:
        client.admin.create_topic("sink-failed-job", write_queue_count=2)
        frame = spark.range(0, 1000, 1, 2).selectExpr("cast(id AS string) AS body")
        frame = frame.select(failing_once(tmp_path / "failed", "999"))
        sink = frame.write.format("rocketmq").options(
            namesrv=cluster.namesrv_address, topic="sink-failed-job"
        )
        with pytest.raises(PySparkException, match="a test asked for this failure"):
            sink.mode("append").save()
        assert bodies(client, "sink-failed-job") == []
        sink.mode("append").save()
        assert sorted(map(int, bodies(client, "sink-failed-job"))) == list(range(1000))


def test_a_stream_whose_task_failed_goes_on_after_a_restart(
    spark: SparkSession, cluster: Ariane, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for part in range(2):
        lines = [str(number) for number in range(part * 500, part * 500 + 500)]
        (source / f"{part}.txt").write_text("\n".join(lines) + "\n")
    with Client(cluster.namesrv_address) as client:
        client.admin.create_topic("sink-failed-stream", write_queue_count=2)
        frame = spark.readStream.schema("value string").text(str(source))
        frame = frame.selectExpr("value AS body").select(failing_once(tmp_path / "failed", "999"))
        for is_first in (True, False):
            query = (
                frame.writeStream.format("rocketmq")
                .options(namesrv=cluster.namesrv_address, topic="sink-failed-stream")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            if is_first:
                with pytest.raises(PySparkException, match="a test asked for this failure"):
                    query.awaitTermination(120)
                assert bodies(client, "sink-failed-stream") == []
            else:
                assert query.awaitTermination(120)
        found = Counter(map(int, bodies(client, "sink-failed-stream")))
        assert found == Counter(range(1000))
