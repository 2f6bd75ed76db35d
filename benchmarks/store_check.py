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


def store_check() -> list[Row]:
    """Fill a store, stop its broker and check it."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    try:
        with Ariane(DIRECTORY) as server:
            server.start()
            fill(server)
            server.stop()
        took_s, peak_bytes = checked(server)
    finally:
        shutil.rmtree(DIRECTORY, ignore_errors=True)
    what = f"{MESSAGES:,} messages"
    return [
        Row("store-check", what, "s", took_s, None, f"<= {SECONDS_MAX} s", took_s <= SECONDS_MAX),
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


def fill(server: Ariane) -> None:
    """Send all messages."""
    shape = "--queues 8 --conns 4 --window 16 --batch 32 --body 100"
    command = [LOAD, "produce", "--port", server.broker[1], *shape.split(), "-n", MESSAGES]
    ran = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise LoadFailed(f"{command}: {ran.stdout}{ran.stderr}")


def checked(server: Ariane) -> tuple[float, int]:
    """How long a check takes in seconds, and how much was resident at most."""
    began_s = time.perf_counter()
    checking = subprocess.Popen([ARIANE, "store", "check", server.store], stdout=subprocess.PIPE)
    assert checking.stdout is not None
    printed = checking.stdout.read().decode()
    _, status, used = os.wait4(checking.pid, 0)
    checking.returncode = os.waitstatus_to_exitcode(status)
    took_s = time.perf_counter() - began_s
    if checking.returncode or f"{MESSAGES:,} records" not in printed:
        raise LoadFailed(f"the check ended with {checking.returncode}: {printed}")
    return took_s, used.ru_maxrss << 10


if __name__ == "__main__":
    print(table(store_check()))
