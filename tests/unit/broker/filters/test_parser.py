"""Expressions and what they are read as, and every way to refuse one."""

import pytest

from ariane.broker.filters.parser import DEPTH_MAX, EXPRESSION_BYTES_MAX, TERM_COUNT_MAX, parse
from ariane.broker.filters.syntax import (
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
)
from ariane.broker.filters.tokens import TOKEN_COUNT_MAX
from ariane.codes import ResponseCode
from ariane.errors import BadFilter

A, B, FIVE = Property("a"), Property("b"), Constant(5)

READ: dict[str, Expression] = {
    "a = 5": Equal(A, FIVE),
    "a=5": Equal(A, FIVE),
    "a = 5L": Equal(A, FIVE),
    "a <> 5": Not(Equal(A, FIVE)),
    "a > 5": Compare(Order.GREATER, A, FIVE),
    "5 <= a": Compare(Order.LESS_OR_EQUAL, FIVE, A),
    "a = 'it''s'": Equal(A, Constant("it's")),
    "a = 1.5e3": Equal(A, Constant(1500.0)),
    "a = .5": Equal(A, Constant(0.5)),
    "a = 5.": Equal(A, Constant(5.0)),
    "a = 0.0": Equal(A, Constant(0.0)),
    "a > -5": Compare(Order.GREATER, A, Negate(FIVE)),
    "a > +5": Compare(Order.GREATER, A, FIVE),
    "a = tRuE": Equal(A, Constant(value=True)),
    "a IS NULL": Equal(A, Constant(None)),
    "a is not null": Not(Equal(A, Constant(None))),
    "a BETWEEN 5 AND 5": And(
        (Compare(Order.GREATER_OR_EQUAL, A, FIVE), Compare(Order.LESS_OR_EQUAL, A, FIVE))
    ),
    "a NOT BETWEEN 5 AND 1": Or(
        (Compare(Order.LESS, A, FIVE), Compare(Order.GREATER, A, Constant(1)))
    ),
    "a IN ('x')": In(A, ("x",), is_negated=False),
    "a not in ('x', 'y')": In(A, ("x", "y"), is_negated=True),
    "a CONTAINS 'x'": Match(Where.ANYWHERE, A, "x", is_negated=False),
    "a NOT STARTSWITH 'x'": Match(Where.START, A, "x", is_negated=True),
    "a ENDSWITH 'x'": Match(Where.END, A, "x", is_negated=False),
    "a": Truth(A),
    "TRUE": Constant(value=True),
    "(a)": Truth(A),
    "a AND b": And((Truth(A), Truth(B))),
    "a OR b AND a": Or((Truth(A), And((Truth(B), Truth(A))))),
    "(a OR b) AND a": And((Or((Truth(A), Truth(B))), Truth(A))),
    "a AND b AND a": And((Truth(A), Truth(B), Truth(A))),
    "NOT (a = 5)": Not(Equal(A, FIVE)),
    "NOT a = 5": Equal(Not(Truth(A)), FIVE),
    "NOT NOT a": Not(Not(Truth(A))),
    "a = 5 = TRUE": Equal(Equal(A, FIVE), Constant(value=True)),
    "$a_1 = _b": Equal(Property("$a_1"), Property("_b")),
    "notable = 5": Equal(Property("notable"), FIVE),
    "a /* or b */ = -- five\n 5": Equal(A, FIVE),
    "a = --5": Equal(A, Negate(Negate(FIVE))),
    "a = 5 -- that's it": Equal(A, FIVE),
    "a\t=\r\n5\f": Equal(A, FIVE),
}

REFUSED = {
    "": "a property or a value is expected, but found the end of the expression",
    "a =": "a property or a value is expected",
    "a = = 5": "equal is written =",
    "a == 5": "equal is written =",
    "a != 5": "unequal is written <>",
    'a = "x"': "single quotes",
    "a = 'x": "no closing quote",
    "a = 5 /* x": "the comment has no end",
    "a = 5;": "';' at 6 has no meaning here",
    "a.b = 5": "'.' at 2 has no meaning here",
    "é = 5": "has no meaning here",
    "(a = 5": "the parenthesis at 1 is not closed",
    "a = 5)": "')' at 6 follows a whole expression",
    "a LIKE 'x%'": "CONTAINS, STARTSWITH or ENDSWITH",
    "a = 5 b = 6": "'b' at 7 follows a whole expression; AND or OR is expected",
    "a = 007": "'0' at 6 follows a whole expression",
    "5": "must be true or false",
    "'x' AND a": "must be true or false",
    "NOT 5": "must be true or false",
    "NOT -a": "must be true or false",
    "a = NULL": "ask IS NULL",
    "NULL <> a": "ask IS NULL",
    "TRUE = 5": "compares a truth value",
    "a > 'x'": "compares numbers and properties only",
    "a > NULL": "compares numbers and properties only",
    "a > TRUE": "compares numbers and properties only",
    "a > 5 > 3": "compares numbers and properties only",
    "NOT a > 5": "compares numbers and properties only",
    "a BETWEEN 5 AND 1": "has its bounds swapped",
    "a BETWEEN 5": "BETWEEN lacks its AND",
    "a BETWEEN '1' AND '5'": "compares numbers and properties only",
    "a IN (5)": "a text in quotes is expected after IN",
    "a IN ()": "a text in quotes is expected after IN",
    "a IN ('x',)": "a text in quotes is expected after a comma",
    "a IN ('x'": "the list of IN is not closed",
    "a IN 'x'": "IN takes texts in parentheses",
    "5 IN ('x')": "IN can only be asked of a property",
    "NOT a IN ('x')": "IN can only be asked of a property",
    "a CONTAINS b": "a text in quotes is expected after CONTAINS",
    "a NOT 5": "follows NOT",
    "a IS 5": "it may be NULL or NOT NULL",
    "a IS NOT TRUE": "it may be NULL or NOT NULL",
    "a > 9223372036854775808": "does not fit into 64 bits",
    "a > " + "1" * 5000: "does not fit into 64 bits",
    "a > 1e309": "does not fit into a double",
    "a > 1e-400": "does not fit into a double",
    "a = '\ud800'": "is not Unicode text",
    "(" * 500 + "a" + ")" * 500: f"nested deeper than {DEPTH_MAX}",
    "NOT " * 500 + "a": f"nested deeper than {DEPTH_MAX}",
    "a OR " * 600 + "a": f"more than {TERM_COUNT_MAX} conditions",
    "TRUE OR " * 2000 + "a": f"more than {TOKEN_COUNT_MAX} names, values and signs",
    "a = '" + "x" * EXPRESSION_BYTES_MAX + "'": f"at most {EXPRESSION_BYTES_MAX} are read",
}


@pytest.mark.parametrize(("text", "expression"), READ.items(), ids=READ)
def test_what_an_expression_is_read_as(text: str, expression: Expression) -> None:
    assert parse(text) == expression


@pytest.mark.parametrize(("text", "reason"), REFUSED.items(), ids=lambda text: repr(text)[:40])
def test_what_is_refused_and_why(text: str, reason: str) -> None:
    with pytest.raises(BadFilter) as refusal:
        parse(text)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 200
    assert refusal.value.code is ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_what_is_just_within_the_bounds() -> None:
    parse("(" * (DEPTH_MAX - 1) + "a" + ")" * (DEPTH_MAX - 1))
    parse(" OR ".join(["a"] * TERM_COUNT_MAX))
    parse("a IN (" + ",".join(["'a text of 24 characters'"] * 1_000) + ")")
