"""Runs the load generator against a server and says what it cost, and how quiet the machine was.

A figure counts only when little else ran: the CPU time that neither the server nor the load
generator used is measured with every run, and so is what a virtual machine's host gave to others
while somebody here wanted to run. A noisy run is repeated.
"""

import contextlib
import json
import mmap
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.processes import ROOT, Server, anonymous_bytes, process_tree

LOAD = ROOT / "benchmarks/bin/rmqload"
POP_LOAD = ROOT / "benchmarks/bin/popload"
RUN_S_MAX = 180
TRIES = 4  # of a run that was noisy or went wrong
BACKED_BYTES = 6 << 30  # about what the busiest run writes
PIECE_BYTES = 2 << 20  # no host takes back less
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE
NOISE_CORES = 0.15  # what others may use during a run that counts
STOLEN_CORES = 0.03  # what the host may give to others meanwhile
TICKS = os.sysconf("SC_CLK_TCK")

Run = dict[str, float]


class LoadFailed(Exception):
    """The load generator reports refused, lost or unanswered messages."""


@dataclass
class Contender:
    """A server under measurement."""

    name: str
    server: Server
    anonymous_mb_max: float = 0
    runs: list[dict[str, object]] = field(default_factory=list)
    filled: str = ""  # a topic full of messages, once there is one

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.server.processes]

    def load(self, mode: str, *arguments: object) -> Run:
        """One run of the load generator."""
        words = [mode, "--port", self.server.broker[1], "--json", *arguments]
        return self.measure([LOAD, *words, "--server-pid", ",".join(map(str, self.pids))])

    def pop(self, *arguments: object) -> Run:
        """One run of the generator that pops and acknowledges."""
        return self.measure([POP_LOAD, "--port", self.server.broker[1], *arguments])

    def measure(self, words: Sequence[object]) -> Run:
        """Run a command that prints its figures, and note what the machine did meanwhile."""
        command = [str(word) for word in words]
        with self._memory_watched():
            busy, server, own, start = users_s(), self._cpu_s(), os.times(), time.monotonic()
            stolen = stolen_s()
            done = run_to_end(command)
            wall, stolen = time.monotonic() - start, stolen_s() - stolen
            busy, server, end = users_s() - busy, self._cpu_s() - server, os.times()
        client = end.children_user + end.children_system - own.children_user - own.children_system
        if not done.stdout.strip():
            raise LoadFailed(f"{self.name}: {' '.join(command)}: {done.stderr.strip()}")
        run: Run = json.loads(done.stdout)
        run["other_cores"] = (busy - server - client) / wall
        run["stolen_cores"] = stolen / wall
        run["failed"] = done.returncode
        run.setdefault("server_cpu_s_per_m", server / max(run["messages"], 1) * 1e6)
        names = (Path(word).name if word.startswith("/") else word for word in command)
        record = {"server": self.name, "command": " ".join(names), "note": done.stderr.strip()}
        self.runs.append({**record, **run})
        return run

    def create_topics(self, name: str, count: int) -> None:
        """Topics name_0000 and so on, each with four queues."""
        words = ["topic", "--port", self.server.broker[1], "--topic", name, "--topics", count]
        subprocess.run([str(LOAD), *map(str, words)], check=True)

    def _cpu_s(self) -> float:
        return sum(cpu_s(member) for pid in self.pids for member in process_tree(pid))

    @contextlib.contextmanager
    def _memory_watched(self) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while True:
                self.note_memory()
                if done.wait(0.25):
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def note_memory(self) -> float:
        """Anonymous memory now, in MB; the highest is kept."""
        now = sum(anonymous_bytes(pid) for pid in self.pids) / 1e6
        self.anonymous_mb_max = max(self.anonymous_mb_max, now)
        return now

    def read_store(self) -> None:
        """Have the newest files in the page cache, which an idle machine may have emptied."""
        for path in sorted(self.server.store.glob("commitlog/*"))[-2:]:
            with path.open("rb") as file:
                while file.read(8 << 20):
                    pass

    @contextlib.contextmanager
    def alone(self, others: Sequence["Contender"]) -> Iterator[None]:
        """Stop the other servers' processes meanwhile: an idle JVM is not idle."""
        with contextlib.ExitStack() as still:
            for other in others:
                if other is not self:
                    still.enter_context(other.stopped())
            yield

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the server's processes stand still meanwhile."""
        pids = self.pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


