"""What all tests share: the `quick` mark, by which `make check` and `make test` divide the work.

A traceback that the code under test logs and survives fails the test that caused it; see
`harness/watching.py`.

The others run in several processes. A test may go to any of them, but for those that share a server
or more, which stay together. What takes longest comes first, so that nothing is left alone at the
end.
"""

import gc
import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.harness.telling import SAID, lines_of, said_in, verdicts_in
from tests.harness.watching import Watch, complaint

HERE = Path(__file__).parent
WATCH = Watch()
QUICK = ("unit", "property")
SLOWEST_FIRST = ("spark", "interop", "end_to_end", "planted", "crash")
# How the names of tests begin that share a server, a run of a program or a Spark session.
TOGETHER = (
    "tests/spark/test_histories.py",  # these two have drivers of their own
    "tests/spark/test_standalone.py",
    "tests/spark/",
    "tests/interop/test_messaging.py::test_feature[apache-",
    "tests/interop/test_messaging.py::test_feature[ariane-",
    "tests/interop/test_go.py",
    "tests/interop/test_java.py",
    "tests/interop/test_same_story.py",
    "tests/interop/test_shared_group.py",
    "tests/end_to_end/test_cli.py",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick: seconds at most and no process; set by directory")
    config.addinivalue_line(
        "markers", "provokes(*words): logs tracebacks with these words on purpose"
    )
    logging.getLogger().addHandler(WATCH)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if kind_of(item) in QUICK and item.get_closest_marker("slow") is None:
            item.add_marker("quick")
    items.sort(key=turn_of)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported need not be looked at after each test


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield
    gc.collect()  # a task whose exception nobody asked for says so when it goes
    marks = item.iter_markers("provokes")
    expected = [str(words) for mark in marks for words in mark.args]
    if fault := complaint(WATCH.taken(), expected):
        pytest.fail(fault, pytrace=False)


class Scheduler(LoadScopeScheduling):
    """Hands out single tests, and those that belong together at once."""

    def _split_scope(self, nodeid: str) -> str:
        return next((begin for begin in TOGETHER if nodeid.startswith(begin)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler | None:
    return Scheduler(config, log) if config.getoption("dist") == "loadscope" else None


def kind_of(item: pytest.Item) -> str:
    """The directory of tests it is in."""
    return item.path.relative_to(HERE).parts[0]


def turn_of(item: pytest.Item) -> int:
    """When it comes; the order is otherwise as it was."""
    kind = kind_of(item)
    return SLOWEST_FIRST.index(kind) if kind in SLOWEST_FIRST else len(SLOWEST_FIRST)


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Have a line printed at the end of the run."""
    return lambda text: record_property(SAID, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    properties = [
        each
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for each in report.user_properties
    ]
    for line in said_in(properties):
        terminalreporter.write_line(line)
    for title, table in verdicts_in(properties).items():
        terminalreporter.section(f"{title}, by client/server")
        for line in lines_of(table):
            terminalreporter.write_line(line)
