"""The JSON form of a command header.

Values of `extFields` are text on the way out, always: Go refuses a whole frame for one number.
On the way in numbers and flags are taken too, since C++ sends them.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, field

from ariane.codes import LANGUAGES
from ariane.errors import BadHeader
from ariane.protocol.limits import DEPTH_MAX, EXT_FIELDS_MAX
from ariane.protocol.nesting import is_too_deep


class HeaderFields(NamedTuple):
    """What every header holds, in either form."""

    code: int
    language: str
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: dict[str, str]


_Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class _Plain(msgspec.Struct):
    """A header as Java and Go write it."""

    code: _Int32
    language: str = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    ext: dict[str, str] | None = field(name="extFields", default=None)


class _Loose(msgspec.Struct):
    """A header with numbers, flags and nulls where text belongs."""

    code: _Int32
    language: str | int | None = "JAVA"
    version: _Int32 | None = 0
    opaque: _Int32 | None = 0
    flag: _Int32 | None = 0
    remark: str | None = None
    ext: dict[str, str | int | float | bool | None] | None = field(name="extFields", default=None)


class _Written(msgspec.Struct, omit_defaults=True):
    """Members in Java's order; a missing remark is left out."""

    code: int
    ext: dict[str, str] = field(name="extFields")
    flag: int
    language: str
    opaque: int
    version: int
    remark: str | None = None


_plain: Final = msgspec.json.Decoder(_Plain)
_loose: Final = msgspec.json.Decoder(_Loose)
_encoder: Final = msgspec.json.Encoder()


def decode(header: bytes) -> HeaderFields:
    """Read a header; raises BadHeader."""
    if is_too_deep(header):
        raise BadHeader(f"the JSON header is nested deeper than {DEPTH_MAX}, or broken")
    try:
        plain = _plain.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_loose(header)
    ext = plain.ext or {}
    _check_count(ext)
    return HeaderFields(
        plain.code, plain.language, plain.version, plain.opaque, plain.flag, plain.remark, ext
    )


def encode(header: HeaderFields) -> bytes:
    """Compact JSON."""
    return _encoder.encode(
        _Written(
            code=header.code,
            ext=header.ext,
            flag=header.flag,
            language=header.language,
            opaque=header.opaque,
            version=header.version,
            remark=header.remark,
        )
    )


def _decode_loose(header: bytes) -> HeaderFields:
    try:
        loose = _loose.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadHeader(f"the JSON header cannot be read: {error}") from error
    ext = {name: _text(value) for name, value in (loose.ext or {}).items() if value is not None}
    _check_count(ext)
    language = loose.language
    if not isinstance(language, str):
        known = language is not None and 0 <= language < len(LANGUAGES)
        language = LANGUAGES[language] if known and language is not None else "OTHER"
    return HeaderFields(
        loose.code,
        language,
        loose.version or 0,
        loose.opaque or 0,
        loose.flag or 0,
        loose.remark,
        ext,
    )


def _text(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _check_count(ext: dict[str, str]) -> None:
    if len(ext) > EXT_FIELDS_MAX:
        raise BadHeader(f"{len(ext)} header fields; at most {EXT_FIELDS_MAX} are read")
