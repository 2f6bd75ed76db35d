"""Seeded histories of kills: whatever dies, streams read and write every row once and in order.

Several histories run at once, each a query with topics, a checkpoint and a batch size of its own:
from a topic to Parquet, or through the sink to another topic. They share one broker and one driver,
so that a kill meets each of them at another point of its batch. While rows keep coming, dice kill
Python workers (tasks and stream readers), the broker, and the driver's JVM, each by SIGKILL; while
the driver is down they delete the newest file of `commits/` from checkpoints, upon which Spark
plays the last batch again. A last driver takes all that is left. Then what was written is
compared with what was sent, which is read by the client and not by Spark.

`make test` runs ten; `python tests/spark/histories.py --histories 100` is part of `make soak`.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ariane.sync import Client
from tests.harness import topics
from tests.harness.processes import ROOT, Ariane, free_port, wait_until
from tests.harness.spark import QUICK_START

PROGRAM = Path(__file__).parent / "programs/history.py"
KINDS = ("sink", "parquet")
QUEUES = 2
TOGETHER = 10
LIVES = 3  # of the driver; all but the last end by a kill
FAULTS = ("worker", "broker", "worker")  # within each life, in an order that dice choose
PATIENCE_S = 180.0
DAMAGED = 0.7  # how likely a checkpoint loses its last commit while the driver is down


@dataclass(frozen=True)
class History:
    """One query."""

    seed: int
    kind: str
    rows_per_batch: int

    @property
    def name(self) -> str:
        return f"history{self.seed}"

    @property
    def source(self) -> str:
        return f"{self.name}_in"

    @property
    def target(self) -> str:
        return f"{self.name}_out"


def history_of(seed: int) -> History:
    """The history of a seed: even ones write topics, odd ones Parquet."""
    dice = random.Random(seed)
    return History(seed, KINDS[seed % len(KINDS)], dice.randrange(50, 250))


@dataclass
class Campaign:
    """Histories that run together, from the first row to the verdict."""

    directory: Path
    histories: Sequence[History]
    dice: random.Random
    server: Ariane
    client: Client
    sent: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Live through every life; fail when a row is lost, doubled or out of order."""
        for history in self.histories:
            topics.create(self.client, history.source, QUEUES)
            topics.create(self.client, history.target, QUEUES)
        self.feed(500)
        for _ in range(LIVES - 1):
            with self.driver("forever") as driver:
                self.trouble(driver)
                self.kill_driver(driver)
            self.damage_checkpoints()
            self.clear_beginnings()
        self.feed(100)
        with self.driver("available") as driver:
            assert driver.wait(PATIENCE_S * 3) == 0, self.printed()
        for history in self.histories:
            self.check(history)

    def trouble(self, driver: subprocess.Popen[bytes]) -> None:
        """Kill what is under the driver, each time when another batch is under way."""
        faults = list(FAULTS)
        self.dice.shuffle(faults)
        for fault in faults:
            self.wait_for_a_batch(driver)
            if fault == "worker":
                self.kill_worker(driver)
            else:
                self.kill_broker()
        self.wait_for_a_batch(driver)

    def feed(self, count: int) -> None:
        """Give every history more rows."""
        for history in self.histories:
            for queue in topics.queues_of(self.client, history.source):
                numbers = range(self.sent, self.sent + count)
                topics.fill(self.client, queue, (b"%d %d" % (queue.queue_id, n) for n in numbers))
        self.sent += count

    def wait_for_a_batch(self, driver: subprocess.Popen[bytes]) -> None:
        """Return at some moment of a batch that a history, chosen by dice, begins from now on."""
        history = self.dice.choice(self.histories)
        before = newest(self.state_of(history) / "offsets")
        self.feed(history.rows_per_batch // QUEUES + 1)

        def begun() -> bool:
            assert driver.poll() is None, self.printed()
            return newest(self.state_of(history) / "offsets") > before

        try:
            wait_until(begun, f"a batch of {history.name}", seconds=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.printed()}") from None
        time.sleep(self.dice.uniform(0, 0.4))  # into the batch: this is the dice's, not a wait

    def kill_worker(self, driver: subprocess.Popen[bytes]) -> None:
        """A task's Python, or a stream reader's; the daemon that makes them too, now and then."""
        members = psutil.Process(driver.pid).children(recursive=True)
        workers = [member for member in members if "pyspark" in " ".join(command_of(member))]
        workers = [worker for worker in workers if "java" not in command_of(worker)[0]]
        if workers:
            with suppress(psutil.NoSuchProcess):
                self.dice.choice(sorted(workers, key=lambda worker: worker.pid)).kill()
                self.done["workers killed"] += 1

    def kill_broker(self) -> None:
        """And start it again where it was."""
        self.server.kill()
        start_where_it_was(self.server)
        self.done["brokers killed"] += 1

    def kill_driver(self, driver: subprocess.Popen[bytes]) -> None:
        """The JVM and the program; its workers find out by themselves, as they would."""
        members = psutil.Process(driver.pid).children(recursive=True)
        for member in members:
            if "java" in (command_of(member) or [""])[0]:
                member.kill()
        driver.kill()
        driver.wait()
        self.done["drivers killed"] += 1

    def damage_checkpoints(self) -> None:
        """Delete the newest commit of some: their last batch will be played again."""
        for history in self.histories:
            commits = self.state_of(history) / "commits"
            last = newest(commits)
            if last >= 0 and random.Random(f"{history.seed} {last}").random() < DAMAGED:
                (commits / str(last)).unlink()
                (commits / f".{last}.crc").unlink(missing_ok=True)
                self.done["commits deleted"] += 1

    def clear_beginnings(self) -> None:
        """Remove what the first write of all to a checkpoint left when it was cut short.

        Nothing has been planned then and no batch has run, but Spark begins in an empty directory
        only.
        """
        for history in self.histories:
            offsets = self.state_of(history) / "offsets"
            if offsets.exists() and newest(offsets) < 0:
                for leftover in offsets.iterdir():
                    leftover.unlink()
                    self.done["beginnings cleared"] += 1

    def check(self, history: History) -> None:
        """Compare what was written with what was sent."""
        sent = topics.bodies_of(self.client, history.source)
        assert sum(map(len, sent.values())) == QUEUES * self.sent, "the feed itself lost rows"
        if history.kind == "sink":
            written = topics.bodies_of(self.client, history.target)
        else:
            written = self.parquet_rows(history)
        for queue_id, bodies in sent.items():
            verdict = difference(bodies, written.get(queue_id, []))
            assert not verdict, f"{history}, queue {queue_id}: {verdict}\n{self.printed()}"
        self.done["rows"] += QUEUES * self.sent
        self.done["batches"] += newest(self.state_of(history) / "commits") + 1

    def parquet_rows(self, history: History) -> dict[int, list[bytes]]:
        """What Spark reads from the Parquet files, each queue's rows in the order of offsets."""
        from pyarrow import parquet  # noqa: PLC0415 - only here

        table = parquet.read_table(self.directory / history.name / "seen.parquet")
        rows: dict[int, list[bytes]] = {}
        for row in table.sort_by(
            [("queueId", "ascending"), ("queueOffset", "ascending")]
        ).to_pylist():
            rows.setdefault(row["queueId"], []).append(row["body"])
        return rows

    @contextmanager
    def driver(self, until: str) -> Iterator[subprocess.Popen[bytes]]:
        """A life of the driver, with all of its queries started."""
        plan = {
            "namesrv": self.server.namesrv_address,
            "directory": str(self.directory),
            "master": "local[2,4]",  # a task may fail three times
            "conf": QUICK_START,
            "histories": [
                {**asdict(each), "name": each.name, "source": each.source, "target": each.target}
                for each in self.histories
            ],
        }
        path = self.directory / "plan.json"
        path.write_text(json.dumps(plan))
        with (self.directory / "driver.out").open("ab") as output:
            driver = subprocess.Popen(
                [sys.executable, PROGRAM, path, until],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        members: list[psutil.Process] = []
        try:
            yield driver
        finally:
            with suppress(psutil.NoSuchProcess):
                members = psutil.Process(driver.pid).children(recursive=True)
            for member in members:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            driver.kill()
            driver.wait()

    def state_of(self, history: History) -> Path:
        return self.directory / history.name / "state"

    def printed(self) -> str:
        return (self.directory / "driver.out").read_text(errors="replace")[-6000:]


def command_of(process: psutil.Process) -> list[str]:
    """The words of its command line; none when it is gone."""
    try:
        return process.cmdline() or [""]
    except psutil.Error:
        return [""]


def newest(log: Path) -> int:
    """The number of the newest batch in a directory of a checkpoint; -1 when there is none."""
    with suppress(FileNotFoundError):
        return max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)
    return -1


def difference(sent: list[bytes], written: list[bytes]) -> str:
    """What is wrong with what was written; nothing when it is what was sent."""
    if sent == written:
        return ""
    counts = Counter(written)
    lost = [body for body in sent if body not in counts]
    doubled = [body for body, count in counts.items() if count > 1]
    if lost or doubled or len(sent) != len(written):
        return (
            f"{len(sent)} sent, {len(written)} written, {len(lost)} lost {lost[:5]}, "
            f"{len(doubled)} doubled {doubled[:5]}"
        )
    pairs = zip(sent, written, strict=True)
    return f"out of order from row {next(n for n, (a, b) in enumerate(pairs) if a != b)} on"


def start_where_it_was(server: Ariane) -> None:
    """Start a server on the ports it had, or on free ones when it had none."""
    ports = [address[1] or free_port() for address in (server.namesrv, server.broker)]
    output = server.launch({}, namesrv_port=ports[0], broker_port=ports[1])

    def ready() -> bool:
        server.check_running(output)
        return server.is_ready(output)

    wait_until(ready, "the broker to be ready", seconds=90)


def run(seeds: Sequence[int], directory: Path) -> Counter[str]:
    """The histories of these seeds, together; what was done to them."""
    with Ariane(directory / "cluster") as server:
        start_where_it_was(server)
        with Client(server.namesrv_address) as client:
            histories = [history_of(seed) for seed in seeds]
            dice = random.Random(f"campaign {seeds[0]}")
            campaign = Campaign(directory, histories, dice, server, client)
            campaign.run()
            return campaign.done


def main() -> int:
    parser = argparse.ArgumentParser(description="Exactly-once histories on Spark.")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    total: Counter[str] = Counter()
    end = options.first_seed + options.histories
    for first in range(options.first_seed, end, TOGETHER):
        seeds = range(first, min(first + TOGETHER, end))
        directory = Path(tempfile.mkdtemp(prefix="histories-", dir=ROOT / ".cache"))
        try:
            total += run(seeds, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        told = ", ".join(f"{count} {what}" for what, count in total.items())
        print(
            f"seeds {first}-{seeds[-1]}: none lost, none doubled, in order; so far {told}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
