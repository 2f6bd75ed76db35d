"""Custom headers: wire spelling at the edge, meaning everywhere else.

A header travels as a map of text. `decode_header` makes it a typed value or raises BadHeader
naming the field; fields nobody knows are ignored, since clients add their own.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from ariane.errors import BadHeader

Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What all custom headers share: nothing but their nature."""


H = TypeVar("H", bound=Header)

_UNIONS: Final = (typing.Union, types.UnionType)


def decode_header(kind: type[H], ext: typing.Mapping[str, str | int | float | bool | None]) -> H:
    """Read a header from its map of text, or raise BadHeader naming the field."""
    fields: typing.Mapping[str, object] = ext
    flags = [name for name in _flag_names(kind) if name in ext]
    if flags:
        # Java's rule: only "true", in any case, is true.
        fields = {**ext, **{name: _is_true(ext[name]) for name in flags}}
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadHeader(f"{kind.__name__}: {error}") from error


def encode_header(header: Header) -> dict[str, str]:
    """The header as its map of text; what is None is left out."""
    ext: dict[str, str] = {}
    for name, wire_name in _names(type(header)):
        value = getattr(header, name)
        if value is None:
            continue
        if value is True:
            ext[wire_name] = "true"
        elif value is False:
            ext[wire_name] = "false"
        else:
            ext[wire_name] = str(value)
    return ext


@cache
def _names(kind: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple((item.name, item.encode_name) for item in msgspec.structs.fields(kind))


@cache
def _flag_names(kind: type[Header]) -> tuple[str, ...]:
    """Wire names of the fields that hold a flag."""
    return tuple(item.encode_name for item in msgspec.structs.fields(kind) if _is_flag(item.type))


def _is_flag(kind: object) -> bool:
    if typing.get_origin(kind) in _UNIONS:
        return bool in typing.get_args(kind)
    return kind is bool


def _is_true(value: str | int | float | bool | None) -> bool | None:
    if isinstance(value, str):
        return value.lower() == "true"
    return None if value is None else bool(value)
