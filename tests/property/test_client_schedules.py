"""Whatever callers do to a client, and whenever they stop doing it, no message is lost.

`make soak` runs a thousand of these.
"""

from collections.abc import Iterator

import pytest

from ariane.testing import EmbeddedBroker
from tests.harness.schedules import run_schedule

SCHEDULES = 24


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.filterwarnings("ignore:a loop over messages:ResourceWarning")
@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_schedules(seed: int, broker: EmbeddedBroker) -> None:
    run_schedule(seed, broker)
