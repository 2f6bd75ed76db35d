"""The kernel's records against the slow, obvious reader in `protocol`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.client.records import Record, decode
from ariane.errors import ProtocolError
from ariane.protocol.message import (
    StoredMessage,
    decode_host,
    decode_records,
    encode_properties,
)
from tests.property.test_codecs import stored_messages
from tests.unit.protocol.record_bytes import record_bytes

SAME = (
    "queue_id", "queue_offset", "log_offset", "size", "flag", "system_flag", "body_crc32",
    "born_at_ms", "stored_at_ms", "reconsume_times", "prepared_offset", "stored_body", "properties",
)  # fmt: skip


@given(st.lists(stored_messages(), max_size=4))
def test_records_are_what_the_slow_reader_reads(drawn: list[tuple[StoredMessage, int]]) -> None:
    data = b"".join(record_bytes(message, magic=magic) for message, magic in drawn)
    owner = object()
    records, expected = decode(data, Record, owner), decode_records(data)
    assert len(records) == len(expected)
    for record, message in zip(records, expected, strict=True):
        found = {name: record.find(name.encode()) for name in message.properties}
        assert found == message.properties
        assert {name: getattr(record, name) for name in SAME} == {
            name: getattr(message, name) for name in SAME
        }
        assert record.stored_topic == message.topic
        assert decode_host(record.born_host_bytes) == message.born_host
        assert decode_host(record.store_host_bytes) == message.store_host
        assert record.stored_properties == encode_properties(message.properties).encode()
        assert record.holder is owner
        assert {name: record.find(name.encode()) for name in message.properties} == found
    assert b"".join(record.stored_record for record in records) == data


@given(stored_messages(), st.binary(max_size=40), st.data())
def test_properties_of_any_bytes_are_read_alike(
    stored: tuple[StoredMessage, int], junk: bytes, data: st.DataObject
) -> None:
    message, magic = stored
    message.properties = {"TAGS": "x" * len(junk)} | message.properties
    mark = b"TAGS\x01" + b"x" * len(junk)
    whole = record_bytes(message, magic=magic).replace(mark, b"TAGS\x01" + junk)
    (record,), (expected,) = decode(whole, Record), decode_records(whole)
    name = data.draw(st.sampled_from([*expected.properties, "TAGS"]))
    if "\ufffd" not in name:  # a name that is not UTF-8 cannot be asked for
        assert record.find(name.encode()) == expected.properties.get(name)
    assert record.properties == expected.properties
    assert (record.stored_topic, record.stored_body) == (expected.topic, expected.stored_body)


@given(stored_messages(), st.data())
def test_what_is_cut_or_changed_is_an_error_or_a_record_but_never_a_crash(
    stored: tuple[StoredMessage, int], data: st.DataObject
) -> None:
    message, magic = stored
    whole = record_bytes(message, magic=magic)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with pytest.raises(ProtocolError):
        decode(cut, Record)
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        (record,) = decode(bytes(changed), Record)
    except ProtocolError:
        return
    assert isinstance(record.properties, dict)
    assert isinstance(record.stored_topic, str)
    record.find(b"TAGS")


@given(st.binary(max_size=60))
def test_properties_that_are_not_pairs_are_skipped(text: bytes) -> None:
    message = StoredMessage(
        topic="t", queue_id=0, queue_offset=0, log_offset=0, size=0, flag=0, system_flag=0,
        body_crc32=0, born_at_ms=0, born_host=("127.0.0.1", 1), stored_at_ms=0,
        store_host=("127.0.0.1", 1), reconsume_times=0, prepared_offset=0, stored_body=b"",
        properties={},
    )  # fmt: skip
    empty = record_bytes(message)
    data = empty[:-2] + len(text).to_bytes(2, "big") + text
    data = len(data).to_bytes(4, "big") + data[4:]
    (record,) = decode(data, Record)
    expected = {}
    for entry in text.split(b"\x02"):
        name, _, value = entry.partition(b"\x01")
        if name and value:
            expected[name.decode(errors="replace")] = value.decode(errors="replace")
    assert record.properties == expected
