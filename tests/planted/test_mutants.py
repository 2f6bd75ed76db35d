"""Some bugs planted in the sources; `make soak` plants the others too."""

from pathlib import Path

import pytest

from .__main__ import MUTANTS
from .mutants import ROOT, planted, verdict

SOON = (
    "the last byte of a body is not in its checksum",
    "a delivery is not noted",
    "the commit of the first half message is not found",
    "rows that were there before a kill come again",
    "parts are published as the tasks ended",
)


@pytest.mark.parametrize("name", MUTANTS)
def test_every_patch_fits_its_source_once(name: str) -> None:
    MUTANTS[name].source(ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOON)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    source = planted(MUTANTS[name], tmp_path)
    verdict(MUTANTS[name], tmp_path, source)
