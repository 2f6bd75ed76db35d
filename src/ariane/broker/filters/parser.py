"""Filter expressions read by RocketMQ's grammar, with its refusals.

Two things surprise. NOT binds tighter than a comparison: `NOT a = 5` compares the condition `NOT a`
with five, and is never true; `NOT (a = 5)` is what was meant. And only numbers have an order, so
`a > 'x'` is refused while `a > b` is not: properties may hold numbers.

We differ from Apache in two places, in both on purpose. What follows a whole expression is refused
here and silently dropped there, so that `a LIKE 'x%'` is an error instead of a filter that nothing
passes; and `0.0` is a number here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from ariane.broker.filters.syntax import (
    INT64_MAX,
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
    Truth,
    Where,
    is_condition,
)
from ariane.broker.filters.tokens import Kind, Token, tokens_of
from ariane.errors import BadFilter

EXPRESSION_BYTES_MAX: Final = 32 << 10
DEPTH_MAX: Final = 100  # parentheses, signs and NOTs within each other
TERM_COUNT_MAX: Final = 512  # conditions of one expression; texts of IN are not counted

NULL: Final = Constant(None)
LITERALS: Final = {"TRUE": Constant(value=True), "FALSE": Constant(value=False), "NULL": NULL}
ORDERS: Final = {order.value: order for order in Order}
WHERES: Final = {where.value: where for where in Where}
FOREIGN: Final = {
    "LIKE": "; look for texts by CONTAINS, STARTSWITH or ENDSWITH",
    "=": "; equal is written =",
}
NONZERO: Final = re.compile(r"[1-9]")


def parse(expression: str) -> Expression:
    """Read a filter expression; raises BadFilter saying what is wrong and where."""
    try:
        size = len(expression.encode())
    except UnicodeEncodeError as error:
        raise BadFilter("the filter expression is not Unicode text") from error
    if size > EXPRESSION_BYTES_MAX:
        raise BadFilter(
            f"a filter expression of {size} bytes; at most {EXPRESSION_BYTES_MAX} are read"
        )
    return _Parser(expression).whole()


class _Parser:
    """One expression being read, from left to right."""

    def __init__(self, expression: str) -> None:
        self._tokens = tokens_of(expression)
        self._at = 0
        self._depth = 0
        self._term_count = 0

    def whole(self) -> Expression:
        """The condition that all tokens make up."""
        found = self._condition(self._either, "the expression")
        token = self._token
        if token.kind is not Kind.END:
            hint = FOREIGN.get(token.text.upper(), "; AND or OR is expected, or nothing more")
            raise BadFilter(f"{token.shown} follows a whole expression{hint}")
        return found

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _either(self) -> Expression:
        return self._chain("OR", self._all, Or)

    def _all(self) -> Expression:
        return self._chain("AND", self._equality, And)

    def _chain(
        self,
        word: str,
        part: Callable[[], Expression],
        kind: type[And | Or],
    ) -> Expression:
        first = self._token
        left = part()
        if not self._is_word(word):
            return left
        operands = [self._as_condition(left, first)]
        while self._take_word(word):
            operands.append(self._condition(part, f"what follows {word}"))
        return kind(tuple(operands))

    def _equality(self) -> Expression:
        left = self._comparison()
        while True:
            token = self._token
            if self._take_sign("="):
                left = self._equal(token, left, self._comparison())
            elif self._take_sign("<>"):
                left = Not(self._equal(token, left, self._comparison()))
            elif self._take_word("IS"):
                is_negated = self._take_word("NOT")
                if not self._take_word("NULL"):
                    raise BadFilter(f"{self._token.shown} follows IS; it may be NULL or NOT NULL")
                self._count_term()
                is_null = Equal(left, NULL)
                left = Not(is_null) if is_negated else is_null
            else:
                return left

    def _comparison(self) -> Expression:
        left = self._signed()
        while True:
            token = self._token
            if token.kind is Kind.SIGN and token.text in ORDERS:
                self._at += 1
                left = self._compare(token, left, ORDERS[token.text], self._signed())
            elif token.kind is Kind.WORD and token.text in ("NOT", "BETWEEN", "IN", *WHERES):
                is_negated = self._take_word("NOT")
                left = self._by_word(left, is_negated=is_negated)
            else:
                return left

    def _by_word(self, left: Expression, *, is_negated: bool) -> Expression:
        """A comparison that is spelled out, after its NOT if it has one."""
        token = self._token
        if self._take_word("BETWEEN"):
            return self._between(token, left, is_negated=is_negated)
        if self._take_word("IN"):
            return self._in(left, is_negated=is_negated)
        if token.kind is Kind.WORD and token.text in WHERES:
            self._at += 1
            self._count_term()
            return Match(WHERES[token.text], left, self._text(token.text), is_negated)
        raise BadFilter(
            f"{token.shown} follows NOT; it may be BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"
        )

    def _between(self, token: Token, value: Expression, *, is_negated: bool) -> Expression:
        low = self._signed()
        if not self._take_word("AND"):
            raise BadFilter(f"BETWEEN lacks its AND: found {self._token.shown}")
        high = self._signed()
        if is_negated:
            below = self._compare(token, value, Order.LESS, low)
            return Or((below, self._compare(token, value, Order.GREATER, high)))
        least = self._compare(token, value, Order.GREATER_OR_EQUAL, low)
        most = self._compare(token, value, Order.LESS_OR_EQUAL, high)
        if isinstance(low, Constant) and isinstance(high, Constant):
            assert isinstance(low.value, int | float) and isinstance(high.value, int | float)
            if high.value < low.value:
                raise BadFilter(f"BETWEEN {low.value} AND {high.value} has its bounds swapped")
        return And((least, most))

    def _in(self, left: Expression, *, is_negated: bool) -> Expression:
        if not isinstance(left, Property):
            raise BadFilter("IN can only be asked of a property, which must stand right before it")
        self._count_term()
        if not self._take_sign("("):
            raise BadFilter(f"IN takes texts in parentheses: found {self._token.shown}")
        texts = [self._text("IN")]
        while self._take_sign(","):
            texts.append(self._text("a comma"))
        if not self._take_sign(")"):
            raise BadFilter(f"the list of IN is not closed: found {self._token.shown}")
        return In(left, tuple(texts), is_negated)

    def _signed(self) -> Expression:
        """An operand, with what stands before it: signs and NOT."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadFilter(f"a filter expression nested deeper than {DEPTH_MAX}")
        if self._take_sign("+"):
            found = self._signed()
        elif self._take_sign("-"):
            found = Negate(self._signed())
        elif self._take_word("NOT"):
            found = Not(self._condition(self._signed, "what follows NOT"))
        else:
            found = self._operand()
        self._depth -= 1
        return found

    def _operand(self) -> Expression:
        token = self._token
        self._at += 1
        if token.kind is Kind.TEXT:
            return Constant(_unquoted(token))
        if token.kind is Kind.INTEGER:
            return Constant(_integer(token))
        if token.kind is Kind.DECIMAL:
            return Constant(_decimal(token))
        if token.kind is Kind.NAME:
            return Property(token.text)
        if token.kind is Kind.WORD and token.text in LITERALS:
            return LITERALS[token.text]
        if token.kind is Kind.SIGN and token.text == "(":
            found = self._either()
            if not self._take_sign(")"):
                raise BadFilter(
                    f"the parenthesis at {token.position + 1} is not closed: "
                    f"found {self._token.shown}"
                )
            return found
        hint = FOREIGN.get(token.text, "")
        raise BadFilter(f"a property or a value is expected, but found {token.shown}{hint}")

    def _equal(self, token: Token, left: Expression, right: Expression) -> Equal:
        self._count_term()
        for side in (left, right):
            if side == NULL:
                raise BadFilter(f"NULL cannot be compared by {token.shown}; ask IS NULL")
        is_constant = isinstance(left, Constant) and isinstance(right, Constant)
        if is_constant and is_condition(left) and not is_condition(right):
            raise BadFilter(f"{token.shown} compares a truth value with something else")
        return Equal(left, right)

    def _compare(
        self, token: Token, left: Expression, order: Order, right: Expression
    ) -> Expression:
        self._count_term()
        for side in (left, right):
            is_text = isinstance(side, Constant) and isinstance(side.value, str)
            if is_text or is_condition(side):
                raise BadFilter(f"{token.shown} compares numbers and properties only")
        return Compare(order, left, right)

    def _condition(self, part: Callable[[], Expression], what: str) -> Expression:
        token = self._token
        return self._as_condition(part(), token, what)

    def _as_condition(self, found: Expression, token: Token, what: str = "this") -> Expression:
        if is_condition(found):
            return found
        if isinstance(found, Property):
            self._count_term()
            return Truth(found)
        raise BadFilter(f"{what} must be true or false, and {token.shown} begins a mere value")

    def _text(self, after: str) -> str:
        token = self._token
        if token.kind is not Kind.TEXT:
            raise BadFilter(f"a text in quotes is expected after {after}, but found {token.shown}")
        self._at += 1
        return _unquoted(token)

    def _count_term(self) -> None:
        self._term_count += 1
        if self._term_count > TERM_COUNT_MAX:
            raise BadFilter(f"a filter expression of more than {TERM_COUNT_MAX} conditions")

    def _is_word(self, word: str) -> bool:
        return self._token.kind is Kind.WORD and self._token.text == word

    def _take_word(self, word: str) -> bool:
        taken = self._is_word(word)
        self._at += taken
        return taken

    def _take_sign(self, sign: str) -> bool:
        taken = self._token.kind is Kind.SIGN and self._token.text == sign
        self._at += taken
        return taken


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _integer(token: Token) -> int:
    digits = token.text.rstrip("lL")
    # Digits are counted first: turning a long text into a number takes the square of its length.
    if len(digits) > len(str(INT64_MAX)) or int(digits) > INT64_MAX:
        raise BadFilter(f"the number {token.shown} does not fit into 64 bits")
    return int(digits)


def _decimal(token: Token) -> float:
    value = float(token.text)
    mantissa = re.split("[eE]", token.text)[0]
    if math.isinf(value) or (value == 0 and NONZERO.search(mantissa)):
        raise BadFilter(f"the number {token.shown} does not fit into a double")
    return value
