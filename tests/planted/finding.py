"""By what a planted bug was found: the statements of a test that failed, and what was said."""

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
HERE = Path(__file__).parent


def told_by(found: pytest.ExceptionInfo[BaseException]) -> str:
    """Every statement of a test on the way to the exception, and its words."""
    entries = [
        entry
        for entry in found.traceback
        if TESTS in Path(entry.path).parents and HERE not in Path(entry.path).parents
    ]
    way = " / ".join(str(entry.statement).strip() for entry in entries)
    return f"{way}: {type(found.value).__name__}: {found.value}"
