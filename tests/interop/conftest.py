"""A server for a module, room for stores, and a judge of what clients' programs found."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.processes import Ariane
from tests.harness.telling import VERDICT
from tests.interop.clients import Verdicts

SEND_WAIT_MS = 3_000
PROGRAMS = {
    Path(__file__).parent / "java": ("target/.compiled", "*.java"),
    Path(__file__).parent / "go": ("target/interop", "*.go"),
}


@pytest.fixture(scope="session", autouse=True)
def built_clients() -> None:
    """Refuse to judge by programs older than their sources: such a run says nothing of either."""
    for directory, (built, sources) in PROGRAMS.items():
        made = directory / built
        newest = max(source.stat().st_mtime for source in directory.glob(sources))
        if not made.exists() or made.stat().st_mtime < newest:
            pytest.fail(f"{made} is older than its sources: run `make clients` first")


@pytest.fixture(scope="module")
def ariane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ariane]:
    """`ariane up`, one for all tests of a module.

    On a machine with other tests it may stand still for longer than the 200 ms after which it
    refuses sends, and Java's client does not try again a send to a queue that was chosen.
    """
    server = Ariane(tmp_path_factory.mktemp("ariane"))
    with server.start(waitTimeMillsInSendQueue=SEND_WAIT_MS):
        yield server
        server.stop()


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory that is gone after the test: stores are large."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def judge(record_property: Callable[[str, object], None]) -> Callable[[Verdicts, str], None]:
    """Fail unless a feature passed; either way it is in the table at the end of the run."""

    def check(verdicts: Verdicts, feature: str) -> None:
        verdict = verdicts.features[feature]
        record_property(VERDICT, (verdicts.title, verdicts.name, feature, verdict))
        verdicts.check(feature)
        if verdict.startswith("SKIP"):
            pytest.skip(verdict.removeprefix("SKIP "))

    return check
