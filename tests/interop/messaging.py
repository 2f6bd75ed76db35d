"""The programs that try every message type and way to consume, and the brokers they meet.

All programs of one broker run at once: they mostly wait, and share nothing but the broker.
"""

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.apache import JARS, Apache
from tests.harness.processes import ROOT, Ariane, Server
from tests.interop.clients import Verdicts

JAVA, GO, PYTHON = (ROOT / "tests/interop" / name for name in ("java", "go", "python"))
# The client looks only every 20 s whether it should rebalance or renew its locks.
HASTE = [
    "-Drocketmq.client.rebalance.waitInterval=2000",
    "-Drocketmq.client.rebalance.lockInterval=2000",
]
SETTINGS: dict[str, object] = {
    "messageDelayLevel": "1s 2s 1s 2s 3s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 2s",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 4000,  # within which an end comes and is noted, however busy all are
    "transactionCheckMax": 4,
    "timerPrecisionMs": 100,
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "traceTopicEnable": True,
    "waitTimeMillsInSendQueue": 3000,  # all programs begin at once
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 2000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
}
ARIANE_SETTINGS: dict[str, object] = {"enableTopicMessageTypeCheck": True}
# Three seconds by default, in which Apache goes on asking about transactions that have ended.
APACHE_SETTINGS: dict[str, object] = {"transactionOpBatchInterval": 100}

Command = Callable[[Server, str, Path], list[str | Path]]


def java(server: Server, kind: str, home: Path) -> list[str | Path]:
    """Apache's Java client."""
    return [
        "java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"-Duser.home={home}", *HASTE,
        "-cp", f"{JAVA / 'target'}:{JAVA}:{JARS}/*", "Messaging", server.namesrv_address, kind,
    ]  # fmt: skip


def go(server: Server, kind: str, home: Path) -> list[str | Path]:
    """Apache's Go client."""
    return [GO / "target/interop", "messaging", server.namesrv_address, server.broker_address]


def python(server: Server, kind: str, home: Path) -> list[str | Path]:
    """Our own client."""
    program = PYTHON / "messaging.py"
    return [sys.executable, program, server.namesrv_address, server.broker_address, kind]


def features_in(path: Path, pattern: str) -> list[str]:
    """The features a program has, in its order."""
    return re.findall(pattern, path.read_text(), re.MULTILINE)


PROGRAMS: dict[str, tuple[Command, list[str]]] = {
    "java": (java, features_in(JAVA / "Messaging.java", r'features\.put\("([^"]+)"')),
    "go": (go, features_in(GO / "messaging.go", r'^\t\{"([a-z0-9-]+)", ')),
    "python": (
        python,
        [
            name
            for path in sorted(PYTHON.glob("*.py"))
            for name in features_in(path, r'^@feature\("([^"]+)"\)')
        ],
    ),
}
SERVERS = ("apache", "ariane")


class Runs:
    """Each program's run against each server, made when the first verdict of a server is wanted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._verdicts: dict[str, dict[str, Verdicts]] = {}

    def verdicts(self, client: str, kind: str) -> Verdicts:
        """What the client found at that server."""
        if kind not in self._verdicts:
            self._verdicts[kind] = {
                name: Verdicts("messaging", f"{name}/{kind}", features)
                for name, (_, features) in PROGRAMS.items()
            }
            self._run(kind)
        return self._verdicts[kind][client]

    def _run(self, kind: str) -> None:
        home = self._directory / kind
        server: Server
        if kind == "apache":
            server = Apache(home / "server").start(**SETTINGS, **APACHE_SETTINGS)
        else:
            server = Ariane(home / "server").start(**SETTINGS, **ARIANE_SETTINGS)
        with server, ThreadPoolExecutor(len(PROGRAMS)) as workers:
            runs = []
            for name, (command, _) in PROGRAMS.items():
                (home / name).mkdir()
                arguments = command(server, kind, home / name)
                runs.append(workers.submit(self._verdicts[kind][name].run, arguments, home / name))
            for run in runs:
                run.result()
