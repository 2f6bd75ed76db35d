"""The JSON header: what is taken, what is refused, and how fast."""

from __future__ import annotations

import time

import pytest

from ariane.errors import BadHeader
from ariane.protocol.json_header import HeaderFields, decode, encode

TAKEN = {
    "only a code": (b'{"code":5}', HeaderFields(5, "JAVA", 0, 0, 0, None, {})),
    "null fields and remark": (
        b'{"code":5,"extFields":null,"remark":null}',
        HeaderFields(5, "JAVA", 0, 0, 0, None, {}),
    ),
    "C++: numbers, flags, newline": (
        b'{"code":10,"extFields":{"queueId":3,"batch":true,"unitMode":false,"ratio":0.5,'
        b'"none":null,"topic":"T"},"language":"CPP","version":0}\n',
        HeaderFields(
            10,
            "CPP",
            0,
            0,
            0,
            None,
            {"queueId": "3", "batch": "true", "unitMode": "false", "ratio": "0.5", "topic": "T"},
        ),
    ),
    "unknown language name": (
        b'{"code":1,"language":"ZIG"}',
        HeaderFields(1, "ZIG", 0, 0, 0, None, {}),
    ),
    "language by number": (
        b'{"code":1,"language":9}',
        HeaderFields(1, "GO", 0, 0, 0, None, {}),
    ),
    "language number nobody has": (
        b'{"code":1,"language":99}',
        HeaderFields(1, "OTHER", 0, 0, 0, None, {}),
    ),
    "members nobody knows": (
        b'{"code":1,"serializeTypeCurrentRPC":"JSON","extra":[1,{"a":[]}]}',
        HeaderFields(1, "JAVA", 0, 0, 0, None, {}),
    ),
    "negative opaque": (
        b'{"code":1,"opaque":-2147483648}',
        HeaderFields(1, "JAVA", 0, -2147483648, 0, None, {}),
    ),
    "duplicate keys: the last counts": (
        b'{"code":1,"code":2,"extFields":{"a":"x","a":"y"}}',
        HeaderFields(2, "JAVA", 0, 0, 0, None, {"a": "y"}),
    ),
    "surrogate pair": (
        b'{"code":1,"remark":"\\ud83d\\ude00"}',
        HeaderFields(1, "JAVA", 0, 0, 0, "\U0001f600", {}),
    ),
    "brackets within text do not nest": (
        b'{"code":1,"remark":"' + b"[{" * 100 + b'\\"[["}',
        HeaderFields(1, "JAVA", 0, 0, 0, "[{" * 100 + '"[[', {}),
    ),
    "128 fields": (
        b'{"code":1,"extFields":{' + b",".join(b'"%d":"v"' % n for n in range(128)) + b"}}",
        HeaderFields(1, "JAVA", 0, 0, 0, None, {str(n): "v" for n in range(128)}),
    ),
}


@pytest.mark.parametrize(("wire", "fields"), TAKEN.values(), ids=TAKEN)
def test_taken(wire: bytes, fields: HeaderFields) -> None:
    assert decode(wire) == fields
    assert decode(encode(fields)) == fields


REFUSED = {
    "empty": b"",
    "an array": b"[]",
    "no code": b'{"opaque":1}',
    "code as text": b'{"code":"1"}',
    "code beyond 32 bits": b'{"code":2147483648}',
    "code with 5,000 digits": b'{"code":' + b"9" * 5000 + b"}",
    "opaque beyond 32 bits": b'{"code":1,"opaque":-2147483649}',
    "fractional flag": b'{"code":1,"flag":1.5}',
    "NaN": b'{"code":NaN}',
    "NaN in a field": b'{"code":1,"extFields":{"a":NaN}}',
    "Infinity in a field": b'{"code":1,"extFields":{"a":Infinity}}',
    "1e400 in a field": b'{"code":1,"extFields":{"a":1e400}}',
    "lone high surrogate": b'{"code":1,"remark":"\\ud800"}',
    "lone low surrogate": b'{"code":1,"extFields":{"a":"\\udc00"}}',
    "surrogate in UTF-8": b'{"code":1,"remark":"\xed\xa0\x80"}',
    "not UTF-8": b'{"code":1,"extFields":{"a":"\xff"}}',
    "raw control character": b'{"code":1,"remark":"\x01"}',
    "cut short": b'{"code":1,"extFields":{"a":"',
    "text after it": b'{"code":1}{"code":1}',
    "object as a field": b'{"code":1,"extFields":{"a":{}}}',
    "array of fields": b'{"code":1,"extFields":[]}',
    "129 fields": b'{"code":1,"extFields":{'
    + b",".join(b'"%d":"v"' % n for n in range(129))
    + b"}}",
    "129 number fields": b'{"code":1,"extFields":{'
    + b",".join(b'"%d":1' % n for n in range(129))
    + b"}}",
    "depth 17": b'{"code":1,"x":' + b"[" * 16 + b"]" * 16 + b"}",
    "depth 30,000, closed": b'{"code":1,"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "depth 60,000, open": b'{"code":1,"x":' + b"[" * 60_000,
    "depth in mixed brackets": b'{"code":1,"x":' + b'[{"a":' * 9 + b"0" + b"}]" * 9 + b"}",
    "quotes without end": b'{"code":1,"x":"' + b'[\\"' * 20_000,
    "backslash at the end": b'{"code":1,"x":' + b"[" * 20 + b'"\\',
}


@pytest.mark.parametrize("wire", REFUSED.values(), ids=REFUSED)
def test_refused_at_once(wire: bytes) -> None:
    started = time.perf_counter()
    with pytest.raises(BadHeader):
        decode(wire)
    assert time.perf_counter() - started < 0.1


def test_depth_16_is_read() -> None:
    assert decode(b'{"code":1,"x":' + b"[" * 15 + b"]" * 15 + b"}").code == 1


def test_field_values_leave_as_text() -> None:
    fields = HeaderFields(1, "JAVA", 479, 2, 1, None, {"queueId": "3", "batch": "true"})
    assert encode(fields) == (
        b'{"code":1,"extFields":{"queueId":"3","batch":"true"},"flag":1,"language":"JAVA",'
        b'"opaque":2,"version":479}'
    )


def test_fields_are_written_even_when_there_are_none() -> None:
    assert b'"extFields":{}' in encode(HeaderFields(0, "JAVA", 479, 2, 1, None, {}))
