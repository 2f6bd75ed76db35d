"""Plants bugs and has them found: `python -m tests.planted [NAME ...]`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from .kernel_mutants import KERNEL
from .mutants import ROOT, Stale, planted, verdict
from .staging_mutants import STAGING

MUTANTS = KERNEL | STAGING


def main() -> int:
    parser = argparse.ArgumentParser(description="Plant bugs and find them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MUTANTS)}")
    chosen = parser.parse_args().names or list(MUTANTS)
    if unknown := set(chosen) - set(MUTANTS):
        parser.error(f"no mutants of these names: {', '.join(sorted(unknown))}")
    scratch = ROOT / ".cache"
    scratch.mkdir(exist_ok=True)
    failed = 0
    for name in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-", dir=scratch) as directory:
            try:
                source = planted(MUTANTS[name], Path(directory))
                said = verdict(MUTANTS[name], Path(directory), source)
            except (AssertionError, Stale) as fault:
                failed += 1
                said = f"NOT FOUND: {fault}"
        print(f"{name} ({time.monotonic() - began:.0f} s): {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
