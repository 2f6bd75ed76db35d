"""A Spark session in which Ariane's source and sink work at once and work well.

Spark is embedded by default (`local[*]`); any cluster serves by its master's address. Whatever the
caller gives in `conf` wins over what is chosen here. Nothing of Spark is imported before `session`
is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ariane.errors import ConfigError
from ariane.spark.home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*]"
INTERPRETER: Final = "PYSPARK_PYTHON"
HOME: Final = "SPARK_HOME"
CACHE: Final = Path("~/.cache/ariane").expanduser()
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
# Arrow for Java looks twice at each value: whether it lies in its buffer, and whether it is null,
# which Spark has asked before. The buffers are as our workers wrote them; and a read of all columns
# takes a fifth less of the JVM's time. On a cluster its operators may say so, in
# `spark.executor.extraJavaOptions`.
ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
EVERYWHERE: Final = {
    # Times of messages are points in time: machines that disagree about the zone must not put a
    # message into yesterday's partition.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
EMBEDDED: Final = {
    # Driver and executors are one process on this machine: nobody else need reach them, and the
    # host's name, which may not resolve, is not asked for.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # Each is a file and a task in every micro-batch with state; Spark's 200 are for a cluster.
    "spark.sql.shuffle.partitions": "8",
}


def session(
    app: str = "ariane", master: str = MASTER, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session with `conf` set on it, or a new one for `app` on `master`.

    Python on the executors is this interpreter unless PYSPARK_PYTHON names another: Spark's own
    choice, whichever `python3` comes first, seldom has Arrow and never has Ariane.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - a broker's user has no Spark
    except ImportError:
        raise ConfigError(
            'PySpark is not installed: `pip install "ariane[spark]"` adds it; Java 17 is needed too'
        ) from None
    os.environ.setdefault(INTERPRETER, sys.executable)
    if master.startswith("local"):
        _choose_home()
    builder = SparkSession.builder
    chosen = dict(conf or {})
    if (
        SparkSession.getActiveSession() is None
    ):  # what is chosen here is not to change a running one
        builder = builder.appName(app).master(master)
        chosen = {**defaults(master, sys.platform), **chosen}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _choose_home() -> None:
    """Have workers start quickly, unless the user has a Spark of their own or it runs already."""
    import pyspark  # noqa: PLC0415 - a broker's user has no Spark

    if HOME not in os.environ:
        home = quick_home(Path(pyspark.__file__).parent, pyspark.__version__, CACHE)
        if home is not None:
            os.environ[HOME] = str(home)


def defaults(master: str, platform: str) -> dict[str, str]:
    """What a session on `master` is given unless its caller says otherwise."""
    chosen = dict(EVERYWHERE)
    if platform != "win32":
        # Rows reach Python by a socket file instead of TCP on loopback: a quarter faster.
        chosen["spark.python.unix.domain.socket.enabled"] = "true"
    if master.startswith("local"):
        chosen |= EMBEDDED
        logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        chosen["spark.driver.extraJavaOptions"] = f"{logging} {ARROW}"
    return chosen
