"""One Spark, one Ariane and one Apache RocketMQ for all tests on Spark.

A session takes ten seconds and half a gigabyte, so all tests that use it run in one process (see
`TOGETHER` in tests/conftest.py). They keep apart by the names of their topics, groups and
directories.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ariane.spark.session import session
from tests.harness.apache import Apache
from tests.harness.processes import Ariane
from tests.harness.spark import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Spark on two cores of this process; tests that change its settings put them back."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    running = session("ariane tests", "local[2]", {**QUICK_START, **warehouse})
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
    rarely = {"timerFlushIntervalMs": 10_000}  # a copy of a wheel that nobody here uses
    with Apache(tmp_path_factory.mktemp("apache")).start(**rarely) as server:
        yield server
