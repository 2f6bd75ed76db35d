"""Messages packed for the way: ids, properties, compression, batches."""

import itertools
import zlib

import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard

from ariane.client import Message
from ariane.client.parcels import Kind, pack, pack_batch, properties_text
from ariane.client.settings import SendSettings
from ariane.errors import ClientError, InvalidMessage
from ariane.protocol.compression import Compression, inflate_body
from ariane.protocol.message import decode_batch, decode_properties

PLAIN = SendSettings()


def ids() -> "itertools.count[str]":
    return map("id-{}".format, itertools.count())  # type: ignore[return-value]


def test_a_parcel_has_everything_a_send_needs() -> None:
    message = Message("t", "text", tags="A", properties={"a": "b"}, flag=7, wait=False)
    parcel = pack(message, "ID", 5, PLAIN, extra={"TRAN_MSG": "true"}, system_flag=4)
    assert (parcel.topic, parcel.body, parcel.message_ids) == ("t", b"text", "ID")
    assert (parcel.system_flag, parcel.flag, parcel.kind) == (4, 7, Kind.PLAIN)
    assert parcel.born_ms == 5
    assert decode_properties(parcel.properties) == {
        "a": "b", "TAGS": "A", "TRAN_MSG": "true", "UNIQ_KEY": "ID", "WAIT": "false",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "flag"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_long_bodies_that_shrink_are_compressed(kind: Compression, flag: int) -> None:
    settings = SendSettings(compression=kind, compress_from_bytes=100)
    body = b"x" * 100
    short = pack(Message("t", body[1:]), "ID", 5, settings)
    assert (short.body, short.system_flag) == (body[1:], 0)
    long = pack(Message("t", body), "ID", 5, settings)
    assert len(long.body) < len(body)
    assert long.system_flag == flag
    assert inflate_body(long.body, long.system_flag, size_max=1000) == body
    noise = zlib.compress(bytes(range(256)) * 8)[:200]
    assert pack(Message("t", noise), "ID", 5, settings).body == noise


def test_others_can_read_what_is_compressed() -> None:
    def packed(kind: Compression) -> bytes:
        return pack(Message("t", b"x" * 9000), "ID", 5, SendSettings(compression=kind)).body

    assert zlib.decompress(packed("zlib")) == b"x" * 9000
    assert lz4.frame.decompress(packed("lz4")) == b"x" * 9000
    assert zstandard.ZstdDecompressor().decompress(packed("zstd")) == b"x" * 9000


def test_compression_can_be_turned_off() -> None:
    parcel = pack(Message("t", b"x" * 9000), "ID", 5, SendSettings(compression=None))
    assert (parcel.body, parcel.system_flag) == (b"x" * 9000, 0)


@pytest.mark.parametrize("value", ["ä" * 20_000, "x" * 40_000])
def test_properties_beyond_what_a_record_holds_are_refused(value: str) -> None:
    with pytest.raises(InvalidMessage, match="32,767"):
        properties_text(Message("t", b"x", properties={"a": value}), "ID")


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="Unicode"):
        properties_text(Message("t", b"x", properties={"a": "\ud800"}), "ID")


def test_a_batch_holds_every_message_with_its_own_id() -> None:
    messages = [Message("t", b"1", tags="A"), Message("t", "2", flag=3, wait=False)]
    names = ids()
    parcel = pack_batch(messages, lambda: next(names), 5)
    assert parcel.kind is Kind.BATCH
    assert parcel.message_ids == ["id-0", "id-1"]
    entries = decode_batch(parcel.body)
    assert [(entry.body, entry.flag) for entry in entries] == [(b"1", 0), (b"2", 3)]
    assert decode_properties(entries[0].properties) == {
        "TAGS": "A", "UNIQ_KEY": "id-0", "WAIT": "true",
    }  # fmt: skip
    assert decode_properties(parcel.properties) == {"UNIQ_KEY": "id-2", "WAIT": "false"}


BATCHES: dict[str, tuple[list[Message], str]] = {
    "nothing": ([], "names none"),
    "two topics": ([Message("a", b"x"), Message("b", b"x")], "one batch for each"),
    "too much": ([Message("t", bytes(1 << 20))] * 5, "smaller batches"),
    "a delay": ([Message("t", b"x", delay_level=1)], "one by one"),
    "a retry topic": ([Message("%RETRY%g", b"x")], "one by one"),
    "a bad message": ([Message("t", b"x", keys=[""])], "key"),
}


@pytest.mark.parametrize(("messages", "reason"), BATCHES.values(), ids=BATCHES)
def test_batches_that_cannot_be(messages: list[Message], reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        pack_batch(messages, lambda: "ID", 5)


SETTINGS: dict[str, tuple[dict[str, object], str]] = {
    "no time": ({"timeout": 0}, "more than 0"),
    "fewer than no retries": ({"retries": -1}, "0 or more"),
    "an unknown compression": ({"compression": "snappy"}, "zlib, lz4, zstd"),
    "a negative linger": ({"linger": -1}, "0 or more"),
    "empty batches": ({"batch_count_max": 0}, "at least one"),
}


@pytest.mark.parametrize(("options", "reason"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_cannot_be(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        SendSettings(**options)  # type: ignore[arg-type]
