"""Records, batches, properties, ids and tags, against captures and by hand."""

from __future__ import annotations

import struct
import zlib
from random import Random

import lz4.frame
import pytest
import zstandard

from ariane.clock import ManualClock
from ariane.errors import ProtocolError
from ariane.kernel.hashing import crc32
from ariane.protocol.message import (
    MAGIC_V1,
    MAGIC_V2,
    BatchEntry,
    StoredMessage,
    UniqueKeys,
    decode_batch,
    decode_host,
    decode_offset_id,
    decode_properties,
    decode_records,
    encode_batch,
    encode_host,
    encode_offset_id,
    encode_properties,
    tags_code_of,
)
from tests.golden.frames import golden_frames
from tests.unit.protocol.record_bytes import record_bytes


def message(**changes: object) -> StoredMessage:
    values: dict[str, object] = {
        "topic": "T",
        "queue_id": 3,
        "queue_offset": 7,
        "log_offset": 1 << 33,
        "size": 0,
        "flag": -5,
        "system_flag": 0,
        "body_crc32": 99,
        "born_at_ms": 1_700_000_000_000,
        "born_host": ("10.0.0.2", 50_000),
        "stored_at_ms": 1_700_000_000_001,
        "store_host": ("10.0.0.1", 10_911),
        "reconsume_times": 2,
        "prepared_offset": -1,
        "stored_body": b"body \xff",
        "properties": {"KEYS": "a b", "TAGS": "t", "UNIQ_KEY": "U"},
        **changes,
    }
    return StoredMessage(**values)  # type: ignore[arg-type]


RECORDS = {
    "IPv4": (message(), MAGIC_V1),
    "two bytes of topic length": (message(topic="t" * 200), MAGIC_V2),
    "V1 with a topic over 127 bytes": (message(topic="t" * 200), MAGIC_V1),
    "born on IPv6": (message(system_flag=0x10, born_host=("2001:db8::1", 1)), MAGIC_V1),
    "stored on IPv6": (message(system_flag=0x20, store_host=("::1", 65_535)), MAGIC_V1),
    "both IPv6, nothing in it": (
        message(
            system_flag=0x30,
            born_host=("::", 0),
            store_host=("fe80::1", 0),
            stored_body=b"",
            properties={},
            topic="",
        ),
        MAGIC_V2,
    ),
    "text beyond ASCII": (message(properties={"n\u00e4me": "\u20ac\U0001f600"}), MAGIC_V1),
}


@pytest.mark.parametrize(("stored", "magic"), RECORDS.values(), ids=RECORDS)
def test_record_is_read(stored: StoredMessage, magic: int) -> None:
    data = record_bytes(stored, magic=magic)
    stored.size = len(data)
    assert decode_records(data) == [stored]
    assert decode_records(data * 3) == [stored] * 3
    for end in range(1, len(data)):
        with pytest.raises(ProtocolError):
            decode_records(data[:end])


def test_no_records() -> None:
    assert decode_records(b"") == []


def test_golden_records() -> None:
    count = 0
    for golden in golden_frames():
        if golden.code not in (11, 12, 33) or not golden.is_success or not golden.body_is_whole:
            continue
        for found in decode_records(golden.body):
            assert found.body_crc32 == crc32(found.stored_body)
            assert found.store_host == ("127.0.0.1", 33_911)
            assert found.message_id == found.properties["UNIQ_KEY"]
            assert decode_offset_id(found.offset_message_id) == (found.store_host, found.log_offset)
            count += 1
    assert count > 30


def test_golden_sends_name_the_offset_id() -> None:
    replies = [g.ext["msgId"] for g in golden_frames() if g.code in (10, 310) and g.is_success]
    assert replies
    for text in replies:
        host, log_offset = decode_offset_id(text)
        assert encode_offset_id(host, log_offset) == text


BAD_RECORDS = {
    "size too small": record_bytes(message(), size=20),
    "size too large": record_bytes(message(), size=1000),
    "negative size": record_bytes(message(), size=-1),
    "blank magic": record_bytes(message(), magic=0xCBD43194),
    "no magic": record_bytes(message(), magic=0),
    "IPv6 flag on an IPv4 record": record_bytes(message(system_flag=0x10)),
    "negative body": record_bytes(message()).replace(
        struct.pack(">i", 6) + b"body", struct.pack(">i", -6) + b"body"
    ),
    "huge body": record_bytes(message()).replace(
        struct.pack(">i", 6) + b"body", struct.pack(">i", 2**31 - 1) + b"body"
    ),
}


