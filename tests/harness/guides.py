"""The code of a page of documentation, and what the page says that it prints."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.harness.processes import ROOT

GUIDES = ROOT / "docs/guides"
ADDRESS = "127.0.0.1:9876"  # where the guides' broker is
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A ```python block, and the ```text block right behind it."""

    line: int
    code: str
    output: str | None

    @property
    def is_test(self) -> bool:
        return "def test_" in self.code


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(text[: found.start()].count("\n") + 1, found[1], found[2])
        for found in BLOCK.finditer(text)
    ]
