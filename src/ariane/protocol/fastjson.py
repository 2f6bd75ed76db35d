"""JSON as Java's fastjson writes and reads it.

RocketMQ's bodies and configuration files hold what standard JSON does not know: map keys without
quotes (`{0:12}`), whole objects as keys (`{{"queueId":0,...}:12}`) and `{"$ref":"$.a"}` for an
object written before. Standard text takes the fast path, bare numbers as keys get quotes and take
it too, anything else is read by a slow, tolerant parser. Text from a peer costs bounded time: depth
and the size of what is not standard are limited, and only ProtocolError is raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar, Union, cast

import msgspec

from ariane.errors import ProtocolError
from ariane.protocol.limits import DEPTH_MAX, ODD_BYTES_MAX
from ariane.protocol.message_queue import MessageQueue
from ariane.protocol.nesting import is_too_deep
from ariane.protocol.tolerant_json import Json, ObjectKey, parse, resolve_references

T = TypeVar("T")
Writable = Union[
    None,
    bool,
    int,
    float,
    str,
    msgspec.Struct,
    tuple[int, ...],
    "list[Writable]",
    "Mapping[Key, Writable]",
]
Key = str | int | msgspec.Struct

_REFERENCE: Final = b'"$ref"'
# A string, to be passed over whole (to the end of the text when it has no end), or a bare key.
_BARE_KEY: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
    rb"|([{,][ \t\r\n]*+)(-?[0-9]++)(?=[ \t\r\n]*+:)",
    re.DOTALL,
)
_encoder: Final = msgspec.json.Encoder()
_decoders: Final[dict[object, object]] = {}
_MESSAGE_QUEUE_KEYS: Final = {"topic", "brokerName", "queueId"}

# Members that old clients send as the position of an enumeration's value.
_ORDINALS: Final = {
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
}


class JavaBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that plain JSON cannot hold: it has objects as keys, or members left out when None."""


def loads(text: str | bytes, *, size_max: int = ODD_BYTES_MAX) -> Json:
    """Read any JSON that fastjson would; unquoted keys become text, object keys pairs.

    `size_max` bounds text that is not standard; raise it for files of our own.
    """
    data = text.encode() if isinstance(text, str) else bytes(text)
    try:
        value: Json = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = _parse(data, size_max)
    except RecursionError:
        raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}") from None
    else:
        if is_too_deep(data):
            raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    if _REFERENCE in data:
        _check_size(data, size_max)
        value = resolve_references(value)
    return value


def decode(data: bytes, kind: type[T], *, size_max: int = ODD_BYTES_MAX) -> T:
    """Read a typed body or raise ProtocolError naming the member; unknown members are ignored."""
    if is_too_deep(data):  # a member of any form would take what nobody can write again
        raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    decoder = _decoder(kind)
    fault: Exception | None = None
    if decoder is not None and _REFERENCE not in data:
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            fault = error  # fastjson's own spelling, nulls or ordinals: the slow path decides
    if isinstance(fault, msgspec.ValidationError) and len(data) > size_max:
        raise ProtocolError(f"{kind.__name__} cannot be read: {fault}") from fault
    _check_size(data, size_max)
    value = _plain(loads(data, size_max=size_max), 0)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{kind.__name__} cannot be read: {error}") from error


def encode(body: msgspec.Struct) -> bytes:
    """A typed body as compact standard JSON, or fastjson's where there is no standard form."""
    return dumps(body) if isinstance(body, JavaBody) else _encoder.encode(body)


def dumps(value: Writable, *, unquoted_keys: bool = False) -> bytes:
    """Compact JSON; None members are left out, numbers as keys keep no quotes when asked."""
    parts: list[str] = []
    _write(value, parts, unquoted_keys)
    return "".join(parts).encode()


def dumps_pretty(value: Writable) -> bytes:
    """JSON as in Apache's config files: tabs, no blank after a colon, sorted, bare number keys."""
    parts: list[str] = []
    _write_pretty(value, parts, "\n")
    return "".join(parts).encode()


def _parse(data: bytes, size_max: int) -> Json:
    _check_size(data, size_max)
    if not is_too_deep(data):
        try:
            quoted: Json = msgspec.json.decode(_BARE_KEY.sub(_quoted, data))
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # odder than that
        else:
            return quoted
    try:
        return parse(data.decode())
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON that is not UTF-8: {error}") from error