@pytest.mark.parametrize("data", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_bad_record_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_records(data)


def test_what_is_not_utf8_is_replaced_and_nothing_else() -> None:
    written = record_bytes(message(topic="\u20ac", properties={"\u20ac": "v", "k": "w\u20ac"}))
    (found,) = decode_records(written.replace(b"\xe2\x82\xac", b"\xd6\xd0!"))  # GBK
    assert found.topic == "\ufffd\ufffd!"
    assert found.properties == {"\ufffd\ufffd!": "v", "k": "w\ufffd\ufffd!"}
    assert decode_batch(b"\0\0\0\x18" + bytes(16) + b"\0\x02\xd6\xd0") == [
        BatchEntry(body=b"", properties="\ufffd\ufffd")
    ]


def test_names_of_a_message() -> None:
    named = message()
    assert (named.message_id, named.tags, named.keys) == ("U", "t", ["a", "b"])
    bare = message(properties={})
    assert bare.message_id == bare.offset_message_id == "0A00000100002A9F0000000200000000"
    assert (bare.tags, bare.keys) == (None, [])


BODY = b"a body that is worth compressing " * 100
COMPRESSED = {
    "zlib": (0x301, zlib.compress(BODY, 5)),
    "zlib of an old client": (0x1, zlib.compress(BODY)),
    "LZ4": (0x101, lz4.frame.compress(BODY)),
    "Zstandard": (0x201, zstandard.ZstdCompressor().compress(BODY)),
    "Zstandard of unknown size": (
        0x201,
        zstandard.ZstdCompressor(write_content_size=False).compress(BODY),
    ),
}


@pytest.mark.parametrize(("system_flag", "data"), COMPRESSED.values(), ids=COMPRESSED)
def test_compressed_body(system_flag: int, data: bytes) -> None:
    stored = message(system_flag=system_flag, stored_body=data)
    (found,) = decode_records(record_bytes(stored))
    assert found.stored_body == data
    assert found.body == found.body == BODY
    broken = message(system_flag=system_flag, stored_body=b"\x00" + data[1:])
    with pytest.raises(ProtocolError):
        _ = broken.body
    short = message(system_flag=system_flag, stored_body=data[:-5])
    with pytest.raises(ProtocolError):
        _ = short.body


BOMBS = {
    "zlib": (0x301, zlib.compress(bytes(80 << 20))),
    "LZ4": (0x101, lz4.frame.compress(bytes(80 << 20))),
    "Zstandard": (0x201, zstandard.ZstdCompressor().compress(bytes(80 << 20))),
    "Zstandard of unknown size": (
        0x201,
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(80 << 20)),
    ),
}


@pytest.mark.parametrize(("system_flag", "data"), BOMBS.values(), ids=BOMBS)
def test_a_body_that_inflates_beyond_bounds_is_refused(system_flag: int, data: bytes) -> None:
    with pytest.raises(ProtocolError, match="inflate"):
        _ = message(system_flag=system_flag, stored_body=data).body


PROPERTIES = {
    "none": ("", {}),
    "one": ("a\x01b\x02", {"a": "b"}),
    "no last separator": ("a\x01b", {"a": "b"}),
    "two": ("a\x01b\x02c\x01d\x02", {"a": "b", "c": "d"}),
    "separator in a value": ("a\x01b\x01c\x02", {"a": "b\x01c"}),
    "empty value is skipped": ("a\x01\x02c\x01d\x02", {"c": "d"}),
    "empty name is skipped": ("\x01b\x02c\x01d\x02", {"c": "d"}),
    "no value is skipped": ("abc\x02c\x01d\x02", {"c": "d"}),
    "only separators": ("\x01\x02\x02\x01\x01\x02", {}),
    "the last counts": ("a\x01b\x02a\x01c\x02", {"a": "c"}),
}


@pytest.mark.parametrize(("text", "properties"), PROPERTIES.values(), ids=PROPERTIES)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties
    if "" not in properties.values():
        assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize("bad", [{"": "v"}, {"a\x01": "v"}, {"a\x02": "v"}, {"a": "v\x02"}])
def test_properties_that_would_not_come_back_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        encode_properties(bad)


