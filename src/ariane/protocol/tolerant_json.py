"""The slow reader of JSON that is not standard, and the references in it.

Takes what fastjson's default settings take: bare names and numbers as keys, objects as keys, single
quotes, trailing commas. Everything else, and anything nested too deep, is a ProtocolError.
"""

from __future__ import annotations

import math
import re
from typing import Final, Union

from ariane.errors import ProtocolError
from ariane.protocol.limits import DEPTH_MAX

ObjectKey = tuple[tuple[str, "Json"], ...]
Json = Union[None, bool, int, float, str, "list[Json]", "dict[str | ObjectKey, Json]"]

NUMBER_CHARACTERS_MAX: Final = 64
REFERENCED_VALUES_MAX: Final = 100_000

_TOKEN: Final = re.compile(
    r"[ \t\r\n\ufeff]*(?:"
    r'"(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"'
    r"|'(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)'"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<mark>[\[\]{}:,]))",
    re.DOTALL,
)
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
}
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]|\[\"([^\"\]]*)\"\]")


def parse(text: str) -> Json:
    """Read one value that fills the whole text."""
    return _Parser(text).document()


def resolve_references(root: Json) -> Json:
    """Put a copy of what is meant in place of each `{"$ref": path}`; None if it is nowhere."""
    return _Resolver(root).resolve(root, 0)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def document(self) -> Json:
        kind, token = self._next()
        value = self._value(kind, token, 0)
        blanks = _BLANKS.match(self._text, self._position)
        if blanks is None or blanks.end() != len(self._text):
            raise self._error("more text after the value")
        return value

    def _next(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            raise self._error("no JSON token")
        self._position = match.end()
        return match.lastgroup, match.group(match.lastgroup)

    def _value(self, kind: str, token: str, depth: int) -> Json:
        if depth > DEPTH_MAX:
            raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
        if kind in ("double", "single"):
            return self._string(token)
        if kind == "number":
            return self._number(token)
        if kind == "name" and token in _WORDS:
            return _WORDS[token]
        if token == "{":
            return self._object(depth)
        if token == "[":
            return self._array(depth)
        raise self._error(f"{token!r} where a value belongs")

    def _object(self, depth: int) -> dict[str | ObjectKey, Json]:
        members: dict[str | ObjectKey, Json] = {}
        while True:
            kind, token = self._next()
            if token == "}" and kind == "mark":
                return members
            key = self._key(kind, token, depth)
            if self._next() != ("mark", ":"):
                raise self._error("no colon after a key")
            members[key] = self._value(*self._next(), depth + 1)
            if self._ends("}"):
                return members

    def _array(self, depth: int) -> list[Json]:
        items: list[Json] = []
        while True:
            kind, token = self._next()
            if token == "]" and kind == "mark":
                return items
            items.append(self._value(kind, token, depth + 1))
            if self._ends("]"):
                return items

    def _ends(self, closing: str) -> bool:
        kind, token = self._next()
        if kind != "mark" or token not in (",", closing):
            raise self._error(f"{token!r} where a comma or {closing!r} belongs")
        return token == closing

    def _key(self, kind: str, token: str, depth: int) -> str | ObjectKey:
        if kind in ("double", "single"):
            return self._string(token)
        if kind in ("number", "name"):
            return token
        if token == "{":
            if depth + 1 > DEPTH_MAX:
                raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}")
            members = self._object(depth + 1)
            return tuple(sorted((_name(name), _atom(item)) for name, item in members.items()))
        raise self._error(f"{token!r} where a key belongs")

    def _string(self, raw: str) -> str:
        if "\\" not in raw:
            return raw
        text = _ESCAPE.sub(self._unescaped, raw)
        try:
            # Joins surrogate pairs that came as two escapes, and refuses halves.
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise self._error("half a surrogate pair") from error

    def _unescaped(self, match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        if code not in _ESCAPED:
            raise self._error(f"the escape \\{code} is unknown")
        return _ESCAPED[code]

    def _number(self, token: str) -> int | float:
        if len(token) > NUMBER_CHARACTERS_MAX:
            raise self._error("a number too long to mean anything")
        if token.lstrip("-").isdigit():
            return int(token)
        number = float(token)
        if not math.isfinite(number):
            raise self._error("a number out of range")
        return number

    def _error(self, what: str) -> ProtocolError:
        return ProtocolError(f"JSON cannot be read at character {self._position}: {what}")


def _name(key: str | ObjectKey) -> str:
    if not isinstance(key, str):
        raise ProtocolError("an object used as a key has an object as its own key")
    return key


def _atom(value: Json) -> Json:
    if isinstance(value, list | dict):
        raise ProtocolError("an object used as a key may only hold plain values")
    return value


class _Resolver:
    """Copies a document; a budget keeps references to references from multiplying."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._left = REFERENCED_VALUES_MAX

    def resolve(self, value: Json, depth: int, *, is_referenced: bool = False) -> Json:
        """A copy of `value` without references."""
        if depth > DEPTH_MAX:
            raise ProtocolError(f"JSON nested deeper than {DEPTH_MAX}, references followed")
        if is_referenced:
            self._left -= 1
            if self._left < 0:
                raise ProtocolError(f"references stand for over {REFERENCED_VALUES_MAX} values")
        if isinstance(value, list):
            return [self.resolve(item, depth + 1, is_referenced=is_referenced) for item in value]
        if not isinstance(value, dict):
            return value
        path = value.get("$ref")
        if len(value) == 1 and isinstance(path, str):
            return self.resolve(self._find(path), depth + 1, is_referenced=True)
        return {
            name: self.resolve(item, depth + 1, is_referenced=is_referenced)
            for name, item in value.items()
        }

    def _find(self, path: str) -> Json:
        """What a path such as `$.queues[0].topic` names, or None."""
        if not path.startswith("$") or len(path) == 1:
            return None  # the document itself, or a relative path: always a cycle
        found = self._root
        position = 1
        while position < len(path):
            step = _STEP.match(path, position)
            if step is None:
                return None
            position = step.end()
            name = step[1] if step[1] is not None else step[3]
            if name is not None:
                found = found.get(name) if isinstance(found, dict) else None
            else:
                index = int(step[2])
                is_there = isinstance(found, list) and index < len(found)
                found = found[index] if is_there and isinstance(found, list) else None
        return found