def run_to_end(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What a command printed; raises LoadFailed when it does not come to an end."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=RUN_S_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"no end after {RUN_S_MAX} s: {' '.join(command)}") from error


@dataclass
class Bench:
    """The contenders of one series and how often each is measured."""

    contenders: list[Contender]
    rounds: int
    seconds: float

    def interleave(self, measure: Callable[[Contender, int], Run]) -> dict[str, list[Run]]:
        """Measure each contender in turn, round by round."""
        kept: dict[str, list[Run]] = {contender.name: [] for contender in self.contenders}
        for number in range(self.rounds):
            for contender in self.contenders:
                with contender.alone(self.contenders):
                    kept[contender.name].append(self._quietest(measure, contender, number))
        return kept

    def _quietest(
        self, measure: Callable[[Contender, int], Run], contender: Contender, number: int
    ) -> Run:
        """A run that little disturbed; one that was noisy, or that a busy server refused to take
        part in, is tried again, and after the last try the quietest counts."""
        runs: list[Run] = []
        failure: LoadFailed | None = None
        for attempt in range(TRIES):
            os.sync()  # so that nobody writes another's dirty pages
            try:
                with memory_at_hand():
                    runs.append(measure(contender, number * TRIES + attempt))
            except LoadFailed as error:
                failure = error
                print(f"tried again, {error}", flush=True)
                continue
            if is_quiet(runs[-1]):
                break
        if not runs:
            assert failure is not None
            raise failure
        return min(runs, key=noise)


@contextlib.contextmanager
def memory_at_hand() -> Iterator[None]:
    """Have as much free memory as a run will take, touched before and until its end.

    A virtual machine's host may back memory only when it is touched, and take back what lies free:
    then the first to use a page pays ten times its price, and figures tell of the host's mood. And
    where files of earlier runs have filled the memory, whoever writes most has to make room most.
    A host takes back large pieces only (free page reporting), and within seconds; so one page in
    each of them is kept.
    """
    size = min(BACKED_BYTES, available_bytes() // 2) // PIECE_BYTES * PIECE_BYTES
    with contextlib.closing(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as memory:
        with contextlib.suppress(OSError):  # an old kernel, or too little memory
            memory.madvise(POPULATE_WRITE)
        for first in range(0, size, PIECE_BYTES):
            rest = first + mmap.PAGESIZE
            memory.madvise(mmap.MADV_DONTNEED, rest, PIECE_BYTES - mmap.PAGESIZE)
        yield


def available_bytes() -> int:
    """What the kernel would give away: free memory, and pages of files that it can read again."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kibibytes) * 1024


def median(runs: Sequence[Run], key: str) -> float:
    """The middle of what the runs measured."""
    return statistics.median(run[key] for run in runs)


def noise(run: Run) -> float:
    """How much a run was disturbed; above 1 it does not count."""
    return max(run["other_cores"] / NOISE_CORES, run["stolen_cores"] / STOLEN_CORES)


def is_quiet(run: Run) -> bool:
    """Whether a run was disturbed so little that it counts."""
    return noise(run) <= 1


def stolen_s() -> float:
    """CPU time the host has given to others while something here was ready to run."""
    return int(Path("/proc/stat").read_text().splitlines()[0].split()[8]) / TICKS


def users_s() -> float:
    """CPU time the whole machine has used, but for the kernel's threads: they write our pages."""
    values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    kernel = 0.0
    for entry in Path("/proc").iterdir():
        words = stat_of(entry.name) if entry.name.isdigit() else []
        if words and words[1] == "2":  # children of kthreadd
            kernel += (int(words[11]) + int(words[12])) / TICKS
    return (sum(values) - values[3] - values[4]) / TICKS - kernel


def cpu_s(pid: int) -> float:
    """CPU time one process has used."""
    words = stat_of(str(pid))
    return (int(words[11]) + int(words[12])) / TICKS if words else 0


def stat_of(pid: str) -> list[str]:
    """What the kernel says about a process, from its state on; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