BATCH = [
    BatchEntry(body=b"one", properties="a\x01b\x02", flag=7),
    BatchEntry(body=b"", properties=""),
    BatchEntry(body=b"\xff" * 300, properties="\u20ac\x01\u20ac\x02", flag=-1),
]


def test_batch_both_ways() -> None:
    wire = encode_batch(BATCH)
    assert wire.startswith(b"\0\0\0\x1d" + bytes(8) + b"\0\0\0\x07\0\0\0\x03one\0\x04a\x01b\x02")
    assert decode_batch(wire) == BATCH
    assert decode_batch(b"") == []
    ends = {len(encode_batch(BATCH[:count])) for count in range(4)}
    for end in set(range(len(wire))) - ends:
        with pytest.raises(ProtocolError):
            decode_batch(wire[:end])


def test_golden_batches() -> None:
    seen = set()
    for golden in golden_frames():
        if golden.code == 320 and golden.answers is None:
            whole = golden.body if golden.body_is_whole else whole_entries(golden.body)
            entries = decode_batch(whole)
            assert encode_batch(entries) == whole
            assert len(entries) > 5
            seen.add(golden.capture)
    assert seen == {"java-client", "go-client"}


def whole_entries(body: bytes) -> bytes:
    position = 0
    while position + 4 <= len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        if position + size > len(body):
            break
        position += size
    return body[:position]


def lie(position: int, value: int) -> bytes:
    wire = bytearray(encode_batch(BATCH[:1]))
    struct.pack_into(">i", wire, position, value)
    return bytes(wire)


@pytest.mark.parametrize(
    "data",
    [lie(0, 28), lie(0, 30), lie(0, -1), lie(0, 0), lie(16, -1), lie(16, 2), lie(16, 2**31 - 1)],
)
def test_batch_with_lying_sizes_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_batch(data)


def test_batch_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProtocolError):
        encode_batch([BatchEntry(body=b"", properties="x" * 32_768)])


HOSTS = {
    ("10.0.0.1", 10_911): "0A00000100002A9F",
    ("255.255.255.255", 0): "FFFFFFFF00000000",
    ("::1", 1): "0000000000000000000000000000000100000001",
}


@pytest.mark.parametrize(("host", "text"), HOSTS.items(), ids=HOSTS.values())
def test_host_both_ways(host: tuple[str, int], text: str) -> None:
    assert encode_host(host).hex().upper() == text
    assert decode_host(encode_host(host)) == host
    assert encode_offset_id(host, 255) == text + "00000000000000FF"
    assert decode_offset_id(text + "00000000000000ff") == (host, 255)


def test_a_scoped_address_is_written_without_its_scope() -> None:
    assert encode_host(("fe80::1%eth0", 1)) == encode_host(("fe80::1", 1))


@pytest.mark.parametrize("host", [("localhost", 1), ("", 1), ("1.2.3", 1), ("1.2.3.4", 1 << 40)])
def test_a_name_is_no_host(host: tuple[str, int]) -> None:
    with pytest.raises(ProtocolError):
        encode_host(host)


@pytest.mark.parametrize(
    "text", ["", "00", "G" * 32, "0" * 31, "0" * 33, "0" * 55, " " * 32, "0 " * 16]
)
def test_bad_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_offset_id(text)


TAGS = {"": 0, "TagA": 2598919, "TagB": 2598920, "order-created": -392709271, "*": 42}


@pytest.mark.parametrize(("tag", "code"), TAGS.items())
def test_tags_code(tag: str, code: int) -> None:
    assert tags_code_of(tag) == code


def test_tags_code_is_over_utf16_units() -> None:
    high, low = 0xD83D, 0xDE00
    assert tags_code_of("\U0001f600") == 31 * high + low


def test_unique_keys_are_unique_and_laid_out_as_javas() -> None:
    clock = ManualClock(wall_ms=1_700_000_000_000)  # 14 November 2023, 22:13:20 UTC
    keys = UniqueKeys(clock, Random(1), process_id=0x1_2345, host="10.0.0.5")
    first = keys.next()
    assert len(first) == 32
    assert first[:12] == "0A0000052345"
    since_month_ms = 13 * 86_400_000 + (22 * 3600 + 13 * 60 + 20) * 1000
    assert int(first[20:28], 16) == since_month_ms
    clock.advance(40 * 86_400.0)
    made = {keys.next() for _ in range(60_000)}
    assert len(made) == 60_000
    assert UniqueKeys(clock, Random(2), process_id=1).next()[12:20] != first[12:20]
