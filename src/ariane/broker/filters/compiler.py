"""Filter expressions made into programs for the kernel."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from ariane.broker.filters.syntax import (
    INT32_MAX,
    And,
    Compare,
    Constant,
    Equal,
    Expression,
    In,
    Match,
    Negate,
    Not,
    Or,
    Order,
    Property,
    Scalar,
    Truth,
    Where,
)
from ariane.store.filters import Filter


class Op(IntEnum):
    """What a node of a program does, as the kernel numbers it."""

    CONSTANT = 0
    PROPERTY = 1
    NEGATE = 2
    NOT = 3
    TRUTH = 4
    EQUAL = 5
    GREATER = 6
    GREATER_OR_EQUAL = 7
    LESS = 8
    LESS_OR_EQUAL = 9
    AND = 10
    OR = 11
    IN = 12
    CONTAINS = 13
    STARTS_WITH = 14
    ENDS_WITH = 15


class ValueKind(IntEnum):
    """What class a constant has in Java, as the kernel numbers it."""

    NULL = 0
    BOOLEAN = 1
    INTEGER = 2
    LONG = 3
    DOUBLE = 4
    STRING = 5


ORDERS: Final = {
    Order.GREATER: Op.GREATER,
    Order.GREATER_OR_EQUAL: Op.GREATER_OR_EQUAL,
    Order.LESS: Op.LESS,
    Order.LESS_OR_EQUAL: Op.LESS_OR_EQUAL,
}
WHERES: Final = {
    Where.ANYWHERE: Op.CONTAINS,
    Where.START: Op.STARTS_WITH,
    Where.END: Op.ENDS_WITH,
}
UNARY: Final[dict[type, Op]] = {Negate: Op.NEGATE, Not: Op.NOT, Truth: Op.TRUTH}
CHAINS: Final[dict[type, Op]] = {And: Op.AND, Or: Op.OR}

Node = tuple[Any, ...]


def compiled(expression: Expression) -> Filter:
    """The expression as the kernel evaluates it."""
    compiler = _Compiler()
    compiler.add(expression)
    return Filter(list(compiler.names), compiler.nodes)


class _Compiler:
    """Lays an expression's nodes out, operands first."""

    def __init__(self) -> None:
        self.names: dict[bytes, int] = {}
        self.nodes: list[Node] = []

    def add(self, expression: Expression) -> int:
        """Append a node after its operands; where it stands."""
        node = self._node(expression)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _node(self, expression: Expression) -> Node:
        match expression:
            case Constant(value):
                return (Op.CONSTANT, *constant_of(value))
            case Property(name):
                return (Op.PROPERTY, self._slot(name))
            case Negate(operand) | Not(operand) | Truth(operand):
                return (UNARY[type(expression)], self.add(operand))
            case Equal(left, right):
                return (Op.EQUAL, self.add(left), self.add(right))
            case Compare(order, left, right):
                return (ORDERS[order], self.add(left), self.add(right))
            case And(operands) | Or(operands):
                return (CHAINS[type(expression)], [self.add(operand) for operand in operands])
            case In(operand, texts, is_negated):
                return (Op.IN, self._slot(operand.name), in_order(texts), is_negated)
            case Match(where, operand, text, is_negated):
                return (WHERES[where], self.add(operand), text.encode(), is_negated)

    def _slot(self, name: str) -> int:
        return self.names.setdefault(name.encode(), len(self.names))


def constant_of(value: Scalar) -> tuple[ValueKind, bool | int | float | bytes | None]:
    """A literal with the class Java gives it."""
    match value:
        case None:
            return ValueKind.NULL, None
        case bool():
            return ValueKind.BOOLEAN, value
        case int():
            return (ValueKind.INTEGER if value <= INT32_MAX else ValueKind.LONG), value
        case float():
            return ValueKind.DOUBLE, value
        case str():
            return ValueKind.STRING, value.encode()


def in_order(texts: tuple[str, ...]) -> list[bytes]:
    """Texts as the kernel searches them: each once, short ones first."""
    return sorted({text.encode() for text in texts}, key=lambda text: (len(text), text))
