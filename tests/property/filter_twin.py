"""What a filter expression comes to, written for reading: the specification of `store.filters`.

Java's classes are spelled out: an `Int` is not a `Long`, for a property that meets one is read as
that.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from ariane.broker.filters import syntax
from ariane.broker.filters.syntax import Order, Where

INT32 = range(-(1 << 31), 1 << 31)
INT64 = range(-(1 << 63), 1 << 63)
BLANKS = "".join(map(chr, range(0x21)))


class Broken(Exception):
    """A text met a number and is none: the message does not match, whatever else is said."""


@dataclass(frozen=True)
class Int:
    value: int


@dataclass(frozen=True)
class Long:
    value: int


def properties_of(data: bytes) -> dict[str, str]:
    """A properties text as Java reads it: what lacks a half does not count, the last one does."""
    found = {}
    for pair in data.decode("utf-8", "replace").split("\x02"):
        name, has_value, value = pair.partition("\x01")
        if name and has_value and value:
            found[name] = value
    return found


def evaluate(  # noqa: C901, PLR0912 - one rule after the other, as they would be told
    node: syntax.Expression, properties: dict[str, str]
) -> Any:
    """True, False, None for unknown, or any other value; raises Broken."""

    def of(operand: syntax.Expression) -> Any:
        return evaluate(operand, properties)

    match node:
        case syntax.Constant(value):
            if type(value) is int:
                return Int(value) if value in INT32 else Long(value)
            return value
        case syntax.Property(name):
            return properties.get(name)
        case syntax.Negate(operand):
            match of(operand):
                case Int(value):
                    return Int(-value)
                case Long(value):
                    return Long(-value)
                case float(value):
                    return -value
            return None
        case syntax.Not(operand):
            value = of(operand)
            return None if value is None else not value
        case syntax.Truth(operand):
            return None if of(operand) is None else False
        case syntax.And(operands) | syntax.Or(operands):
            decisive = isinstance(node, syntax.Or)
            is_unknown = False
            for operand in operands:
                value = of(operand)
                if value is decisive:
                    return decisive
                is_unknown |= value is None
            return None if is_unknown else not decisive
        case syntax.In(operand, texts, is_negated):
            value = of(operand)
            return None if value is None else (value in texts) is not is_negated
        case syntax.Match(where, operand, text, is_negated):
            if not text:
                return False
            value = of(operand)
            if not isinstance(value, str):
                return False
            return found_in(value, text, where) is not is_negated
        case syntax.Equal(left, right):
            values = of(left), of(right)
            if None in values:
                return True if values == (None, None) else None if values[0] is None else False
            return compare(*values) == 0
        case syntax.Compare(order, left, right):
            first = of(left)
            if first is None:
                return None
            second = of(right)
            if second is None:
                return None
            if isinstance(first, str) and isinstance(second, str):
                first, second = double(first), double(second)
            return holds(order, compare(first, second))


def found_in(value: str, text: str, where: Where) -> bool:
    if where is Where.START:
        return value.startswith(text)
    return value.endswith(text) if where is Where.END else text in value


def holds(order: Order, sign: int) -> bool:
    return {
        Order.GREATER: sign > 0,
        Order.GREATER_OR_EQUAL: sign >= 0,
        Order.LESS: sign < 0,
        Order.LESS_OR_EQUAL: sign <= 0,
    }[order]


def compare(left: Any, right: Any) -> int:
    """Negative, 0 or positive, for two values of whatever classes."""
    if isinstance(left, str) and not isinstance(right, str):
        left = read_like(right, left)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            raise Broken("Java takes the truth value for a text")
        right = read_like(left, right)
    if isinstance(left, str):
        return 0 if left == right else -1
    if isinstance(left, bool) or isinstance(right, bool):
        is_same_class = isinstance(left, bool) and isinstance(right, bool)
        return int(left) - int(right) if is_same_class else -1
    left, right = number(left), number(right)
    if isinstance(left, float) or isinstance(right, float):
        left, right = ranked(float(left)), ranked(float(right))
    return (left > right) - (left < right)


def number(value: Any) -> Any:
    return value.value if isinstance(value, Int | Long) else value


def ranked(value: float) -> tuple[bool, float, float]:
    """Doubles in Java's order: -0.0 before 0.0, NaN last and equal to itself."""
    is_nan = math.isnan(value)
    return is_nan, 0.0 if is_nan else value, 0.0 if is_nan else math.copysign(1, value)


def read_like(model: Any, text: str) -> Any:
    match model:
        case bool():
            return text.lower() == "true" and text.isascii()
        case Int():
            return Int(integer(text, INT32))
        case Long():
            return Long(integer(text, INT64))
        case float():
            return double(text)


def integer(text: str, allowed: range) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or any(digit > "\uffff" for digit in digits):
        raise Broken(text)
    value = int(digits) * (-1 if text[0] == "-" else 1)
    if value not in allowed:
        raise Broken(text)
    return value


def double(text: str) -> float:
    stripped = text.strip(BLANKS)
    sign = -1 if stripped[:1] == "-" else 1
    unsigned = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    if unsigned in ("NaN", "Infinity"):
        return sign * float(unsigned)
    hexadecimal = re.fullmatch(
        r"(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", unsigned
    )
    if hexadecimal:
        try:
            return sign * float.fromhex(hexadecimal[1])
        except OverflowError:
            return sign * math.inf
    decimal = re.fullmatch(
        r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", unsigned
    )
    if decimal is None:
        raise Broken(text)
    return sign * float(decimal[1])
