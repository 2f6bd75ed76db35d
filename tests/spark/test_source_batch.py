"""Batch reads of a real broker through Spark."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ariane.spark.schema import COLUMNS
from tests.harness.processes import Ariane
from tests.spark.topics import Topic, topic_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 300  # in each of two queues


@pytest.fixture(scope="module")
def topic(cluster: Ariane) -> Iterator[Topic]:
    with topic_of(cluster.namesrv_address, "batch-reads") as topic:
        for queue_id in (0, 1):
            bodies = [f"{queue_id}/{number}" for number in range(ROWS)]
            topic.fill(queue_id, bodies[: ROWS // 2], tags="even", keys=("k1", "k2"))
            topic.fill(queue_id, bodies[ROWS // 2 :], tags="odd", properties={"price": "7"})
        yield topic


def load(spark: "SparkSession", options: dict[str, str], **more: str) -> "DataFrame":
    return spark.read.format("rocketmq").options(**options, **more).load()


def read(frame: "DataFrame") -> list[tuple[int, int]]:
    """Queue and offset of every row, sorted."""
    rows = frame.select("queueId", "queueOffset").collect()
    return sorted((row.queueId, row.queueOffset) for row in rows)


def span(queue_id: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(queue_id, offset) for offset in range(start, end)]


EVERYTHING = span(0, 0, ROWS) + span(1, 0, ROWS)


def test_every_column_of_every_row(spark: "SparkSession", topic: Topic) -> None:
    frame = load(spark, topic.options)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        *COLUMNS.items()
    ]
    rows = {(row.queueId, row.queueOffset): row for row in frame.collect()}
    stored = topic.stored()
    assert len(rows) == len(stored) == 2 * ROWS
    for message in stored:
        row = rows[message.queue_id, message.queue_offset]
        assert row.topic == topic.name
        assert row.brokerName == "broker-a"
        assert row.msgId == message.message_id
        assert row.body == message.body
        assert row.keys == (" ".join(message.keys) or None)
        assert row.tags == message.properties["TAGS"]
        assert row.properties == message.properties
        assert row.bornTimestamp.timestamp() * 1000 == pytest.approx(message.born_at_ms, abs=0.5)
        assert row.storeTimestamp.timestamp() * 1000 == pytest.approx(message.stored_at_ms, abs=0.5)
        assert row.bornHost.startswith("127.0.0.1:")
        assert row.reconsumeTimes == 0
        assert row.sysFlag == message.system_flag
        assert row.physicalOffset == message.log_offset


def test_rows_of_a_queue_come_in_order(spark: "SparkSession", topic: Topic) -> None:
    frame = load(spark, topic.options, minPartitions="4")
    parts = frame.select("queueId", "queueOffset").rdd.glom().collect()
    assert len(parts) == 4
    for part in parts:
        assert [tuple(row) for row in part] == sorted(tuple(row) for row in part)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, EVERYTHING),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, EVERYTHING),
        ({"maxOffsetsPerTrigger": "1"}, EVERYTHING),  # of streams only
        (
            {
                "startingOffsets": '{"batch-reads":{"broker-a":{"0":20,"1":-2}}}',
                "endingOffsets": '{"batch-reads":{"broker-a":{"0":-1,"1":30}}}',
            },
            span(0, 20, ROWS) + span(1, 0, 30),
        ),
        ({"subExpression": "even"}, span(0, 0, 150) + span(1, 0, 150)),
        ({"subExpression": "odd || even"}, EVERYTHING),
        ({"sqlFilter": "price > 5"}, span(0, 150, ROWS) + span(1, 150, ROWS)),
        ({"access": "wire", "fetchBytes": "4096"}, EVERYTHING),
    ],
)
def test_options_choose_rows(
    spark: "SparkSession", topic: Topic, more: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    assert read(load(spark, topic.options, **more)) == expected


def test_one_queue_by_assignment(spark: "SparkSession", topic: Topic) -> None:
    options = {"namesrv": topic.namesrv, "assign": json.dumps({topic.name: {"broker-a": [1]}})}
    assert read(load(spark, options)) == span(1, 0, ROWS)


def test_store_times_choose_rows(spark: "SparkSession", topic: Topic) -> None:
    stored = [message for message in topic.stored() if message.queue_id == 0]
    moment_ms = stored[-1].stored_at_ms
    first = next(m.queue_offset for m in stored if m.stored_at_ms == moment_ms)
    assigned = {"namesrv": topic.namesrv, "assign": json.dumps({topic.name: {"broker-a": [0]}})}
    assert read(load(spark, assigned, startingTimestamp=str(moment_ms))) == span(0, first, ROWS)
    assert read(load(spark, assigned, endingTimestamp=str(moment_ms))) == span(0, 0, first)
    by_queue = json.dumps({topic.name: {"broker-a": {"0": moment_ms}}})
    assert read(load(spark, assigned, endingOffsetsByTimestamp=by_queue)) == span(0, 0, first)
    assert read(load(spark, assigned, startingOffsetsByTimestamp=by_queue)) == span(0, first, ROWS)


@pytest.mark.parametrize("more", [{"access": "direct"}, {"maxBytesPerPartition": "64k"}])
def test_files_alone_hold_the_same_rows(
    spark: "SparkSession", cluster: Ariane, topic: Topic, more: dict[str, str]
) -> None:
    files = {"subscribe": topic.name, "storePath": f"broker-a={cluster.store}"}
    assert read(load(spark, files, **more)) == EVERYTHING
    moment_ms = next(m for m in topic.stored() if m.queue_id == 1).stored_at_ms
    ended = load(spark, files, endingTimestamp=str(moment_ms))
    assert all(queue == 0 for queue, _ in read(ended))


def test_topics_by_pattern_and_the_other_name_of_the_format(
    spark: "SparkSession", topic: Topic
) -> None:
    frame = spark.read.format("ariane").options(
        subscribePattern="batch-re.*", nameServer=topic.namesrv
    )
    assert read(frame.load()) == EVERYTHING


@pytest.mark.parametrize(
    ("more", "partitions"),
    [({}, 1), ({"minPartitions": "5"}, 5), ({"maxRecordsPerPartition": "100"}, 6)],
)
def test_partitions(
    spark: "SparkSession", topic: Topic, more: dict[str, str], partitions: int
) -> None:
    frame = load(spark, topic.options, **more)
    assert frame.rdd.getNumPartitions() == partitions
    assert frame.count() == 2 * ROWS


def test_a_schema_is_the_projection(spark: "SparkSession", topic: Topic) -> None:
    frame = (
        spark.read.format("rocketmq")
        .options(**topic.options)
        .schema("body binary, queueOffset bigint NOT NULL, properties map<string,string>")
        .load()
    )
    assert frame.columns == ["body", "queueOffset", "properties"]
    row = frame.where("body = cast('1/299' as binary)").collect()[0]
    assert row.queueOffset == 299
    assert row.properties["price"] == "7"


def test_properties_may_be_dropped(spark: "SparkSession", topic: Topic) -> None:
    assert "properties" not in load(spark, topic.options, includeProperties="false").columns


def failure(run: Any) -> str:
    with pytest.raises(Exception) as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"sqlFilter": "price >"}, "sqlFilter 'price >'"),
        ({"startingOffsets": '{"batch-reads":{"broker-a":{"0":1}}}'}, "queue 1"),
        (
            {"endingOffsets": '{"batch-reads":{"broker-a":{"0":301,"1":1}}}'},
            "wanted offset 301, available 300",
        ),
    ],
)
def test_errors_reach_the_user(
    spark: "SparkSession", topic: Topic, more: dict[str, str], words: str
) -> None:
    assert words in failure(lambda: load(spark, topic.options, **more).count())


def test_a_schema_that_does_not_fit_is_refused(spark: "SparkSession", topic: Topic) -> None:
    reader = spark.read.format("rocketmq").options(**topic.options).schema("body string")
    assert "column body is binary, and the schema says string" in failure(
        lambda: reader.load().count()
    )


def test_a_topic_that_is_not_there(spark: "SparkSession", topic: Topic) -> None:
    words = failure(lambda: load(spark, {**topic.options, "subscribe": "nowhere"}).count())
    assert "topic 'nowhere' does not exist" in words


def test_an_empty_topic_has_no_rows(spark: "SparkSession", cluster: Ariane) -> None:
    with topic_of(cluster.namesrv_address, "batch-empty") as empty:
        assert load(spark, empty.options).collect() == []
    options = {"namesrv": cluster.namesrv_address, "dlqOf": "nobody"}
    assert load(spark, options).collect() == []


def test_a_filter_on_a_frame_stays_with_its_query(spark: "SparkSession", topic: Topic) -> None:
    # Spark 4.3 keeps what it has pushed into a reader for the next query over the same frame.
    key = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "true")
    try:
        frame = load(spark, topic.options)
        assert frame.where("queueOffset >= 200").count() == 2 * (ROWS - 200)
        assert frame.count() == 2 * ROWS
    finally:
        spark.conf.set(key, before or "false")


def test_a_view_in_sql(spark: "SparkSession", topic: Topic) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW batch_reads USING rocketmq "
        f"OPTIONS (subscribe '{topic.name}', namesrv '{topic.namesrv}')"
    )
    try:
        [row] = spark.sql(
            "SELECT count(*) AS rows, max(queueOffset) AS last FROM batch_reads WHERE tags = 'odd'"
        ).collect()
        assert (row.rows, row.last) == (ROWS, ROWS - 1)
    finally:
        spark.catalog.dropTempView("batch_reads")


def test_a_table_in_sql(spark: "SparkSession", topic: Topic) -> None:
    # Spark 4.3 shows the options of a table to a Python source when the table is made, and not
    # when it is read; so they are given with the query.
    options = f"subscribe = '{topic.name}', namesrv = '{topic.namesrv}'"
    spark.sql(f"CREATE TABLE batch_reads USING rocketmq OPTIONS ({options})")
    try:
        [row] = spark.sql(f"SELECT count(*) AS rows FROM batch_reads WITH ({options})").collect()
        assert row.rows == 2 * ROWS
        assert "Spark does not hand the options of a table" in failure(
            lambda: spark.sql("SELECT count(*) FROM batch_reads").collect()
        )
    finally:
        spark.sql("DROP TABLE batch_reads")
