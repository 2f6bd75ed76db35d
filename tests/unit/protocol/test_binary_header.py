"""The binary header: lengths that lie are refused, whatever they are."""

from __future__ import annotations

import struct

import pytest

from ariane.errors import BadHeader
from ariane.protocol.binary_header import decode, encode
from ariane.protocol.json_header import HeaderFields

PLAIN = HeaderFields(105, "JAVA", 479, 7, 0, None, {"topic": "T"})


def header(remark: bytes = b"", block: bytes = b"", *, remark_bytes: int | None = None) -> bytes:
    size = len(remark) if remark_bytes is None else remark_bytes
    return struct.pack(">hBhiii", 105, 0, 479, 7, 0, size) + remark + block


def block(data: bytes, *, size: int | None = None) -> bytes:
    return struct.pack(">i", len(data) if size is None else size) + data


def entry(
    key: bytes, value: bytes, *, key_bytes: int | None = None, value_bytes: int | None = None
) -> bytes:
    key_size = len(key) if key_bytes is None else key_bytes
    value_size = len(value) if value_bytes is None else value_bytes
    return struct.pack(">h", key_size) + key + struct.pack(">i", value_size) + value


def test_both_ways() -> None:
    wire = header(block=block(entry(b"topic", b"T")))
    assert encode(PLAIN) == wire
    assert decode(wire) == PLAIN


def test_empty_value_is_no_value() -> None:
    assert decode(header(block=block(entry(b"a", b"") + entry(b"b", b"1")))).ext == {"b": "1"}


def test_unknown_language_is_other() -> None:
    wire = bytearray(encode(PLAIN))
    wire[2] = 200
    assert decode(bytes(wire)).language == "OTHER"
    assert decode(encode(PLAIN._replace(language="ZIG"))).language == "OTHER"


def test_128_fields_are_read() -> None:
    fields = {str(number): "v" for number in range(128)}
    assert decode(encode(PLAIN._replace(ext=fields))).ext == fields


BAD = {
    "empty": b"",
    "fixed part cut": header()[:16],
    "no block length": header(),
    "block length cut": header(block=b"\0\0\0"),
    "negative remark": header(block=block(b""), remark_bytes=-1),
    "remark longer than the rest": header(b"abc", remark_bytes=100),
    "remark of 2^31-1": header(b"abc", block(b""), remark_bytes=2**31 - 1),
    "remark not UTF-8": header(b"\xff\xfe", block(b"")),
    "negative block": header(block=block(b"", size=-1)),
    "block longer than the rest": header(block=block(b"", size=5)),
    "block shorter than the rest": header(block=block(entry(b"a", b"b"), size=3)),
    "negative key": header(block=block(entry(b"", b"v", key_bytes=-1))),
    "key longer than the rest": header(block=block(entry(b"k", b"v", key_bytes=0x7FFF))),
    "negative value": header(block=block(entry(b"k", b"", value_bytes=-1))),
    "value longer than the rest": header(block=block(entry(b"k", b"v", value_bytes=2))),
    "value of 2^31-1": header(block=block(entry(b"k", b"v", value_bytes=2**31 - 1))),
    "key not UTF-8": header(block=block(entry(b"\xff", b"v"))),
    "value not UTF-8": header(block=block(entry(b"k", b"\xc0\x80"))),
    "one byte after the last entry": header(block=block(entry(b"k", b"v") + b"\0")),
    "129 fields": header(block=block(b"".join(entry(b"%d" % n, b"v") for n in range(129)))),
}


@pytest.mark.parametrize("wire", BAD.values(), ids=BAD)
def test_refused(wire: bytes) -> None:
    with pytest.raises(BadHeader):
        decode(wire)


def test_every_truncation_is_refused() -> None:
    wire = encode(PLAIN._replace(remark="remark"))
    for end in range(len(wire)):
        with pytest.raises(BadHeader):
            decode(wire[:end])


def test_a_field_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadHeader):
        encode(PLAIN._replace(ext={"k" * 40_000: "v"}))
