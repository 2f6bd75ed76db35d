"""The settings page says what config.py says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    script = runpy.run_path(str(DOCS / "generate_config_reference.py"))
    written = (DOCS / "reference" / "config.md").read_text()
    assert written == script["page"](), "run .venv/bin/python docs/generate_config_reference.py"
