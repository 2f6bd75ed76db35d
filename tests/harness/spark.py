"""How tests run Spark: settings that start quickly, drivers as processes, a standalone cluster."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from ariane.spark.session import ARROW, INTERPRETER, LOGGING
from tests.harness.processes import Server, free_port

# Tests are short, so the JVM had better start than run well.
LOGGED = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
JAVA = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {LOGGED} {ARROW}"
QUICK_START = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


def run_quietly(
    words: Sequence[str | Path], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with these variables too; what it printed is in the answer."""
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


class Standalone(Server):
    """A Spark master and its workers, each with a directory of its own, from PySpark's scripts.

    Workers know the master's address and an interpreter, and nothing else of who uses them.
    """

    def __init__(self, directory: Path, *, workers: int = 2) -> None:
        super().__init__(directory)
        self.workers = workers
        self._page = 0

    @property
    def master(self) -> str:
        """What a session is given."""
        return f"spark://{self.broker_address}"

    def launch(self, settings: dict[str, object]) -> Path:
        self.broker = ("127.0.0.1", free_port())
        self._page = free_port()
        host = ["--host", self.broker[0]]
        ports = ["--port", str(self.broker[1]), "--webui-port", str(self._page)]
        output = self._spawn("master", "master.Master", [*host, *ports])
        for number in range(self.workers):
            name = f"worker-{number}"
            offer = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            place = ["--work-dir", str(self.directory / name)]
            self._spawn(name, "worker.Worker", [*host, *offer, *place, self.master])
        return output

    def is_ready(self, output: Path) -> bool:
        """Whether every worker has told the master of itself."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json", timeout=5) as page:
                return bool(json.load(page)["aliveworkers"] == self.workers)
        except (OSError, ValueError):  # before all its pages are there it answers with the first
            return False

    def _spawn(self, name: str, main: str, words: list[str]) -> Path:
        import pyspark  # noqa: PLC0415 - seconds, which other tests need not pay

        home = Path(pyspark.__file__).parent
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
            "SPARK_LOCAL_DIRS": str(self.directory / f"{name}-scratch"),
            "SPARK_NO_DAEMONIZE": "1",
            INTERPRETER: sys.executable,
        }
        return self.spawn(
            name,
            [home / "bin/spark-class", f"org.apache.spark.deploy.{main}", *words],
            environment,
        )
