"""Servers under test as real processes, on free ports: waited for, stopped, killed, measured.

A server never outlives the test that started it: each is a context manager that kills what is left.
A traceback in what one of ours printed fails the test that ends it.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.watching import complaint, refuse_tracebacks, tracebacks_in

ROOT = Path(__file__).resolve().parents[2]
ARIANE = Path(sys.executable).with_name("ariane")
DICE = random.SystemRandom()  # other runs of the tests must not come to the same ports
PORTS = 12_000, 32_000
READY = re.compile(r"^ready\b.*namesrv=(\S+):(\d+) broker=(\S+):(\d+)", re.MULTILINE)


class ServerFailed(AssertionError):
    """A server did not come up, or ended by itself."""


def wait_until(condition: Callable[[], object], what: str, *, seconds: float = 30) -> None:
    """Return once `condition()` is true; fail, naming `what`, when it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.005)


def free_port(*neighbours: int) -> int:
    """A port that is free on loopback, and whose neighbours at the given distances are free too.

    It is below those that the system gives to connections and to servers that ask for any: between
    now and when it is used, one of them could get it.
    """
    while True:
        port = DICE.randrange(*PORTS)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for distance in (0, *neighbours):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port + distance))
            return port


class Server:
    """Processes that make up one name server and one broker."""

    provokes: tuple[str, ...] = ()  # words of tracebacks that a test means to cause

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / "store"  # in Apache's layout
        self.namesrv = ("127.0.0.1", 0)
        self.broker = ("127.0.0.1", 0)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.outputs: list[Path] = []  # of ours, which may not print a traceback

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""
        return f"{self.namesrv[0]}:{self.namesrv[1]}"

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""
        return f"{self.broker[0]}:{self.broker[1]}"

    @property
    def broker_process(self) -> subprocess.Popen[bytes]:
        """The process that holds the broker."""
        return self.processes[-1]

    def spawn(
        self, name: str, command: Sequence[str | Path], environment: dict[str, str] | None = None
    ) -> Path:
        """Start one process; give the file that holds what it prints."""
        self.directory.mkdir(parents=True, exist_ok=True)
        output = self.directory / f"{name}.out"
        if output in self.outputs:  # of one that ended by itself; what it said must be seen first
            self._read_outputs()
        if {str(word) for word in command} & {str(ARIANE), sys.executable}:
            self.outputs.append(output)
        with output.open("wb") as file:
            self.processes.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    env={**os.environ, **(environment or {})},
                )
            )
        return output

    def launch(self, settings: dict[str, object]) -> Path:
        """Start without waiting; give the file that holds what is printed."""
        raise NotImplementedError

    def is_ready(self, output: Path) -> bool:
        """Whether clients can use it now."""
        raise NotImplementedError

    def start(self, **settings: object) -> Self:
        """Start and wait until clients can use it; settings are broker.conf's keys."""
        output = self.launch(settings)

        def ready() -> bool:
            self.check_running(output)
            return self.is_ready(output)

        try:
            wait_until(ready, f"{type(self).__name__} to be ready", seconds=90)
        except BaseException:
            self.kill()  # nobody else would
            raise
        return self

    def check_running(self, output: Path) -> None:
        """Fail with the end of what was printed when a process has ended."""
        for process in self.processes:
            if process.poll() is not None:
                printed = output.read_text(errors="replace")[-4000:]
                raise ServerFailed(f"{process.args!r} ended with {process.returncode}:\n{printed}")

    def signal(self, number: signal.Signals) -> None:
        """Signal every process, the broker first, and wait until all are gone."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(number)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise ServerFailed(
                    f"{process.args!r} did not end within 60 s of {number.name}"
                ) from None
        self.processes.clear()
        self._read_outputs()

    def _read_outputs(self) -> None:
        outputs, self.outputs = self.outputs, []
        printed = "".join(output.read_text(errors="replace") for output in outputs)
        found = tracebacks_in(printed)
        unforeseen = [text for text in found if not any(words in text for words in self.provokes)]
        if fault := complaint(unforeseen, ()):
            raise ServerFailed(f"{type(self).__name__} {fault}")

    def stop(self) -> None:
        """Stop cleanly."""
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Ariane(Server):
    """`ariane up` with its data in `directory`."""

    def launch(
        self, settings: dict[str, object], *, namesrv_port: int = 0, broker_port: int = 0
    ) -> Path:
        self.namesrv = ("127.0.0.1", namesrv_port)
        self.broker = ("127.0.0.1", broker_port)
        ports = ["--namesrv-port", str(namesrv_port), "--broker-port", str(broker_port)]
        words = [f"--set={key}={text_of(value)}" for key, value in settings.items()]
        return self.spawn("ariane", [ARIANE, "up", "--data", self.directory, *ports, *words])

    def is_ready(self, output: Path) -> bool:
        found = READY.search(output.read_text(errors="replace"))
        if found is None:
            return False
        self.namesrv = (found[1], int(found[2]))
        self.broker = (found[3], int(found[4]))
        return True

    def check_store(self, **settings: object) -> None:
        """Fail unless `ariane store check` finds the stopped store whole."""
        words = [f"--set={key}={text_of(value)}" for key, value in settings.items()]
        command = [str(ARIANE), "store", "check", str(self.store), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        refuse_tracebacks(done.stderr, by="store check")


def text_of(value: object) -> str:
    """A setting as broker.conf spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def process_tree(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from process_tree(int(child))


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of the process and its descendants, so without the files it maps."""
    total = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{member}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
    return total
