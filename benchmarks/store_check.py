"""How long `ariane store check` takes for a store of many small messages, and the memory it needs.

The store is filled by a broker of its own, in batches, each message with two keys. What is mapped
counts as memory too. `python -m benchmarks.store_check` runs it alone.
"""

import os
import shutil
import subprocess
import time

from benchmarks.figures import Row, table
from benchmarks.measure import LOAD, LoadFailed
from tests.harness.processes import ARIANE, ROOT, Ariane

DIRECTORY = ROOT / ".cache/bench/store-check"
MESSAGES = 22_000_000
SECONDS_MAX, MEMORY_MAX = 30, 1 << 30


def store_check(messages: int = MESSAGES) -> list[Row]:
    """Fill a store, stop its broker and check it; fewer messages have less time for it."""
    seconds_max = SECONDS_MAX * messages / MESSAGES
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    try:
        with Ariane(DIRECTORY) as server:
            server.start()
            fill(server, messages)
            server.stop()
        took_s, peak_bytes = checked(server, messages)
    finally:
        shutil.rmtree(DIRECTORY, ignore_errors=True)
    bar, is_met = f"<= {seconds_max:g} s", took_s <= seconds_max
    return [
        Row("store-check", f"{messages:,} messages", "s", took_s, None, bar, is_met),
        Row(
            "store-check",
            "resident at most",
            "MB",
            peak_bytes / (1 << 20),
            None,
            f"< {MEMORY_MAX >> 20:,} MB",
            peak_bytes < MEMORY_MAX,
        ),
    ]


def fill(server: Ariane, messages: int) -> None:
    """Send all messages."""
    shape = "--queues 8 --conns 4 --window 16 --batch 32 --body 100"
    command = [LOAD, "produce", "--port", server.broker[1], *shape.split(), "-n", messages]
    ran = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise LoadFailed(f"{command}: {ran.stdout}{ran.stderr}")


def checked(server: Ariane, messages: int) -> tuple[float, int]:
    """How long a check takes in seconds, and how much was resident at most."""
    began_s = time.perf_counter()
    checking = subprocess.Popen([ARIANE, "store", "check", server.store], stdout=subprocess.PIPE)
    assert checking.stdout is not None
    printed = checking.stdout.read().decode()
    _, status, used = os.wait4(checking.pid, 0)
    checking.returncode = os.waitstatus_to_exitcode(status)
    took_s = time.perf_counter() - began_s
    if checking.returncode or f"{messages:,} records" not in printed:
        raise LoadFailed(f"the check ended with {checking.returncode}: {printed}")
    return took_s, used.ru_maxrss << 10


if __name__ == "__main__":
    print(table(store_check()))
