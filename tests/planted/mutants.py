"""Bugs planted in a copy of the sources, compiled where they must be, and found by tests.

A patch names no file: its text must be in one place of all sources, wherever that is moved to.
`python -m tests.planted [NAME ...]` plants those named, or all, one after the other; it ends with 1
when one was not found, or by other words than it should.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = re.compile(r"^(?:FAILED|ERROR|E  |Fatal).*", re.MULTILINE)


class Stale(Exception):
    """The patch no longer fits the sources, or they do not compile with it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """Which text becomes what, which tests must find it, and by which words (a pattern)."""

    old: str
    new: str
    tests: tuple[str, ...]
    words: str

    def source(self, root: Path) -> Path:
        """The file of a tree that has the text, once."""
        found = {
            path: count
            for path in sorted((root / "src").rglob("*.py*"))
            if path.suffix in (".py", ".pyx") and (count := path.read_text().count(self.old))
        }
        if list(found.values()) != [1]:
            places = {str(path.relative_to(root)): count for path, count in found.items()}
            raise Stale(f"{self.old!r} must be in one place, and is in {places or 'none'}")
        return next(iter(found))


def planted(mutant: Mutant, tree: Path) -> Path:
    """Make a copy of the sources with the bug, compiled if need be; where the bug is."""
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.c"))
    source = mutant.source(tree)
    source.write_text(source.read_text().replace(mutant.old, mutant.new))
    if source.suffix == ".pyx":
        compiled(source, tree)
    return source


def compiled(source: Path, tree: Path) -> None:
    """Compile one module of a tree anew; all else stays as it is."""
    shutil.copy(ROOT / "setup.py", tree)
    for path in source.parent.glob(f"{source.stem}.*.so"):
        path.unlink()
    for path in (tree / "src").rglob("*.pyx"):
        if path != source:
            path.unlink()
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "src"]
    built = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if built.returncode:
        raise Stale(f"does not compile:\n{(built.stdout + built.stderr)[-2000:]}")


def verdict(mutant: Mutant, tree: Path, source: Path) -> str:
    """What the tests said of it; raises AssertionError unless they found it by its words."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "ARIANE_SEED": "1"}
    module = ".".join(source.relative_to(tree / "src").with_suffix("").parts)
    where = f"import {module} as it; print(it.__file__)"
    found = subprocess.check_output([sys.executable, "-c", where], env=environment, text=True)
    assert found.startswith(str(tree)), f"the tests would run {found}"
    command = [sys.executable, "-m", "pytest", "-x", "--tb=short", *mutant.tests]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    # A crash of the interpreter is a finding too, and has no summary.
    said = "\n".join(SUMMARY.findall(ran.stdout + ran.stderr))
    assert ran.returncode != 0, f"not found by {' '.join(mutant.tests)}"
    assert re.search(mutant.words, said), f"found by other words than {mutant.words!r}:\n{said}"
    return said.splitlines()[-1]
