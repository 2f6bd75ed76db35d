"""The clients' programs as fixtures, and a table of what they found at the end of the run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import Ariane
from tests.interop.clients import REPORT, lines_of


@pytest.fixture(scope="module")
def ariane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ariane]:
    """`ariane up`, one for all tests of a module."""
    with Ariane(tmp_path_factory.mktemp("ariane")).start() as server:
        yield server
        server.stop()


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory that is gone after the test: stores are large."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, table in REPORT.items():
        terminalreporter.section(f"{title}, by client/server")
        for line in lines_of(table):
            terminalreporter.write_line(line)
        for run, features in table.items():
            for name, verdict in features.items():
                if not verdict.startswith("PASS"):
                    terminalreporter.write_line(f"{run} {name}: {verdict}")
