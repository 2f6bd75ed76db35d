"""The sink without Spark: record batches in, messages of a real broker within this process out."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ConfigError, InvalidMessage, RouteNotFound
from ariane.spark import broker_talk, writer, writing
from ariane.spark.broker_talk import talk_to
from ariane.spark.parts import Batch, WrittenPart
from ariane.spark.writer import stream_writer
from ariane.spark.writing import parts_of, publish_parts, write_part
from ariane.sync import Client
from ariane.testing import EmbeddedBroker

TEXT_MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture(autouse=True)
def _own_connections(ariane_broker: EmbeddedBroker) -> Iterator[None]:
    """Connections are kept for as long as a process lives; these brokers are not."""
    writing._warned.clear()
    yield
    talk_to((ariane_broker.name_server,)).close()
    broker_talk.talk_to.cache_clear()


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp_ntz": TimestampNTZType(),
    "map<string,int>": MapType(StringType(), IntegerType()),
}


def schema_of(text: str) -> StructType:
    """A schema in Spark's words; Spark's own reader of them needs Java."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        schema.add(name, TYPES[kind])
    return schema


def options(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    return {"namesrv": broker.name_server, "topic": "T", "timeout": "20s", **more}


def bodies(broker: EmbeddedBroker, topic: str = "T") -> list[str]:
    return [message.body.decode() for message in broker.published(topic)]


def batch_of(*rows: str, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"body": list(rows), **columns})


def write(
    broker: EmbeddedBroker, *batches: pa.RecordBatch, number: int = 0, **more: str
) -> WrittenPart:
    """Stage as a task of a stream does."""
    sink = stream_writer(options(broker, **more), schema_of("body string, topic string"))
    columns = {name: name for name in batches[0].schema.names}
    part = write_part(sink.options, columns, Batch("query", number), iter(batches))
    copy: WrittenPart = pickle.loads(pickle.dumps(part))  # as it travels to the driver
    return copy


def commit(broker: EmbeddedBroker, *parts: WrittenPart, number: int = 0) -> None:
    stream_writer(options(broker), schema_of("body string")).commit(list(parts), number)


def test_rows_are_seen_once_they_are_committed_and_not_again(ariane_broker: EmbeddedBroker) -> None:
    part = write(ariane_broker, batch_of("a", "b"), batch_of("c"))
    assert bodies(ariane_broker) == []
    commit(ariane_broker, part)
    assert bodies(ariane_broker) == ["a", "b", "c"]
    commit(ariane_broker, write(ariane_broker, batch_of("a", "b", "c")))
    assert bodies(ariane_broker) == ["a", "b", "c"]
    commit(ariane_broker, write(ariane_broker, batch_of("d"), number=1), number=1)
    assert sorted(bodies(ariane_broker)) == ["a", "b", "c", "d"]


def test_a_task_that_failed_or_was_never_asked_for_leaves_nothing(
    ariane_broker: EmbeddedBroker,
) -> None:
    write(ariane_broker, batch_of("lost"))
    with pytest.raises(InvalidMessage, match="row 1 of partition 0: the body is null"):
        write(ariane_broker, pa.record_batch({"body": ["x", None]}))
    commit(ariane_broker, write(ariane_broker, batch_of("kept")))
    assert bodies(ariane_broker) == ["kept"]


def test_a_broker_killed_between_the_phases_has_everything(ariane_broker: EmbeddedBroker) -> None:
    part = write(ariane_broker, batch_of("a", "b"))
    ariane_broker.restart(kill=True)
    commit(ariane_broker, part)
    ariane_broker.restart(kill=True)
    commit(ariane_broker, part)
    assert bodies(ariane_broker) == ["a", "b"]


@pytest.mark.parametrize("how", ["refuse", "disconnect"])
@pytest.mark.parametrize("request_name", ["STAGE_CHUNK", "PUBLISH_BATCH", "PUBLISHED_BATCH"])
def test_requests_that_go_wrong_are_made_again(
    ariane_broker: EmbeddedBroker, request_name: str, how: Any
) -> None:
    talk_to((ariane_broker.name_server,)).can_stage(5.0)
    ariane_broker.fail(request_name, how=how, code=ResponseCode.SYSTEM_BUSY, times=2)
    commit(ariane_broker, write(ariane_broker, batch_of("a", "b")))
    assert bodies(ariane_broker) == ["a", "b"]


def test_an_answer_that_was_lost_does_not_double_a_batch(ariane_broker: EmbeddedBroker) -> None:
    part = write(ariane_broker, batch_of("a", "b"))
    ariane_broker.fail("PUBLISH_BATCH", how="lose")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_talk, "REQUEST_TIMEOUT_S", 0.3)
        commit(ariane_broker, part)
    assert bodies(ariane_broker) == ["a", "b"]


