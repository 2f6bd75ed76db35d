"""`ariane doctor spark` on this machine, through a real broker."""

import json
import time
from typing import TYPE_CHECKING

import pytest

from ariane.spark import doctor
from ariane.spark.doctor import ROWS, round_trip
from tests.harness.processes import ARIANE, Ariane
from tests.harness.spark import run_quietly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_go_there_and_back_every_time(spark: "SparkSession", cluster: Ariane) -> None:
    for _ in range(2):  # rows of an earlier visit are not taken for this one's
        check = round_trip(cluster.namesrv_address, time.monotonic)

        assert check.passed, check.found
        assert f"{ROWS} rows" in check.found


def test_a_cluster_that_is_not_there(spark: "SparkSession") -> None:
    check = round_trip("127.0.0.1:1", time.monotonic)

    assert not check.passed
    assert "127.0.0.1:1" in check.found
    assert "Traceback" not in check.found


def test_rows_that_do_not_come_back(
    spark: "SparkSession", cluster: Ariane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_rows_lost", lambda spark, namesrv: 3)

    check = round_trip(cluster.namesrv_address, time.monotonic)

    assert not check.passed
    assert f"3 of {ROWS} rows did not come back" in check.found


def test_the_command_says_what_to_do_and_fails() -> None:
    done = run_quietly(
        [ARIANE, "doctor", "spark", "-o", "json"],
        {"PYSPARK_PYTHON": "/no/such/python", "JAVA_HOME": "/no/such/java"},
    )

    assert done.returncode == 1
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert not checks["java"]["passed"]
    assert "PYSPARK_PYTHON" in checks["workers' python"]["advice"]
    assert "round trip" not in checks
