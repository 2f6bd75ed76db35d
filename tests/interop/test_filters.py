"""Our filters against Apache's own evaluator, on thousands of expressions by the dice."""

import base64
import subprocess
from random import Random

import pytest

from ariane.broker.filters.compiler import compiled
from ariane.broker.filters.parser import parse
from ariane.errors import BadFilter
from tests.harness.apache import JARS
from tests.harness.processes import ROOT
from tests.property import filter_cases

pytestmark = pytest.mark.interop

CASE_COUNT = 10_000
LETTERS = "FTUX"  # false, true, unknown, broken off
REFUSED = "refused"
# What Apache makes of a whole expression with something behind it, or of 0.0, is not what we do.
STRICTER = {"a = 5 b": "FX", "a LIKE 'x'": "FF", "a = 5)": "FX", "a-b = 5": "FF", "a = 007": "FX"}
WIDER = {"a >= 0.0": "TX", "a < -.0": "FX"}


def ask_apache(cases: list[tuple[str, list[str]]]) -> list[str]:
    """A letter for each properties text, or that the expression was refused."""

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    lines = [" ".join(map(encoded, (text, *properties))) for text, properties in cases]
    source = ROOT / "tests/interop/filters/Oracle.java"
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{JARS}/*", str(source)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return [line.split(" ")[0] for line in done.stdout.splitlines()]


def ask_ours(text: str, properties: list[str]) -> str:
    try:
        program = compiled(parse(text))
    except BadFilter:
        return REFUSED
    return "".join(LETTERS[program.evaluate(one.encode())] for one in properties)


def test_apache_comes_to_the_same() -> None:
    random = Random(92)
    cases = [
        (filter_cases.expression(random), [filter_cases.properties(random) for _ in range(8)])
        for _ in range(CASE_COUNT)
    ]
    answers = ask_apache(cases)
    assert len(answers) == CASE_COUNT
    different = [
        (text, properties, answer, ours)
        for (text, properties), answer in zip(cases, answers, strict=True)
        if (ours := ask_ours(text, properties)) != answer
    ]
    assert not different, different[:5]
    assert answers.count(REFUSED) < CASE_COUNT * 0.6  # enough of them say something


def test_where_we_differ_on_purpose() -> None:
    properties = ["a\x017\x02", "a\x01abc\x02"]
    found = ask_apache([(text, properties) for text in (*STRICTER, *WIDER)])
    assert found == [*STRICTER.values()] + [REFUSED] * len(WIDER)
    assert [ask_ours(text, properties) for text in STRICTER] == [REFUSED] * len(STRICTER)
    assert [ask_ours(text, properties) for text in WIDER] == list(WIDER.values())
