"""RocketMQ's own binary form of a command header.

Code, version and key lengths are 16 bits wide. An empty value and a missing one look the same, as
they do to Java, and so do an empty and a missing remark.
"""

from __future__ import annotations

import struct
from typing import Final

from ariane.codes import LANGUAGES, FrameFlag
from ariane.errors import BadHeader
from ariane.protocol.json_header import HeaderFields
from ariane.protocol.limits import EXT_FIELDS_MAX, SHORT_MAX

_FIXED: Final = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_OTHER: Final = LANGUAGES.index("OTHER")

# Request codes too wide for 16 bits, found again by what truncation leaves of them.
_WIDE_CODES: Final = {
    code & 0xFFFF: code for code in (200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151)
}


def decode(header: bytes) -> HeaderFields:
    """Read a header; raises BadHeader."""
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
        remark, position = _text(header, _FIXED.size, remark_bytes)
        (ext_bytes,) = _INT.unpack_from(header, position)
        position += _INT.size
        if ext_bytes < 0 or ext_bytes != len(header) - position:
            raise BadHeader(
                f"a block of {ext_bytes} bytes of fields in the {len(header) - position} bytes left"
            )
        ext = _decode_ext(header, position)
    except struct.error as error:
        raise BadHeader(f"the binary header of {len(header)} bytes is cut short") from error
    except UnicodeDecodeError as error:
        raise BadHeader(f"the binary header holds text that is not UTF-8: {error}") from error
    if not flag & FrameFlag.RESPONSE:
        code = _WIDE_CODES.get(code, code)
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return HeaderFields(code, name, version, opaque, flag, remark or None, ext)


def encode(header: HeaderFields) -> bytes:
    """The header's bytes; codes beyond 16 bits are truncated, as Java does."""
    remark_text = b"" if header.remark is None else header.remark.encode()
    parts: list[bytes] = []
    for name, value in header.ext.items():
        key, text = name.encode(), value.encode()
        if len(key) > SHORT_MAX:
            raise BadHeader(f"a header field name of {len(key)} bytes; at most {SHORT_MAX} fit")
        parts += _SHORT.pack(len(key)), key, _INT.pack(len(text)), text
    block = b"".join(parts)
    fixed = _FIXED.pack(
        _signed_short(header.code),
        LANGUAGES.index(header.language) if header.language in LANGUAGES else _OTHER,
        _signed_short(header.version),
        header.opaque,
        header.flag,
        len(remark_text),
    )
    return b"".join((fixed, remark_text, _INT.pack(len(block)), block))


def _decode_ext(header: bytes, position: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    end = len(header)
    while position < end:
        (key_bytes,) = _SHORT.unpack_from(header, position)
        key, position = _text(header, position + _SHORT.size, key_bytes)
        (value_bytes,) = _INT.unpack_from(header, position)
        value, position = _text(header, position + _INT.size, value_bytes)
        if value:
            ext[key] = value
            if len(ext) > EXT_FIELDS_MAX:
                raise BadHeader(f"more than {EXT_FIELDS_MAX} header fields")
    return ext


def _text(header: bytes, first: int, byte_count: int) -> tuple[str, int]:
    end = first + byte_count
    if byte_count < 0 or end > len(header):
        raise BadHeader(f"a text of {byte_count} bytes in the {len(header) - first} bytes left")
    return header[first:end].decode(), end


def _signed_short(number: int) -> int:
    return ((number + 0x8000) & 0xFFFF) - 0x8000
