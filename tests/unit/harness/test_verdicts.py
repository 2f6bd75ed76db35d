"""What a client's program found, and how it ended, are both judged."""

import sys
from pathlib import Path

import pytest

from tests.interop.clients import Verdicts

SAID = {
    "what was printed and survived": ("print('PASS a'); raise SystemExit(1)", "no feature failed"),
    "a feature that failed": ("print('FAIL a because'); raise SystemExit(1)", "FAIL because"),
    "a feature nobody told of": ("", "no verdict"),
}


@pytest.mark.parametrize(("program", "words"), SAID.values(), ids=SAID)
def test_a_program_fails_by(program: str, words: str, tmp_path: Path) -> None:
    verdicts = Verdicts("title", "name", ["a"])
    verdicts.run([sys.executable, "-c", program], tmp_path)
    with pytest.raises(AssertionError, match=words):
        verdicts.check("a")


def test_a_program_that_ends_well_passes(tmp_path: Path) -> None:
    verdicts = Verdicts("title", "name", ["a"])
    verdicts.run([sys.executable, "-c", "print('PASS a (0.1 s)')"], tmp_path)
    verdicts.check("a")
