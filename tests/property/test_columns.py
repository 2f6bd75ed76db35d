"""Records as columns, against the slow reader in `protocol` that makes an object of each."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.filters import compile_expression
from ariane.client.records import Record, decode
from ariane.errors import CorruptRecord, ProtocolError
from ariane.kernel.hashing import java_hash
from ariane.protocol.compression import COMPRESSIONS, compress_body
from ariane.protocol.message import (
    StoredMessage,
    decode_records,
    encode_properties,
)
from ariane.spark._columns import (
    STOP_DAMAGED,
    STOP_END_OF_QUEUE,
    STOP_FULL,
    STOP_LOG_MISSING,
    LogView,
)
from ariane.spark.bytes.contract import ReadFilter
from ariane.spark.columns import Batches
from ariane.spark.schema import COLUMNS
from tests.property.test_codecs import stored_messages
from tests.unit.protocol.record_bytes import record_bytes

ALL = tuple(COLUMNS)
MS_MAX = ((1 << 63) - 1) // 1000


def host_text(host: tuple[str, int]) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def microseconds(ms: int) -> int:
    return max(-MS_MAX, min(ms, MS_MAX)) * 1000


def row_of(message: StoredMessage, broker: str = "b") -> dict[str, Any]:
    properties = message.properties
    return {
        "topic": message.topic,
        "brokerName": broker,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body": message.body,
        "properties": list(properties.items()),
        "bornTimestamp": microseconds(message.born_at_ms),
        "storeTimestamp": microseconds(message.stored_at_ms),
        "bornHost": host_text(message.born_host),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.system_flag,
        "physicalOffset": message.log_offset,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python has them, but times as numbers: datetime ends in the year 9999."""
    batch.validate(full=True)
    plain = [
        array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(plain, names=batch.schema.names).to_pylist()


def read(
    data: bytes, columns: Sequence[str] = ALL, rows_per_batch: int = 3, **options: Any
) -> list[dict[str, Any]]:
    first, end = options.pop("window", (0, (1 << 63) - 1))
    batches = Batches(columns, broker="b", rows_per_batch=rows_per_batch, **options)
    batches.gatherer.begin(first, end)
    position, rows = 0, []
    while position < len(data):
        position = batches.gatherer.walk(data, position)
        assert batches.gatherer.row_count <= rows_per_batch
        rows += rows_of(batches.batch())
    return rows


def numbered(drawn: list[tuple[StoredMessage, int]]) -> bytes:
    """Records whose queue offsets rise, as in a queue."""
    for i, (message, _) in enumerate(drawn):
        message.queue_offset = i
    return b"".join(record_bytes(message, magic=magic) for message, magic in drawn)


@given(st.lists(stored_messages(), max_size=8), st.permutations(ALL), st.integers(1, len(ALL)))
def test_columns_are_what_the_slow_reader_reads(
    drawn: list[tuple[StoredMessage, int]], order: list[str], count: int
) -> None:
    data = numbered(drawn)
    columns = order[:count]
    expected = [row_of(message) for message in decode_records(data)]
    assert read(data, columns) == [{name: row[name] for name in columns} for row in expected]


@given(st.lists(stored_messages(), min_size=1, max_size=8), st.integers(0, 9), st.integers(0, 9))
def test_no_row_is_outside_the_window_and_none_comes_twice(
    drawn: list[tuple[StoredMessage, int]], first: int, end: int
) -> None:
    data = numbered(drawn)
    expected = list(range(len(drawn)))[first:end] if first < end else []
    for shown in (data, data + data):
        rows = read(shown, ["queueOffset"], window=(first, end))
        assert [row["queueOffset"] for row in rows] == expected


def plain(properties: bytes = b"", body: bytes = b"body", **fields: Any) -> bytes:
    """One record with properties as they are."""
    message = StoredMessage(
        **{
            "topic": "t", "queue_id": 0, "queue_offset": 0, "log_offset": 0, "size": 0, "flag": 0,
            "system_flag": 0, "body_crc32": 0, "born_at_ms": 0, "born_host": ("127.0.0.1", 1),
            "stored_at_ms": 1, "store_host": ("127.0.0.1", 1), "reconsume_times": 0,
            "prepared_offset": 0, "stored_body": body, "properties": {}, **fields,
        }
    )  # fmt: skip
    empty = record_bytes(message)
    data = empty[:-2] + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(data)) + data[4:]


