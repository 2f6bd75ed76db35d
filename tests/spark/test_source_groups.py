"""What a group could not consume, read by `dlqOf` and `retryOf` from both brokers."""

from typing import TYPE_CHECKING

import pytest

from ariane import Retry
from ariane.sync import Client
from tests.harness.processes import Server, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "spark-gave-up"
TOPIC = "spark-unlucky"


@pytest.mark.parametrize("kind", ["cluster", pytest.param("apache", marks=pytest.mark.interop)])
def test_dead_letters_and_retries(
    spark: "SparkSession", request: pytest.FixtureRequest, kind: str
) -> None:
    server: Server = request.getfixturevalue(kind)
    buried: list[object] = []

    def fail(_: object) -> None:
        raise ValueError("a test asked for this failure")

    with Client(server.namesrv_address) as client:
        client.admin.create_topic(TOPIC, write_queue_count=1)
        wait_until(lambda: client.pull_consumer().queues(TOPIC), "the topic")
        retry = Retry(max=1, delays=(1,))
        consumer = client.push_consumer(GROUP, fail, retry=retry, dead_letter=buried.append)
        consumer.subscribe(TOPIC)
        for number in range(3):
            client.send(TOPIC, b"%d" % number, keys=f"k{number}")
        with consumer:
            wait_until(lambda: len(buried) == 3, "three dead letters", seconds=60)

    def read(**options: str) -> set[tuple[str, bytes, str]]:
        frame = spark.read.format("rocketmq").options(namesrv=server.namesrv_address, **options)
        rows = frame.load().collect()
        assert len(rows) == 3
        assert {row.properties["RETRY_TOPIC"] for row in rows} == {TOPIC}
        return {(row.topic, bytes(row.body), row.keys) for row in rows}

    expected = [(b"%d" % number, f"k{number}") for number in range(3)]
    letters = {(f"%DLQ%{GROUP}", *each) for each in expected}
    assert read(dlqOf=GROUP) == letters
    assert read(dlqOf=f"nobody,{GROUP}", storePath=str(server.store), access="direct") == letters
    assert read(retryOf=GROUP) == {(f"%RETRY%{GROUP}", *each) for each in expected}
