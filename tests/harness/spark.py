"""How tests run Spark: settings that start quickly, drivers as processes, a standalone cluster."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ariane.spark.session import LOGGING

# Tests are short, so the JVM had better start than run well.
JAVA = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={LOGGING.as_uri()}"
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
