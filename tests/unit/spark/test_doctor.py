"""What the doctor sees on a machine, and what it advises."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ariane.spark.doctor import (
    Check,
    Facts,
    Interpreter,
    Machine,
    cause_of,
    diagnose,
    gather,
    java_version_of,
    output_of,
)

WHOLE = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "numpy": "2.4.6", "ariane": "0.1.0"}
HEALTHY = Facts(
    executable="/venv/bin/python",
    driver=Interpreter((3, 11, 7), dict(WHOLE)),
    worker_executable=None,
    worker=None,
    java="/usr/bin/java",
    java_version=17,
    spark_home=None,
    spark_home_version=None,
)
BANNER_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment\n'


def failed(facts: Facts) -> list[Check]:
    return [check for check in diagnose(facts) if not check.passed]


def test_a_healthy_machine_passes_every_check() -> None:
    assert failed(HEALTHY) == []


@pytest.mark.parametrize(
    ("change", "name", "found", "advice"),
    [
        ({"java": None, "java_version": None}, "java", "no java", "openjdk-17"),
        ({"java_version": None}, "java", "does not run", "JAVA_HOME"),
        ({"java_version": 11}, "java", "11 (/usr/bin/java)", "Spark needs 17"),
        (
            {"driver": Interpreter((3, 11, 7), {**WHOLE, "pyarrow": None})},
            "pyarrow",
            "not installed for /venv/bin/python",
            'pip install "ariane[spark]"',
        ),
        (
            {"driver": Interpreter((3, 11, 7), {**WHOLE, "pyspark": "4.1.2"})},
            "pyspark",
            "4.1.2",
            "version 4.2 or newer",
        ),
        (
            {"worker_executable": "/usr/bin/python3", "worker": None},
            "workers' python",
            "does not run",
            "export PYSPARK_PYTHON=/venv/bin/python",
        ),
        (
            {
                "worker_executable": "/usr/bin/python3",
                "worker": Interpreter((3, 12, 1), dict(WHOLE)),
            },
            "workers' python",
            "is Python 3.12.1, the driver's is 3.11.7",
            "unset PYSPARK_PYTHON",
        ),
        (
            {
                "worker_executable": "/usr/bin/python3",
                "worker": Interpreter((3, 11, 2), {**WHOLE, "pyarrow": None, "ariane": None}),
            },
            "workers' python",
            "has no pyarrow and no ariane",
            '/usr/bin/python3 -m pip install "ariane[spark]"',
        ),
        (
            {"spark_home": "/opt/spark", "spark_home_version": "3.5.1"},
            "SPARK_HOME",
            "holds Spark 3.5.1, PySpark is 4.3.0",
            "unset SPARK_HOME",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_next_step(
    change: dict[str, object], name: str, found: str, advice: str
) -> None:
    [check] = failed(replace(HEALTHY, **change))  # type: ignore[arg-type]

    assert check.name == name
    assert found in check.found
    assert advice in check.advice


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        (BANNER_17, 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed.", None),
    ],
)
def test_versions_of_java(banner: str, version: int | None) -> None:
    assert java_version_of(banner) == version


def test_gathered_from_commands_and_environment(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/spark-core_2.13-4.2.0.jar").touch()
    asked: list[str] = []

    def run(words: Sequence[str]) -> str | None:
        asked.append(words[0])
        if words[0] == "/jdk/bin/java":
            return BANNER_17
        return json.dumps({"python": [3, 13, 0], "packages": WHOLE})

    environment = {
        "JAVA_HOME": "/jdk",
        "PYSPARK_PYTHON": "/other/python",
        "SPARK_HOME": str(tmp_path),
    }
    facts = gather(Machine("/venv/bin/python", environment, run))

    assert asked == ["/venv/bin/python", "/jdk/bin/java", "/other/python"]
    assert (facts.java, facts.java_version) == ("/jdk/bin/java", 17)
    assert facts.worker == Interpreter((3, 13, 0), dict(WHOLE))
    assert facts.spark_home_version == "4.2.0"


def test_an_interpreter_that_answers_nonsense_does_not_run() -> None:
    def run(words: Sequence[str]) -> str | None:
        healthy = json.dumps({"python": [3, 11, 7], "packages": WHOLE})
        return healthy if words[0] == "/venv/bin/python" else "sh: not a python"

    environment = {"PYSPARK_PYTHON": "/bin/sh", "PATH": ""}
    facts = gather(Machine("/venv/bin/python", environment, run))

    assert facts.worker is None
    assert facts.java is None


def test_a_command_that_is_not_there_prints_nothing() -> None:
    assert output_of(["/no/such/command"]) is None
    assert output_of(["false"]) is None
    assert output_of(["echo", "hello"]) == "hello\n"


WRAPPED = """[PYTHON_DATA_SOURCE_ERROR] Failed to initialize: Traceback (most recent call last):
  File "/somewhere/writer.py", line 1, in writer
    talk(address)
ariane.errors.ConnectionLost: cannot connect to 127.0.0.1:1

SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.AnalysisException: [PYTHON_DATA_SOURCE_ERROR]
\tat org.apache.spark.sql.Somewhere"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (WRAPPED, "ariane.errors.ConnectionLost: cannot connect to 127.0.0.1:1"),
        (
            "a\nModuleNotFoundError: No module named 'pyarrow'\n",
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
        ),
        ("", "no message"),
    ],
)
def test_the_cause_among_the_lines_of_an_error(said: str, cause: str) -> None:
    assert cause_of(said) == cause
