"""`make soak`: load, faults, kills and restarts for as long as told; prints one line a minute.

The server's system calls fail by turns: no descriptors, a full disk, I/O errors, writes cut short,
slow syncs. Ends with 1, naming what went wrong, as soon as an acknowledged message is missing, one
place is acknowledged twice, an answer comes to who did not ask, a key is not found, the server does
not go on after a fault, prints a traceback, grows beyond its bound, or restarts too slowly.
"""

import argparse
import errno
import random
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.harness.faults import Fault, FaultyAriane
from tests.harness.load import Acknowledged, Producer, missing
from tests.harness.processes import ROOT, anonymous_bytes, wait_until
from tests.harness.wire import Wire

TOPIC = "Soaked"
MEMORY_MAX = 300 << 20
RESTART_MAX_S = 5.0
STORE_MAX = 10 << 30  # then a new one is begun
REMEMBERED = 200_000  # acknowledged messages at least that are looked for after each restart
PRODUCERS = 4
RECOVERY_S = 30  # from the end of a fault until a message is taken again

SLOW_SYNC = Fault("sync", wait_ms=200)
FAILED_SYNC = Fault("sync", errno.EIO, per_mille=300)
FAILED_WRITES = [
    Fault("write", errno.ENOSPC, per_mille=100),
    Fault("write", errno.EIO, per_mille=100),
    Fault("write", per_mille=300),
]
NO_DESCRIPTORS = [Fault("open", errno.EMFILE), Fault("open", errno.ENFILE, per_mille=300)]
# A log that could not be written, or not be opened to be synced, is read only until the next start.
LASTING = [FAILED_SYNC, *FAILED_WRITES, *NO_DESCRIPTORS]
FAULTS = [
    Fault("dup", errno.EMFILE),
    Fault("accept", errno.EMFILE),
    Fault("reserve", errno.ENOSPC),
    Fault("reserve", errno.EIO, per_mille=500),
    Fault("map", errno.ENOMEM),
    SLOW_SYNC,
    *LASTING,
]


@dataclass
class Limits:
    """What a machine must manage; a busy one is given more time."""

    restart_s: float = RESTART_MAX_S
    load_s: tuple[float, float] = (1, 20)


@dataclass
class Tally:
    """What was seen so far."""

    recent: list[Acknowledged] = field(default_factory=list)
    total: int = 0
    rounds: int = 0
    peak: int = 0
    slowest_s: float = 0
    struck: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.total:,} messages acknowledged, none lost;"
            f" {sum(self.struck.values()):,} calls of {len(self.struck)} kinds failed;"
            f" slowest start {self.slowest_s:.2f} s, {self.peak >> 20} MB at most"
        )


class Stubborn(Producer):
    """Connects again whenever the server lets go of it, until it is told to stop."""

    fault = ""  # what no server may do

    def run(self) -> None:
        prefix, attempt = self.prefix, 0
        while not self.stopping.is_set() and not self.fault:
            attempt += 1
            self.prefix = f"{prefix}.{attempt}"  # what was in flight may be there, under its key
            try:
                super().run()
            except StopIteration:
                self.fault = "an answer to a request that was not sent"
            except Exception as error:
                self.fault = f"{type(error).__name__}: {error}"
            self.stopping.wait(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description="Load, faults, kills and restarts for long.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--restart-seconds", type=float, default=RESTART_MAX_S)
    options = parser.parse_args()
    limits = Limits(restart_s=options.restart_seconds)
    print(f"seed {options.seed}; {options.minutes:g} minutes", flush=True)
    scratch = ROOT / ".cache"  # a disk, where the system's own directory may be memory
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=scratch) as directory:
        try:
            dice = random.Random(options.seed)
            tally = soak(Path(directory), dice, options.minutes * 60, limits)
        except AssertionError as fault:
            print(f"seed {options.seed}: {fault}")
            kept = scratch / f"soak-failed-{options.seed}"
            shutil.copytree(directory, kept, dirs_exist_ok=True)
            print(f"what was left is in {kept}")
            return 1
    print(f"done: {tally}")
    return 0


def soak(
    directory: Path, dice: random.Random, seconds: float, limits: Limits | None = None
) -> Tally:
    """Rounds of start, check, load with faults and end until the time is up."""
    limits = limits or Limits()
    tally = Tally()
    deadline = time.monotonic() + seconds
    told = time.monotonic()
    while time.monotonic() < deadline:
        one_round(directory, dice, limits, tally)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{tally}; {max(0, deadline - told) / 60:.0f} minutes left", flush=True)
    return tally