def _quoted(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] is None else b'%b"%b"' % (match[1], match[2])


def _check_size(data: bytes, size_max: int) -> None:
    if len(data) > size_max:
        raise ProtocolError(
            f"{len(data)} bytes of JSON that is not standard; at most {size_max} are read"
        )


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T] | None:
    """The fast reader of a kind of body, if there can be one."""
    if kind not in _decoders:
        try:
            _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
        except TypeError:  # objects as keys
            _decoders[kind] = None
    return cast("msgspec.json.Decoder[T] | None", _decoders[kind])


def _plain(value: Json, depth: int) -> object:
    """The value ready for conversion: no nulls, names for ordinals, queues for object keys."""
    if depth > DEPTH_MAX:
        raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    plain: dict[object, object] = {}
    for name, item in value.items():
        if item is None:
            continue
        key = _queue_of(name) if isinstance(name, tuple) else name
        names = _ORDINALS.get(name) if isinstance(name, str) else None
        if names is not None and isinstance(item, int) and 0 <= item < len(names):
            plain[key] = names[item]
        else:
            plain[key] = _plain(item, depth + 1)
    return plain


def _queue_of(pairs: ObjectKey) -> MessageQueue:
    """The message queue that is a map's key: the only object RocketMQ uses as one."""
    members = {name: value for name, value in pairs if name in _MESSAGE_QUEUE_KEYS}
    try:
        return msgspec.convert(members, MessageQueue, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"an object used as a key is not a message queue: {error}") from error


@cache
def _members(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((item.name, item.encode_name) for item in msgspec.structs.fields(kind))


def _items(value: msgspec.Struct | Mapping[Key, Writable]) -> list[tuple[Key, Writable]]:
    if isinstance(value, msgspec.Struct):
        pairs = [(wire_name, getattr(value, name)) for name, wire_name in _members(type(value))]
        return [pair for pair in pairs if pair[1] is not None]
    return [pair for pair in value.items() if pair[1] is not None]


def _write(value: Writable, parts: list[str], unquoted_keys: bool) -> None:
    if isinstance(value, msgspec.Struct | Mapping):
        parts.append("{")
        separator = ""
        for key, item in _items(value):
            parts.append(separator)
            separator = ","
            _write_key(key, parts, unquoted_keys)
            _write(item, parts, unquoted_keys)
        parts.append("}")
    elif isinstance(value, list | tuple):
        parts.append("[")
        for position, item in enumerate(value):
            if position:
                parts.append(",")
            _write(item, parts, unquoted_keys)
        parts.append("]")
    else:
        parts.append(_scalar(value))


def _write_key(key: Key, parts: list[str], unquoted_keys: bool) -> None:
    if isinstance(key, str):
        parts.append(_scalar(key))
    elif isinstance(key, int):
        parts.append(str(key) if unquoted_keys else f'"{key}"')
    else:
        _write(key, parts, unquoted_keys)
    parts.append(":")


def _write_pretty(value: Writable, parts: list[str], line: str) -> None:
    inner = line + "\t"
    if isinstance(value, msgspec.Struct | Mapping):
        pairs = sorted(_items(value), key=_sort_key)
        parts.append("{")
        for position, (key, item) in enumerate(pairs):
            parts.append("," + inner if position else inner)
            if isinstance(key, msgspec.Struct):
                _write_pretty(key, parts, inner)
                parts.append(":")
            else:
                _write_key(key, parts, unquoted_keys=True)
            _write_pretty(item, parts, inner)
        parts.append(line + "}" if pairs else "}")
    elif isinstance(value, tuple):  # an array of numbers in Java, which keeps them on one line
        parts.append(f"[{','.join(map(_scalar, value))}]")
    elif isinstance(value, list):
        parts.append("[")
        for position, item in enumerate(value):
            parts.append("," + inner if position else inner)
            _write_pretty(item, parts, inner)
        parts.append(line + "]" if value else "]")
    else:
        parts.append(_scalar(value))


def _sort_key(pair: tuple[Key, Writable]) -> tuple[int, int | str]:
    key = pair[0]
    return (0, key) if isinstance(key, int) else (1, str(key))


def _scalar(value: bool | int | float | str | None) -> str:
    if isinstance(value, str):
        return _encoder.encode(value).decode()
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    return str(int(value))