def test_a_job_that_is_aborted_is_never_published(ariane_broker: EmbeddedBroker) -> None:
    sink = writer.writer(options(ariane_broker), schema_of("body string"), overwrite=False)
    part = sink.write(iter([batch_of("a")]))
    sink.abort([part])
    with pytest.raises(ClientError, match="was discarded"):
        sink.commit([part])
    assert bodies(ariane_broker) == []


def test_a_job_has_a_name_of_its_own(ariane_broker: EmbeddedBroker) -> None:
    for _ in range(2):
        sink = writer.writer(options(ariane_broker), schema_of("body string"), overwrite=False)
        sink.commit([sink.write(iter([batch_of("a")])), None])
    assert bodies(ariane_broker) == ["a", "a"]


def test_a_batch_with_a_name_is_written_once_to_each_topic(ariane_broker: EmbeddedBroker) -> None:
    """As in foreachBatch, which Spark may call again; the good go here and the bad there."""
    for topic in ("good", "bad", "good"):
        told = options(ariane_broker, topic=topic, queryId="triage", batchId="7")
        sink = writer.writer(told, schema_of("body string"), overwrite=False)
        sink.commit([sink.write(iter([batch_of(topic)]))])
    assert (bodies(ariane_broker, "good"), bodies(ariane_broker, "bad")) == (["good"], ["bad"])


@pytest.mark.ariane(autoCreateTopicEnable=False)
def test_a_topic_that_no_broker_has_is_not_waited_for_as_long_as_a_broker(
    ariane_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_talk, "ABSENT_TIMEOUT_S", 0.5)
    begun_s = time.monotonic()
    with pytest.raises(RouteNotFound, match="'T' does not exist; create it with"):
        write(ariane_broker, batch_of("a"), timeout="60s")
    assert time.monotonic() - begun_s < 30


def test_every_column_has_its_place(ariane_broker: EmbeddedBroker) -> None:
    later = ariane_broker.now + timedelta(seconds=10)
    rows = pa.record_batch(
        {
            "body": pa.array([b"one", b"two", b"three"]),
            "topic": ["T", "U", "T"],
            "keys": ["k1 k2", None, ""],
            "tags": ["red", None, "blue"],
            "properties": pa.array(
                [[("a", "1"), ("UNIQ_KEY", "old"), ("none", None)], None, []], TEXT_MAP
            ),
            "queueId": pa.array([3, None, None], pa.int32()),
            "shardingKey": [None, None, "s"],
            "deliverAt": pa.array([None, None, later], pa.timestamp("us", tz="UTC")),
        }
    )
    commit(ariane_broker, write(ariane_broker, rows, topic=""))
    (one,) = ariane_broker.published("T")
    assert (one.body, one.queue_id) == (b"one", 3)
    assert one.properties["KEYS"] == "k1 k2"
    assert one.properties["TAGS"] == "red"
    assert one.properties["a"] == "1"
    assert one.properties["UNIQ_KEY"] != "old"
    assert "none" not in one.properties
    (two,) = ariane_broker.published("U")
    assert set(two.properties) == {"UNIQ_KEY"}
    ariane_broker.advance(15)
    _, three = ariane_broker.published("T")
    assert (three.body, three.properties["__SHARDINGKEY"]) == (b"three", "s")


def test_what_was_read_can_be_written_with_its_keys_and_tags(
    ariane_broker: EmbeddedBroker,
) -> None:
    """Without columns of their own they come from the map; the broker's own are left out."""
    own = [("KEYS", "k"), ("TAGS", "t"), ("UNIQ_KEY", "u"), ("MSG_REGION", "r"), ("CLUSTER", "c")]
    part = write(ariane_broker, batch_of("a", properties=pa.array([own], TEXT_MAP)))
    commit(ariane_broker, part)
    (message,) = ariane_broker.published("T")
    assert message.properties["KEYS"] == "k"
    assert message.properties["TAGS"] == "t"
    assert set(message.properties) == {"KEYS", "TAGS", "UNIQ_KEY"}