def one_round(directory: Path, dice: random.Random, limits: Limits, tally: Tally) -> None:
    is_sync = dice.random() < 0.5
    settings: dict[str, object] = {
        "mappedFileSizeCommitLog": 16 << 20,
        "fileReservedTime": 1,
        "flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
    }
    began = time.monotonic()
    with FaultyAriane(directory / "data", directory / "tools").start(**settings) as server:
        took_s = time.monotonic() - began
        assert took_s < limits.restart_s, f"a start took {took_s:.1f} s"
        tally.slowest_s = max(tally.slowest_s, took_s)
        with Wire(server.broker) as wire:
            wire.create_topic(TOPIC)
            check(wire, tally.recent, dice)
        producers = [
            Stubborn(server.broker, TOPIC, f"r{tally.rounds}-p{i}") for i in range(PRODUCERS)
        ]
        for producer in producers:
            producer.start()
        trouble(server, dice, dice.uniform(*limits.load_s), is_sync, tally)
        is_killed = dice.random() < 0.7
        if is_killed:
            server.kill()
        else:
            server.stop()
        for producer in producers:
            producer.stopping.set()
        for producer in producers:
            producer.join(60)
            assert not producer.is_alive(), "a producer hangs"
    judge(producers, tally)
    if not is_killed:
        server.check_store(**settings)
    assert tally.peak < MEMORY_MAX, f"{tally.peak >> 20} MB"
    if sum(file.stat().st_size for file in (server.store / "commitlog").iterdir()) > STORE_MAX:
        shutil.rmtree(server.directory)
        tally.recent.clear()
    tally.rounds += 1


def trouble(
    server: FaultyAriane, dice: random.Random, seconds: float, is_sync: bool, tally: Tally
) -> None:
    """One fault after the other for a while, with time in between to go on."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.1, 0.5))
        fault = dice.choice(FAULTS)
        if fault in (FAILED_SYNC, *NO_DESCRIPTORS) and not is_sync:
            continue  # what was promised without a sync may go with the pages that it lost
        with server.having(fault):
            time.sleep(dice.uniform(0.1, 1.5))
        tally.peak = max(tally.peak, anonymous_bytes(server.broker_process.pid))
        struck = server.struck(fault.call)
        tally.struck[str(fault)] = tally.struck.get(str(fault), 0) + struck
        if fault in LASTING and struck:
            return
        wait_until(lambda: takes_messages(server), f"sends after {fault}", seconds=RECOVERY_S)


def takes_messages(server: FaultyAriane) -> bool:
    """Whether a new connection's message is acknowledged."""
    name = f"{threading.get_ident()}-{time.monotonic_ns()}"
    try:
        with Wire(server.broker, timeout_s=5) as wire:
            wire.send(TOPIC, 0, name.encode(), key=name)
    except (OSError, AssertionError):
        time.sleep(0.05)
        return False
    return True


def judge(producers: list[Stubborn], tally: Tally) -> None:
    """What each producer was told must be true of all of them together."""
    places: dict[tuple[int, int], Acknowledged] = {}
    for producer in producers:
        assert not producer.fault, producer.fault
        for message in producer.acknowledged:
            other = places.setdefault((message.queue_id, message.queue_offset), message)
            assert other is message, f"one place for two messages: {other} and {message}"
        tally.total += len(producer.acknowledged)
    # All of this round are looked for, and of those before it the newest, whoever sent them.
    older = sorted(tally.recent, key=lambda message: message.queue_offset)
    room = max(0, REMEMBERED - len(places))
    tally.recent = [*older[max(0, len(older) - room) :], *places.values()]


def check(wire: Wire, promised: list[Acknowledged], dice: random.Random) -> None:
    """Every remembered message is in its place, and some are found by key."""
    lost = missing(wire, TOPIC, promised)
    assert not lost, f"{len(lost)} acknowledged messages are gone, first {lost[0]}"
    for message in dice.sample(promised, min(50, len(promised))):
        found = [record.body for record in wire.query(TOPIC, message.key)]
        assert found == [message.body], f"key {message.key} finds {len(found)} messages"


if __name__ == "__main__":
    sys.exit(main())