MARKS = st.lists(
    st.sampled_from([b"\x00", b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"a",
                     "\u20ac".encode(), b"\xff", b"\xe2\x82", b"x" * 9]),
    max_size=30,
).map(b"".join)  # fmt: skip


@given(st.binary(max_size=80) | MARKS)
def test_properties_of_any_bytes(text: bytes) -> None:
    data = plain(text)
    (record,) = decode(data, Record)
    (row,) = read(data)
    assert dict(row["properties"]) == record.properties
    assert len(row["properties"]) == len(record.properties)
    assert row["keys"] == record.properties.get("KEYS")
    assert row["tags"] == record.properties.get("TAGS")
    assert row["msgId"] == record.properties.get("UNIQ_KEY", "7F00000100000001" + "0" * 16)


def test_more_properties_than_most_have() -> None:
    properties = {f"name{i}": str(i) for i in range(500)} | {"KEYS": "k"}
    (row,) = read(plain(encode_properties(properties).encode()))
    assert dict(row["properties"]) == properties
    assert row["keys"] == "k"


@given(st.lists(stored_messages(), min_size=1, max_size=3), st.data())
def test_what_is_cut_or_changed_is_an_error_or_rows_but_never_a_crash(
    drawn: list[tuple[StoredMessage, int]], data: st.DataObject
) -> None:
    whole = numbered(drawn)
    last = len(record_bytes(drawn[-1][0], magic=drawn[-1][1]))
    with pytest.raises(ProtocolError):
        read(whole[: data.draw(st.integers(len(whole) - last + 1, len(whole) - 1))])
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(changed))
    except ProtocolError:
        return


@given(st.binary(max_size=400))
def test_bytes_that_are_no_records(data: bytes) -> None:
    try:
        read(data)
    except ProtocolError:
        return
    assert not data


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_bodies_come_inflated(kind: Any) -> None:
    body = b"squeeze me " * 100
    data = plain(body=compress_body(body, kind), system_flag=COMPRESSIONS[kind]) + plain(
        queue_offset=1
    )
    assert [row["body"] for row in read(data)] == [body, b"body"]


def test_a_body_that_cannot_be_inflated_says_which_it_is() -> None:
    data = plain(body=b"no zlib", system_flag=1, queue_id=3, queue_offset=7)
    with pytest.raises(ProtocolError, match="queue 3, queue offset 7"):
        read(data)
    assert [row["queueOffset"] for row in read(data, ["queueOffset"])] == [7]


def test_a_batch_of_bombs_is_cut_short() -> None:
    bomb = compress_body(bytes(30 << 20), "zlib")
    data = b"".join(plain(body=bomb, system_flag=1, queue_offset=i) for i in range(4))
    batches = Batches(["body"], broker="b", rows_per_batch=10)
    batches.gatherer.begin(0, 4)
    position = batches.gatherer.walk(data, 0)
    assert batches.gatherer.row_count == 2
    assert position == len(data) // 2


def test_a_wrong_crc_is_found_when_asked_for() -> None:
    data = plain(body=b"a", body_crc32=1756872259)
    assert len(read(data, check_crc=True)) == 1
    broken = plain(body=b"b", body_crc32=1756872259)
    assert len(read(broken)) == 1
    with pytest.raises(CorruptRecord, match="queue offset 0"):
        read(broken, check_crc=True)


@given(st.lists(st.sampled_from(["A", "B", "AaBB", "BBAa", ""]), max_size=12))
def test_tags_are_compared_to_the_letter(tags: list[str]) -> None:
    assert java_hash("AaBB") == java_hash("BBAa")  # a code cannot tell these two apart
    data = b"".join(
        plain(f"TAGS\x01{tag}\x02".encode() if tag else b"", queue_offset=i)
        for i, tag in enumerate(tags)
    )
    rows = read(data, message_filter=ReadFilter("A || AaBB"))
    expected = [i for i, tag in enumerate(tags) if tag in ("A", "AaBB")]
    assert [row["queueOffset"] for row in rows] == expected


