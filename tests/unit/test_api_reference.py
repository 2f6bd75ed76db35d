"""The page of the client's interface says what docstrings say."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    script = runpy.run_path(str(DOCS / "generate_api_reference.py"))
    written = (DOCS / "reference" / "api.md").read_text()
    assert written == script["page"](), "run .venv/bin/python docs/generate_api_reference.py"
