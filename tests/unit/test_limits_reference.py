"""The page of timings and limits says what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    script = runpy.run_path(str(DOCS / "generate_limits_reference.py"))
    written = (DOCS / "reference" / "limits.md").read_text()
    assert written == script["page"](), "run .venv/bin/python docs/generate_limits_reference.py"


def test_numbers_are_shown_as_people_say_them() -> None:
    script = runpy.run_path(str(DOCS / "generate_limits_reference.py"))
    assert [script["_time"](seconds) for seconds in (0.02, 3.0, 900, 259_200)] == [
        "20 ms",
        "3 s",
        "15 min",
        "3 days",
    ]
    assert [script["_bytes"](count) for count in (127, 4 << 20, 256 << 10, 32_767)] == [
        "127 bytes",
        "4 MiB",
        "256 KiB",
        "32,767 bytes",
    ]