@given(st.lists(st.integers(0, 9), max_size=12))
def test_expressions(values: list[int]) -> None:
    data = b"".join(
        plain(f"a\x01{value}\x02".encode(), queue_offset=i) for i, value in enumerate(values)
    )
    rows = read(data, message_filter=ReadFilter("a > 4", "SQL92"))
    program = compile_expression("a > 4", "SQL92")
    expected = [i for i, value in enumerate(values) if program.accepts(f"a\x01{value}".encode())]
    assert [row["queueOffset"] for row in rows] == expected


class Store:
    """A log of two segments and the entries of one queue, in memory."""

    def __init__(self, count: int) -> None:
        self.entries = bytearray()
        self.view = LogView()
        self.segments = [bytearray(), bytearray()]
        self.base = 10_000
        for i in range(count):
            segment = self.segments[i >= count // 2]
            where = self.base * (i >= count // 2) + len(segment)
            record = plain(
                f"TAGS\x01T{i % 3}\x02".encode(), body=b"x" * i, queue_offset=i, log_offset=where
            )
            segment += record
            self.entries += struct.pack(">qiq", where, len(record), java_hash(f"T{i % 3}"))
        self.segments = [part + bytes(self.base - len(part)) for part in self.segments]

    def follow(self, first: int, **options: Any) -> tuple[list[int], int, int]:
        batches = Batches(["queueOffset"], broker="b", rows_per_batch=100, **options)
        batches.gatherer.begin(first, 1000)
        used = batches.gatherer.follow(self.view, self.entries[first * 20 :], b"t", 0)
        assert batches.gatherer.next_offset == first + used
        offsets = [row["queueOffset"] for row in rows_of(batches.batch())]
        return offsets, batches.gatherer.stop, batches.gatherer.next_offset


def test_entries_are_followed_until_a_segment_is_missing() -> None:
    store = Store(20)
    store.view.add(0, store.segments[0])
    assert store.follow(3) == (list(range(3, 10)), STOP_LOG_MISSING, 10)
    store.view.add(10_000, store.segments[1])
    assert store.follow(3) == (list(range(3, 20)), STOP_FULL, 20)
    store.entries += bytes(40)
    assert store.follow(3) == (list(range(3, 20)), STOP_END_OF_QUEUE, 20)
    assert store.follow(0, message_filter=ReadFilter("T1"))[0] == list(range(1, 20, 3))
    assert store.view.drop_oldest() == 0
    assert store.follow(3)[1:] == (STOP_LOG_MISSING, 3)


def test_padding_is_stepped_over() -> None:
    store = Store(20)
    for i, segment in enumerate(store.segments):
        store.view.add(10_000 * i, segment)
    store.entries[:60] = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 3
    assert store.follow(0)[0] == list(range(3, 20))


def test_a_code_that_is_no_hash_leaves_it_to_the_record() -> None:
    store = Store(6)
    for i, segment in enumerate(store.segments):
        store.view.add(10_000 * i, segment)
    for i in range(6):  # as where RocketMQ keeps more than a code in its extension files
        struct.pack_into(">q", store.entries, i * 20 + 12, -(1 << 31) - 2 - i)
    assert store.follow(0, message_filter=ReadFilter("T1"))[0] == [1, 4]


@given(st.data())
def test_entries_and_records_that_lie_stop_or_are_true_but_never_crash(data: st.DataObject) -> None:
    store = Store(20)
    for part in (store.entries, *store.segments):
        for _ in range(data.draw(st.integers(0, 3))):
            part[data.draw(st.integers(0, min(len(part), 2000) - 1))] = data.draw(
                st.integers(0, 255)
            )
    for i, segment in enumerate(store.segments):
        store.view.add(10_000 * i, segment)
    offsets, stop, next_offset = store.follow(0)
    assert stop in (STOP_FULL, STOP_END_OF_QUEUE, STOP_LOG_MISSING, STOP_DAMAGED)
    assert set(offsets) <= set(range(next_offset))
    assert offsets == sorted(offsets)


def test_times_are_utc() -> None:
    batches = Batches(["bornTimestamp"], broker="b", rows_per_batch=1)
    batches.gatherer.begin(0, 1)
    batches.gatherer.walk(plain(born_at_ms=1_700_000_000_123), 0)
    (value,) = batches.batch().column(0).to_pylist()
    assert value == datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=123)
