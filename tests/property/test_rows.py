"""The kernel's encoder of Arrow columns against a slow, obvious twin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.client.messages import OWN_PROPERTIES
from ariane.client.queues import by_hash
from ariane.errors import InvalidMessage
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.message import decode_batch
from ariane.protocol.properties import decode_properties
from ariane.spark import rows
from ariane.spark.rows import Chunker, key_head_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUEUE_COUNTS = {"T": 3, "U": 1, "V": 7}
TEXT = st.text(
    st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), max_size=12
)
NAME = st.one_of(
    st.sampled_from([*sorted(OWN_PROPERTIES)[:6], "KEYS", "UNIQ_KEY"]), TEXT.filter(bool)
)


@dataclass(frozen=True)
class Row:
    body: bytes
    topic: str
    keys: str | None
    tags: str | None
    properties: dict[str, str | None] | None
    queue_id: int | None
    sharding_key: str | None
    deliver_at: datetime | None


ROW = st.builds(
    Row,
    body=st.binary(min_size=1, max_size=40),
    topic=st.sampled_from(sorted(QUEUE_COUNTS)),
    keys=st.none() | TEXT,
    tags=st.none() | TEXT,
    properties=st.none() | st.dictionaries(NAME, st.none() | TEXT, max_size=4),
    queue_id=st.none() | st.just(0),
    sharding_key=st.none() | TEXT,
    deliver_at=st.none()
    | st.integers(0, 1 << 41).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
)


def queues_of(topic: str) -> list[MessageQueue]:
    return [
        MessageQueue(topic=topic, broker_name="b", queue_id=number)
        for number in range(QUEUE_COUNTS[topic])
    ]


def batch_of(given: list[Row], padding: int) -> pa.RecordBatch:
    """The rows as a slice of a batch with others before it, so that no buffer begins at zero."""
    filler = [given[0]] * padding
    every = [*filler, *given]
    text_map = pa.map_(pa.string(), pa.string())
    maps = [None if row.properties is None else list(row.properties.items()) for row in every]
    whole = pa.record_batch(
        {
            "body": pa.array([row.body for row in every], pa.binary()),
            "topic": pa.array([row.topic for row in every], pa.string()),
            "keys": pa.array([row.keys for row in every], pa.string()),
            "tags": pa.array([row.tags for row in every], pa.string()),
            "properties": pa.array(maps, text_map),
            "queueId": pa.array([row.queue_id for row in every], pa.int32()),
            "shardingKey": pa.array([row.sharding_key for row in every], pa.string()),
            "deliverAt": pa.array([row.deliver_at for row in every], pa.timestamp("us", tz="UTC")),
        }
    )
    return whole.slice(padding)


def twin(row: Row, number: int) -> dict[str, str]:
    """The properties a row has as a message."""
    found = {
        name: value
        for name, value in (row.properties or {}).items()
        if value and name not in OWN_PROPERTIES
    }
    if row.keys:
        found["KEYS"] = row.keys
    if row.tags:
        found["TAGS"] = row.tags
    if row.sharding_key:
        found["__SHARDINGKEY"] = row.sharding_key
    if row.deliver_at is not None:
        found["TIMER_DELIVER_MS"] = str(round((row.deliver_at - EPOCH) / timedelta(milliseconds=1)))
    found["UNIQ_KEY"] = f"{key_head_of('q/0/0').decode()}{number:012X}"
    return found


@settings(max_examples=80)
@given(
    parts=st.lists(
        st.tuples(st.lists(ROW, min_size=1, max_size=12), st.integers(0, 9)), max_size=4
    ),
    chunk_bytes=st.sampled_from([200, 700, 1 << 20]),
    held_bytes=st.sampled_from([600, 1 << 26]),
)
def test_chunks_hold_every_row_in_order_where_it_belongs(
    parts: list[tuple[list[Row], int]], chunk_bytes: int, held_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(rows, "HELD_BYTES_MAX", held_bytes)
        patch.setattr(rows, "LATE_ROWS_MAX", 3)
        columns = batch_of([Row(b"x", "T", None, None, None, None, None, None)], 0).schema.names
        chunker = Chunker(
            {name: name for name in columns}, None, queues_of, identity="q/0/0", partition=0
        )
        chunks = [
            chunk for given, padding in parts for chunk in chunker.add(batch_of(given, padding))
        ]
        chunks += chunker.finish()
    every = [row for given, _ in parts for row in given]
    seen: list[int] = []
    last: dict[tuple[str, int, bool], int] = {}
    for chunk in chunks:
        entries = decode_batch(chunk.body)
        assert len(entries) == chunk.row_count > 0
        for entry in entries:
            properties = decode_properties(entry.properties)
            number = int(properties["UNIQ_KEY"][-12:], 16)
            row = every[number]
            seen.append(number)
            assert (entry.body, entry.flag) == (row.body, 0)
            assert properties == twin(row, number)
            assert chunk.queue.topic == row.topic
            assert chunk.is_late == (row.deliver_at is not None)
            if row.queue_id is not None:
                assert chunk.queue.queue_id == row.queue_id
            elif row.sharding_key is not None:
                assert chunk.queue == by_hash(row.sharding_key)(queues_of(row.topic))
            else:
                continue
            place = (row.topic, chunk.queue.queue_id, chunk.is_late)
            assert number > last.get(place, -1), "in the order of rows"
            last[place] = number
    assert sorted(seen) == list(range(len(every)))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": pa.array([b"a", None])}, "row 1 of partition 4: the body is null"),
        ({"body": [b"a", b""]}, "row 1 of partition 4: the body is empty"),
        ({"body": [b"a" * (4 << 20), b"b"]}, "row 0 of partition 4: the body is longer"),
        ({"body": [b"a", b"b"], "tags": ["x", "y\x02"]}, "row 1 of partition 4: a key, tag"),
        ({"body": [b"a", b"b"], "keys": ["x\x01", "y"]}, "row 0 of partition 4: a key, tag"),
        ({"body": [b"a", b"b"], "keys": ["x" * 33_000, "y"]}, "take more than 32000 bytes"),
        (
            {"body": [b"a", b"b"], "queueId": pa.array([0, 3], pa.int32())},
            "row 1 of partition 4: the topic has no such queueId",
        ),
        (
            {
                "body": [b"a"],
                "properties": pa.array([[("", "x")]], pa.map_(pa.string(), pa.string())),
            },
            "a property has no name",
        ),
    ],
)
def test_rows_that_cannot_be_messages_are_named(columns: dict[str, object], said: str) -> None:
    chunker = Chunker({name: name for name in columns}, "T", queues_of, identity="i", partition=4)
    with pytest.raises(InvalidMessage, match=said):
        chunker.add(pa.record_batch(columns))


def test_columns_that_do_not_hold_what_they_say_are_refused() -> None:
    """Nothing outside of a buffer is ever read."""
    with pytest.raises(ValueError, match="too short"):
        rows.Texts(None, b"\0" * 4, b"", 0, 1)
    with pytest.raises(ValueError, match="too short"):
        rows.Texts(None, b"\0\0\0\0\x09\0\0\0", b"abc", 0, 1)
    with pytest.raises(ValueError, match="step back"):
        rows.Texts(None, b"\x02\0\0\0\x01\0\0\0\x03\0\0\0", b"abc", 0, 2)
    with pytest.raises(ValueError, match="lacks a buffer"):
        rows.Texts(None, None, b"abc", 0, 1)
    with pytest.raises(ValueError, match="too short"):
        rows.Numbers(None, b"\0" * 7, 0, 2, 4)
