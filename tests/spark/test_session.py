"""The session that Ariane makes: what it chooses, and what it leaves to its caller."""

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ariane.spark.session import defaults, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_the_interpreter_of_the_driver(spark: "SparkSession") -> None:
    executables = spark.sparkContext.parallelize([0, 1], 2).map(lambda _: sys.executable).collect()

    assert set(executables) == {sys.executable}
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_times_are_in_utc_wherever_the_session_runs(spark: "SparkSession") -> None:
    [row] = spark.sql("SELECT CAST(TIMESTAMP '1970-01-02 00:00:00' AS BIGINT) AS seconds").collect()

    assert row["seconds"] == 86400


def test_a_second_call_gives_the_running_session(spark: "SparkSession") -> None:
    assert session("another").sparkContext is spark.sparkContext


def test_what_the_caller_sets_wins(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert defaults("local[2]", "linux")["spark.sql.shuffle.partitions"] == "8"


@pytest.mark.parametrize(
    ("master", "platform", "key", "present"),
    [
        ("local[*]", "linux", "spark.driver.bindAddress", True),
        # Executors elsewhere must reach the driver, by a path of their own for logging.
        ("spark://host:7077", "linux", "spark.driver.bindAddress", False),
        ("spark://host:7077", "linux", "spark.driver.extraJavaOptions", False),
        ("spark://host:7077", "linux", "spark.sql.session.timeZone", True),
        ("local", "linux", "spark.python.unix.domain.socket.enabled", True),
        ("local", "win32", "spark.python.unix.domain.socket.enabled", False),
    ],
)
def test_chosen_for(master: str, platform: str, key: str, present: bool) -> None:
    assert (key in defaults(master, platform)) == present


def test_importing_the_package_imports_no_spark() -> None:
    program = (
        "import sys, ariane.spark; print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(Exception, match=r'pip install "ariane\[spark\]"'):
        session()
