"""Apache's Go client, unmodified, against `ariane up`."""

import re
from collections.abc import Callable

import pytest

from tests.harness.processes import ROOT, Ariane
from tests.interop.clients import Verdicts

pytestmark = pytest.mark.interop

PROGRAM = ROOT / "tests/interop/go"
FEATURES = re.findall(r'^\t\{"([a-z-]+)", ', (PROGRAM / "main.go").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def verdicts(ariane: Ariane, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """One run of the whole program."""
    verdicts = Verdicts("basics", "go/ariane", FEATURES)
    verdicts.run(
        [PROGRAM / "target/interop", "basics", ariane.namesrv_address, ariane.broker_address],
        tmp_path_factory.mktemp("go"),
        timeout_s=180,
    )
    return verdicts


@pytest.mark.parametrize("feature", FEATURES)
def test_feature(feature: str, verdicts: Verdicts, judge: Callable[[Verdicts, str], None]) -> None:
    judge(verdicts, feature)
