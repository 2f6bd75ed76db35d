"""Apache's Java client and mqadmin, unmodified, against `ariane up`."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.apache import JARS
from tests.harness.processes import ROOT, Ariane
from tests.interop.clients import Verdicts

pytestmark = pytest.mark.interop

PROGRAM = ROOT / "tests/interop/java"
FEATURES = re.findall(r'features\.put\("([^"]+)"', (PROGRAM / "Interop.java").read_text())
# The client looks only every 20 s whether it should rebalance or renew its locks.
HASTE = [
    "-Drocketmq.client.rebalance.waitInterval=2000",
    "-Drocketmq.client.rebalance.lockInterval=2000",
]


@pytest.fixture(scope="module")
def verdicts(ariane: Ariane, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """One run of the whole program: a JVM for each feature would take minutes to start."""
    home: Path = tmp_path_factory.mktemp("java")
    verdicts = Verdicts("basics", "java/ariane", FEATURES)
    verdicts.run(
        [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Duser.home={home}", *HASTE,
            "-cp", f"{PROGRAM / 'target'}:{PROGRAM}:{JARS}/*", "Interop", ariane.namesrv_address,
        ],
        home,
    )  # fmt: skip
    return verdicts


@pytest.mark.parametrize("feature", FEATURES)
def test_feature(feature: str, verdicts: Verdicts, judge: Callable[[Verdicts, str], None]) -> None:
    judge(verdicts, feature)
