"""The kernel's filters against the specification, on expressions and properties by the dice."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.broker.filters.compiler import compiled
from ariane.broker.filters.parser import parse
from ariane.errors import BadFilter
from ariane.store.filters import BROKEN, FALSE, TRUE, UNKNOWABLE
from tests.property import filter_cases
from tests.property.filter_twin import Broken, evaluate, properties_of

VERDICTS = {True: TRUE, False: FALSE, None: UNKNOWABLE}


@settings(max_examples=1000)
@given(st.randoms(use_true_random=False))
def test_the_kernel_and_the_twin_agree(random: Random) -> None:
    text = filter_cases.expression(random)
    try:
        expression = parse(text)
    except BadFilter:
        return
    program = compiled(expression)
    for _ in range(8):
        properties = filter_cases.properties(random).encode()
        try:
            expected = VERDICTS[evaluate(expression, properties_of(properties))]
        except Broken:
            expected = BROKEN
        assert program.evaluate(properties) == expected, (text, properties)
        assert program.accepts(properties) == (expected == TRUE)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        compiled(parse(text)).accepts(b"a\x015\x02")
    except BadFilter as refusal:
        assert str(refusal)


@given(st.binary(max_size=80))
def test_any_bytes_are_looked_through(properties: bytes) -> None:
    expression = parse("a = 'x' OR b > 5.5 OR c CONTAINS 'y' OR TAGS IN ('1', '2')")
    try:
        expected = VERDICTS[evaluate(expression, properties_of(properties))]
    except Broken:
        expected = BROKEN
    assert compiled(expression).evaluate(properties) == expected
