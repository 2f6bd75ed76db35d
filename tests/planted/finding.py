"""By what a planted bug was found: the statement of a test that failed, and what was said."""

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
HERE = Path(__file__).parent


def told_by(found: pytest.ExceptionInfo[BaseException]) -> str:
    """The innermost statement of a test on the way to the exception, and its words."""
    entries = [
        entry
        for entry in found.traceback
        if TESTS in Path(entry.path).parents and HERE not in Path(entry.path).parents
    ]
    statement = str(entries[-1].statement) if entries else ""
    return f"{statement.strip()}: {type(found.value).__name__}: {found.value}"
