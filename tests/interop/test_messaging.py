"""Every message type and way to consume, with each client, against Ariane and against Apache."""

import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.interop.clients import Verdicts
from tests.interop.messaging import PROGRAMS, SERVERS, Runs

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """All programs against all servers, a server's when it is first asked for."""
    directory = tmp_path_factory.mktemp("messaging")
    yield Runs(directory)
    shutil.rmtree(directory, ignore_errors=True)  # stores are large


@pytest.mark.parametrize(
    ("kind", "client", "feature"),
    [
        pytest.param(kind, client, feature, id=f"{kind}-{client}-{feature}")
        for kind in SERVERS
        for client, (_, features) in PROGRAMS.items()
        for feature in features
    ],
)
@pytest.mark.timeout(600)
def test_feature(
    kind: str, client: str, feature: str, runs: Runs, judge: Callable[[Verdicts, str], None]
) -> None:
    judge(runs.verdicts(client, kind), feature)
