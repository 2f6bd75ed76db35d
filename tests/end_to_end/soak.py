"""`make soak`: load, kills and restarts for as long as told; prints one line a minute.

Ends with 1, naming what went wrong, as soon as an acknowledged message is missing, a key is not
found, memory grows beyond its bound, or a restart takes too long.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.harness.load import Acknowledged, Producer, missing
from tests.harness.processes import ROOT, Ariane, anonymous_bytes
from tests.harness.wire import Wire

TOPIC = "Soaked"
MEMORY_MAX = 300 << 20
RESTART_MAX_S = 5.0
STORE_MAX = 10 << 30  # then a new one is begun
REMEMBERED = 200_000  # acknowledged messages looked for after each restart


def main() -> int:
    parser = argparse.ArgumentParser(description="Load, kills and restarts for a long time.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}; {options.minutes:g} minutes", flush=True)
    scratch = ROOT / ".cache"  # a disk, where the system's own directory may be memory
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=scratch) as directory:
        return soak(Path(directory), random.Random(options.seed), options.minutes * 60)


def soak(directory: Path, dice: random.Random, seconds: float) -> int:
    """Rounds of start, check, load and end until the time is up."""
    deadline = time.monotonic() + seconds
    told = time.monotonic()
    recent: list[Acknowledged] = []
    total = rounds = peak = 0
    slowest = 0.0
    while time.monotonic() < deadline:
        start = time.monotonic()
        with Ariane(directory).start(
            mappedFileSizeCommitLog=64 << 20, fileReservedTime=1
        ) as server:
            slowest = max(slowest, time.monotonic() - start)
            with Wire(server.broker) as wire:
                wire.create_topic(TOPIC)
                check(wire, recent, dice)
            fresh = load(server, f"r{rounds}", dice.uniform(1, 20))
            peak = max(peak, anonymous_bytes(server.broker_process.pid))
            if dice.random() < 0.7:
                server.kill()
            else:
                server.stop()
        for producer in fresh:
            producer.stopping.set()
            producer.join()
            total += len(producer.acknowledged)
            recent += producer.acknowledged
        del recent[:-REMEMBERED]
        if sum(file.stat().st_size for file in (server.store / "commitlog").iterdir()) > STORE_MAX:
            shutil.rmtree(directory)
            recent.clear()
        rounds += 1
        if slowest > RESTART_MAX_S or peak > MEMORY_MAX:
            print(f"too slow or too large: restart {slowest:.1f} s, {peak >> 20} MB")
            return 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            left = max(0, deadline - told) / 60
            print(
                f"{rounds} rounds, {total:,} messages acknowledged, none lost; slowest start"
                f" {slowest:.2f} s, {peak >> 20} MB at most; {left:.0f} minutes left",
                flush=True,
            )
    print(f"done: {rounds} rounds, {total:,} messages acknowledged, none lost")
    return 0


def load(server: Ariane, prefix: str, seconds: float) -> list[Producer]:
    """Four producers for a while; they run on when this returns."""
    producers = [Producer(server.broker, TOPIC, f"{prefix}-p{index}") for index in range(4)]
    for producer in producers:
        producer.start()
    time.sleep(seconds)
    return producers


def check(wire: Wire, promised: list[Acknowledged], dice: random.Random) -> None:
    """Every remembered message is in its place, and some are found by key."""
    lost = missing(wire, TOPIC, promised)
    assert not lost, f"{len(lost)} acknowledged messages are gone, first {lost[0]}"
    for message in dice.sample(promised, min(50, len(promised))):
        found = [record.body for record in wire.query(TOPIC, message.key)]
        assert found == [message.body], f"key {message.key} finds {len(found)} messages"


if __name__ == "__main__":
    sys.exit(main())
