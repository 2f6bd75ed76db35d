"""The sink on real Spark, against a real broker process: what is written, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from ariane.client.queues import by_hash
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.message import StoredMessage
from ariane.sync import Client
from tests.harness.processes import Ariane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_all(client: Client, topic: str) -> dict[int, list[StoredMessage]]:
    """Every message of a topic, by queue, in order."""
    consumer = client.pull_consumer()
    found: dict[int, list[StoredMessage]] = {}
    for queue in consumer.queues(topic):
        messages = found.setdefault(queue.queue_id, [])
        offset = consumer.min_offset(queue)
        while offset < consumer.max_offset(queue):
            pulled = consumer.read(queue, offset, count_max=32)
            messages += pulled.messages
            offset = pulled.next_offset
    return found


def bodies(client: Client, topic: str) -> list[str]:
    """The bodies of a topic, whichever queue they are in."""
    return [
        message.body.decode()
        for messages in read_all(client, topic).values()
        for message in messages
    ]


@pytest.fixture(scope="module")
def client(cluster: Ariane) -> Any:
    with Client(cluster.namesrv_address) as client:
        yield client


def write(frame: DataFrame, cluster: Ariane, **options: str) -> None:
    frame.write.format("rocketmq").options(namesrv=cluster.namesrv_address, **options).mode(
        "append"
    ).save()


def test_a_job_writes_every_row_once_with_all_its_columns(
    spark: SparkSession, cluster: Ariane, client: Client
) -> None:
    client.admin.create_topic("sink-job", write_queue_count=4)
    frame = spark.sql("""
        SELECT cast(id AS string) AS body, 'sink-job' AS topic, concat('k', id, ' all') AS keys,
               if(id % 2 = 0, 'even', 'odd') AS tags, map('n', cast(id AS string)) AS properties,
               concat('s', id % 5) AS shardingKey
        FROM range(0, 3000, 1, 3)""")
    write(frame, cluster)
    found = read_all(client, "sink-job")
    messages = [message for queue in found.values() for message in queue]
    assert sorted(int(message.body) for message in messages) == list(range(3000))
    assert len({message.properties["UNIQ_KEY"] for message in messages}) == 3000
    queues = [MessageQueue(topic="sink-job", broker_name="", queue_id=n) for n in range(4)]
    for queue_id, held in found.items():
        for message in held:
            number = int(message.body)
            assert message.properties["KEYS"] == f"k{number} all"
            assert message.properties["TAGS"] == ("odd" if number % 2 else "even")
            assert message.properties["n"] == str(number)
            assert by_hash(f"s{number % 5}")(queues).queue_id == queue_id
        for first in range(0, 3000, 1000):  # in order within the rows of a task
            part = [int(m.body) for m in held if first <= int(m.body) < first + 1000]
            assert part == sorted(part)
    assert [m.body for m in client.admin.find("sink-job", "k77")] == [b"77"]


def test_queues_by_number_and_rows_without_one_spread(
    spark: SparkSession, cluster: Ariane, client: Client
) -> None:
    client.admin.create_topic("sink-queues", write_queue_count=3)
    frame = spark.sql("""
        SELECT cast(id AS string) AS body, if(id < 100, cast(id % 3 AS int), null) AS queueId
        FROM range(0, 160, 1, 2)""")
    write(frame, cluster, topic="sink-queues")
    found = read_all(client, "sink-queues")
    numbers = {
        queue_id: [int(message.body) for message in held] for queue_id, held in found.items()
    }
    for queue_id in range(3):
        assert [n for n in numbers[queue_id] if n < 100] == list(range(queue_id, 100, 3))
    assert sorted(n for held in numbers.values() for n in held) == list(range(160))


def test_rows_with_a_time_come_then(spark: SparkSession, cluster: Ariane, client: Client) -> None:
    client.admin.create_topic("sink-timed", write_queue_count=1)
    frame = spark.sql("""
        SELECT cast(id AS string) AS body,
               if(id % 2 = 0, current_timestamp() + interval 1 second, null) AS deliverAt
        FROM range(0, 100, 1, 1)""")
    write(frame, cluster, topic="sink-timed")
    consumer = client.pull_consumer()
    (queue,) = consumer.queues("sink-timed")
    found: list[int] = []
    offset = 0
    while len(found) < 100:
        pulled = consumer.read(queue, offset, wait=10.0)
        assert pulled.messages, f"{len(found)} of 100 came"
        found += [int(message.body) for message in pulled.messages]
        offset = pulled.next_offset
    assert sorted(found) == list(range(100))
    assert found[:50] == list(range(1, 100, 2))


def test_a_stream_goes_on_where_it_stood_and_a_batch_run_again_adds_nothing(
    spark: SparkSession, cluster: Ariane, client: Client, tmp_path: Path
) -> None:
    """The last commit file is deleted before a restart: Spark runs that batch once more."""
    client.admin.create_topic("sink-stream", write_queue_count=2)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"

    def run() -> None:
        lines = spark.readStream.schema("value string").text(str(source))
        query = (
            lines.selectExpr("value AS body")
            .writeStream.format("rocketmq")
            .options(namesrv=cluster.namesrv_address, topic="sink-stream")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None

    written: list[str] = []
    for number in range(3):
        lines = [f"{number}-{row}" for row in range(200)]
        source.mkdir(exist_ok=True)
        (source / f"{number}.txt").write_text("\n".join(lines) + "\n")
        written += lines
        run()
        assert sorted(bodies(client, "sink-stream")) == sorted(written)
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run()
    assert commits[-1].exists(), "Spark did not run the batch again"
    assert Counter(bodies(client, "sink-stream")) == Counter(written)


@pytest.mark.parametrize(
    "refusal",
    [
        ("SELECT 1 AS body", {}, "body must be string or binary, not int"),
        ("SELECT 'a' AS body, 1 AS colour", {}, "no column 'colour'"),
        ("SELECT 'a' AS body", {"topic": ""}, "which topic?"),
        ("SELECT 'a' AS tags", {}, "needs a column body"),
        ("SELECT 'a' AS body, 1L AS queueId", {}, "queueId must be int or smallint"),
        ("SELECT 'a' AS body", {"topc": "T"}, "did you mean topic?"),
        ("SELECT 'a' AS body", {"guarantee": "often"}, "guarantee must be one of"),
        ("SELECT cast(null AS string) AS body", {}, "row 0 of partition 0: the body is null"),
        ("SELECT '' AS body", {}, "the body is empty"),
        ("SELECT 'a' AS body, cast(null AS string) AS topic", {"topic": ""}, "the topic is null"),
        ("SELECT 'a' AS body, 17 AS queueId", {}, "no such queueId"),
        ("SELECT 'a' AS body, 'a\\u0001b' AS tags", {}, "separate properties"),
        ("SELECT 'a' AS body, 'rmq_sys_x' AS topic", {"topic": ""}, "belongs to the broker"),
    ],
)
def test_what_cannot_be_a_message_is_refused_with_words(
    spark: SparkSession, cluster: Ariane, client: Client, refusal: tuple[str, dict[str, str], str]
) -> None:
    sql, options, said = refusal
    client.admin.create_topic("sink-refused", write_queue_count=1)
    with pytest.raises(PySparkException, match=said.replace("?", r"\?")):
        write(spark.sql(sql), cluster, **({"topic": "sink-refused"} | options))
    assert bodies(client, "sink-refused") == []
