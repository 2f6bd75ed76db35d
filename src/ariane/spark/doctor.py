"""Whether Spark can run here, found out before a query fails under a hundred lines of Java.

`gather` looks at the machine, `diagnose` judges what it saw without looking again, and `round_trip`
sends rows through a real broker and a real Spark. Each check that fails says what to do next.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ariane.errors import ArianeError
from ariane.spark.session import INTERPRETER, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
NEEDED: Final = {"pyspark": (4, 2), "pyarrow": (18, 0), "numpy": (2, 0)}
INSTALL: Final = 'pip install "ariane[spark]"'
INSTALL_JAVA: Final = (
    "install a Java runtime, as with `apt-get install openjdk-17-jre-headless`, "
    "or point JAVA_HOME at one"
)
# A class and what it says, as the last line of a stack of Python's has it.
CAUSE: Final = re.compile(r"((\w+\.)+[A-Z]\w+|[A-Z]\w*(Error|Exception)): \S")
STACK: Final = "JVM stacktrace:"  # what follows is Java's
ROWS: Final = 10_000
TOPIC: Final = "ariane_doctor"
PATIENCE: Final = "10s"  # with a cluster that does not answer
ANSWER_S: Final = 30.0  # for an interpreter to say what it has; a cold disk is slow
# What an interpreter is asked. Versions come from the packages' metadata: importing takes seconds.
QUESTION: Final = """
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
packages = {name: version(name) for name in ("pyspark", "pyarrow", "numpy", "ariane")}
print(json.dumps({"python": list(sys.version_info[:3]), "packages": packages}))
"""


class Interpreter(msgspec.Struct, frozen=True):
    """What a Python interpreter says of itself."""

    python: tuple[int, int, int]
    packages: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen of this machine."""

    executable: str
    driver: Interpreter
    worker_executable: str | None  # what PYSPARK_PYTHON names, when it is set
    worker: Interpreter | None  # what that one answered, when it did
    java: str | None  # the path of the command
    java_version: int | None  # when it could be asked
    spark_home: str | None
    spark_home_version: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `advice` is what to do when it did not pass."""

    name: str
    passed: bool
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where facts come from."""

    executable: str
    environment: Mapping[str, str]
    run: Callable[[Sequence[str]], str | None]


def output_of(words: Sequence[str]) -> str | None:
    """What a command prints on both streams; None when it cannot run or fails."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=ANSWER_S, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def gather(machine: Machine) -> Facts:
    """Look at the machine."""
    environment = machine.environment
    driver = _ask(machine, machine.executable)
    if driver is None:
        raise ArianeError(f"{machine.executable} did not say its version")
    worker_executable = environment.get(INTERPRETER)
    java = _java_of(environment)
    banner = (java and machine.run([java, "-version"])) or ""
    spark_home = environment.get("SPARK_HOME")
    return Facts(
        executable=machine.executable,
        driver=driver,
        worker_executable=worker_executable,
        worker=_ask(machine, worker_executable) if worker_executable else None,
        java=java,
        java_version=java_version_of(banner),
        spark_home=spark_home,
        spark_home_version=_version_of_home(Path(spark_home)) if spark_home else None,
    )


def java_version_of(banner: str) -> int | None:
    """The version that `java -version` prints: 17.0.15 is 17, and 1.8.0 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found[1]) if found else None


def diagnose(facts: Facts) -> list[Check]:
    """Judge what was seen."""
    return [
        _check_java(facts),
        *(_check_package(facts, name) for name in NEEDED),
        _check_worker(facts),
        _check_spark_home(facts),
    ]


def round_trip(namesrv: str, clock: Callable[[], float], master: str = "local[2]") -> Check:
    """Write rows into a topic by Spark and read the same ones back; the session stays up."""
    begun = clock()
    try:
        spark = session("ariane doctor", master, {"spark.ui.enabled": "false"})
        started = clock()
        lost = _rows_lost(spark, namesrv)
    except Exception as error:  # Spark wraps the cause in classes of its own, by the dozen
        return Check(
            "round trip",
            passed=False,
            found=cause_of(str(error)),
            advice="mend what failed above first; `ariane --debug doctor spark` shows all of it",
        )
    took = f"Spark up in {started - begun:.1f} s, there and back in {clock() - started:.1f} s"
    if lost:
        return Check(
            "round trip",
            passed=False,
            found=f"{lost} of {ROWS} rows did not come back; {took}",
            advice="this is a bug: report it with the output of `ariane doctor spark -o json`",
        )
    return Check("round trip", passed=True, found=f"{ROWS} rows; {took}")


