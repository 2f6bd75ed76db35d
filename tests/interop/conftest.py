"""The clients' programs as fixtures, and a table of what they found at the end of the run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import Ariane
from tests.interop.clients import REPORT


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
    if REPORT:
        terminalreporter.section("real clients")
        for client, features in REPORT.items():
            for name, verdict in features.items():
                terminalreporter.write_line(f"{client:6} {name:34} {verdict}")
