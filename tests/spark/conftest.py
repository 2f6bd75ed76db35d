"""One Spark, one Ariane and one Apache RocketMQ for all tests on Spark.

A session takes ten seconds and half a gigabyte, so all of these tests run in one process: under
xdist they are one group. Tests keep apart by the names of their topics, groups and directories.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ariane.spark.session import session
from tests.harness.apache import Apache
from tests.harness.processes import Ariane
from tests.harness.spark import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Spark on two cores of this process; tests that change its settings put them back."""
    running = session("ariane tests", "local[2]", QUICK_START)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ariane]:
    """`ariane up` as a process of its own: nothing but the network between it and Spark."""
    with Ariane(tmp_path_factory.mktemp("cluster")).start() as server:
        yield server
        server.stop()


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """Apache's name server and broker."""
    with Apache(tmp_path_factory.mktemp("apache")).start() as server:
        yield server