def _rows_lost(spark: SparkSession, namesrv: str) -> int:
    mark = spark.sql("SELECT uuid()").collect()[0][0]
    sent = spark.range(ROWS).selectExpr(f"concat('{mark} ', id) AS body")
    place = {"namesrv": namesrv, "timeout": PATIENCE}
    sent.write.format("rocketmq").options(**place, topic=TOPIC).mode("append").save()
    read = spark.read.format("rocketmq").options(**place, subscribe=TOPIC)
    bodies = read.load().selectExpr("CAST(body AS STRING) AS body")
    return ROWS - int(bodies.where(f"startswith(body, '{mark} ')").distinct().count())


def _check_java(facts: Facts) -> Check:
    if facts.java is None:
        return Check("java", False, "no java in JAVA_HOME or on PATH", INSTALL_JAVA)
    if facts.java_version is None:
        return Check("java", False, f"{facts.java} does not run", INSTALL_JAVA)
    found = f"{facts.java_version} ({facts.java})"
    return Check("java", facts.java_version >= JAVA_MIN, found, f"Spark needs 17: {INSTALL_JAVA}")


def _check_package(facts: Facts, name: str) -> Check:
    version = facts.driver.packages.get(name)
    least = NEEDED[name]
    if version is None:
        return Check(name, False, f"not installed for {facts.executable}", INSTALL)
    wanted = ".".join(map(str, least))
    advice = f"version {wanted} or newer is needed: {INSTALL}"
    return Check(name, _numbers(version) >= least, version, advice)


def _check_worker(facts: Facts) -> Check:
    """Executors must run a Python like the driver's that has what our source needs."""
    name, path = "workers' python", facts.worker_executable
    advice = f"unset {INTERPRETER}, or export {INTERPRETER}={facts.executable}"
    if path is None:
        found = f"{facts.executable} ({INTERPRETER} is not set)"
        return Check(name, True, found)
    if facts.worker is None:
        return Check(name, False, f"{INTERPRETER}={path} does not run", advice)
    if facts.worker.python[:2] != facts.driver.python[:2]:
        ours, theirs = (".".join(map(str, who.python)) for who in (facts.driver, facts.worker))
        found = f"{INTERPRETER}={path} is Python {theirs}, the driver's is {ours}"
        return Check(name, False, found, advice)
    missing = [need for need in ("pyarrow", "ariane") if not facts.worker.packages.get(need)]
    if missing:
        found = f"{INTERPRETER}={path} has no {' and no '.join(missing)}"
        return Check(name, False, found, f"{path} -m {INSTALL}, or {advice}")
    return Check(name, True, path)


def _check_spark_home(facts: Facts) -> Check:
    """A Spark of another version in SPARK_HOME is started in place of PySpark's own."""
    version, home = facts.driver.packages.get("pyspark"), facts.spark_home
    if home is None or version is None or facts.spark_home_version == version:
        return Check("SPARK_HOME", True, home or "not set: PySpark brings its own Spark")
    found = f"{home} holds Spark {facts.spark_home_version or 'of no known version'}"
    return Check(
        "SPARK_HOME",
        False,
        f"{found}, PySpark is {version}",
        "unset SPARK_HOME, or install a match",
    )


def _ask(machine: Machine, executable: str) -> Interpreter | None:
    answer = machine.run([executable, "-c", QUESTION])
    try:
        return msgspec.json.decode(answer, type=Interpreter) if answer else None
    except msgspec.DecodeError:
        return None


def _java_of(environment: Mapping[str, str]) -> str | None:
    """The java that Spark would start: JAVA_HOME's, else the first on PATH."""
    home = environment.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin/java")
    return shutil.which("java", path=environment.get("PATH"))


def _version_of_home(home: Path) -> str | None:
    for jar in home.glob("jars/spark-core_*.jar"):
        return jar.stem.rpartition("-")[2]
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def cause_of(said: str) -> str:
    """The line of an error of Spark's that says what went wrong."""
    lines = [line.strip() for line in said.partition(STACK)[0].splitlines() if line.strip()]
    causes = [line for line in lines if CAUSE.match(line)]
    return (causes[-1] if causes else (lines or ["no message"])[0])[:300]
