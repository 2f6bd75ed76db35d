"""What a filter expression is made of, once read.

`a <> b` is the negation of an equality, `a IS NULL` an equality with NULL and `a BETWEEN 1 AND 9`
two comparisons: the tree holds only what evaluation tells apart. How each node is evaluated is
written down in docs/reference/filters.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

Scalar: TypeAlias = bool | int | float | str | None


class Order(Enum):
    """A comparison that asks which of two numbers is greater."""

    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


class Where(Enum):
    """Where one text is looked for in another."""

    ANYWHERE = "CONTAINS"
    START = "STARTSWITH"
    END = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; NULL is None."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a message's property: a text, or NULL when the message has none by that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """The negative of a number; NULL for anything else."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """True for false and the other way round."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Truth:
    """A property where a condition is wanted: false, or unknown when there is none."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Equal:
    """Whether two values are equal."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Compare:
    """Whether two numbers are in an order."""

    order: Order
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class And:
    """Whether all conditions hold, looked at from the left."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Whether any condition holds, looked at from the left."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class In:
    """Whether a property is one of some texts; negated, whether it is none of them."""

    operand: Property
    texts: tuple[str, ...]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Match:
    """Whether a text is found in a value; negated, whether it is not. NULL is neither."""

    where: Where
    operand: Expression
    text: str
    is_negated: bool


Expression: TypeAlias = (
    Constant | Property | Negate | Not | Truth | Equal | Compare | And | Or | In | Match
)
CONDITIONS = (Not, Truth, Equal, Compare, And, Or, In, Match)


def is_condition(expression: Expression) -> bool:
    """Whether the expression is true, false or unknown."""
    if isinstance(expression, Constant):
        return expression.value is None or isinstance(expression.value, bool)
    return isinstance(expression, CONDITIONS)