def test_a_broker_that_cannot_stage_gets_rows_at_once_with_keys_that_stay(
    ariane_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    ariane_broker.fail("PUBLISHED_BATCH", code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, times=None)
    later = ariane_broker.now + timedelta(seconds=10)
    times = pa.array([None, None, later], pa.timestamp("us", tz="UTC"))
    rows = batch_of("a", "b", "c", deliverAt=times)
    part = write(ariane_broker, rows)
    assert bodies(ariane_broker) == ["a", "b"]
    commit(ariane_broker, part)
    write(ariane_broker, rows)
    ariane_broker.advance(15)
    found = ariane_broker.published("T")
    assert sorted(message.body for message in found) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert len({message.properties["UNIQ_KEY"] for message in found}) == 3
    assert caplog.text.count("at least once") == 1
    assert ariane_broker.requests(RequestCode.STAGE_CHUNK) == 0


def test_exactly_once_is_refused_early_where_it_cannot_be(ariane_broker: EmbeddedBroker) -> None:
    ariane_broker.fail("PUBLISHED_BATCH", code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, times=None)
    told = options(ariane_broker, guarantee="exactly-once")
    with pytest.raises(ConfigError, match="needs Ariane's brokers"):
        writer.writer(told, schema_of("body string"), overwrite=False)
    with pytest.raises(ConfigError, match="needs Ariane's brokers"):
        write(ariane_broker, batch_of("a"), guarantee="exactly-once")
    assert bodies(ariane_broker) == []


def test_at_least_once_when_asked_for(ariane_broker: EmbeddedBroker) -> None:
    write(ariane_broker, batch_of("a"), guarantee="at-least-once")
    assert bodies(ariane_broker) == ["a"]


def test_chunks_go_to_the_queues_in_turn_and_keep_the_order_of_rows(
    ariane_broker: EmbeddedBroker,
) -> None:
    with Client(ariane_broker.name_server) as client:
        client.admin.create_topic("T", write_queue_count=3)
    rows = [f"{number:05d}{'x' * 500}" for number in range(9000)]
    batches = [batch_of(*rows[first : first + 1000]) for first in range(0, 9000, 1000)]
    commit(ariane_broker, write(ariane_broker, *batches))
    found = ariane_broker.published("T")
    assert sorted(message.body.decode() for message in found) == rows
    for queue_id in range(3):
        held = [message.body for message in found if message.queue_id == queue_id]
        assert held == sorted(held)
        assert len(held) > 1000


def test_parts_are_published_in_the_order_of_partitions(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        client.admin.create_topic("T", write_queue_count=1)
    sink = stream_writer(options(ariane_broker), schema_of("body string"))
    parts = []
    for partition in (2, 0, 1):
        part = write(ariane_broker, batch_of(f"part{partition}"))
        part.partition = partition
        parts.append(part)
    assert [part.partition for part in parts_of(parts)] == [0, 1, 2]
    # The chunks all say partition 0; of one partition only one attempt may be published.
    with pytest.raises(ClientError, match="where chunk 1 belongs"):
        publish_parts(sink.options, Batch("query", 0), parts_of(parts))
    assert bodies(ariane_broker) == []


@pytest.mark.parametrize(
    ("columns", "more", "said"),
    [
        ("body int", {}, "body must be string or binary, not int"),
        ("body string, colour string", {}, "no column 'colour'; it takes body, topic"),
        ("body string, BODY string", {}, "twice"),
        ("tags string", {}, "needs a column body"),
        ("body string", {"topic": ""}, "which topic"),
        ("body string, queueId bigint", {}, "queueId must be int or smallint or tinyint"),
        ("body string, properties map<string,int>", {}, "must be map<string,string>"),
        ("body string, deliverAt timestamp_ntz", {}, "must be timestamp, not timestamp_ntz"),
        ("body string", {"topc": "T"}, "did you mean topic"),
        ("body string", {"guarantee": "often"}, "guarantee must be one of auto"),
        ("body string", {"topic": "a b"}, "may only hold"),
        ("body string", {"topic": "rmq_sys_x"}, "belongs to the broker"),
        ("body string", {"nameServer": "127.0.0.1:1"}, "two names of one option"),
        ("body string", {"timeout": "0s"}, "timeout must be 1ms or longer"),
        ("body string", {"queryId": "q"}, "queryId and batchId name a batch together"),
        ("body string", {"queryId": "a/b", "batchId": "1"}, "queryId 'a/b' must be 1 to 100"),
    ],
)
def test_what_the_sink_cannot_do_is_said_before_anything_runs(
    ariane_broker: EmbeddedBroker, columns: str, more: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        stream_writer(options(ariane_broker, **more), schema_of(columns))


def test_a_job_that_would_overwrite_is_refused(ariane_broker: EmbeddedBroker) -> None:
    with pytest.raises(ConfigError, match="only added to"):
        writer.writer(options(ariane_broker), schema_of("body string"), overwrite=True)


def test_a_stream_outside_of_spark_is_refused(ariane_broker: EmbeddedBroker) -> None:
    sink = stream_writer(options(ariane_broker), schema_of("body string"))
    with pytest.raises(ClientError, match="did not say which batch"):
        sink.write(iter([batch_of("a")]))
