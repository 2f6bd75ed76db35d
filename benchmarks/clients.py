"""The Python client against its peers: the official client through Apache's proxy, and aiokafka.

Each client is a program in `programs/` with an interpreter of its own, so that no peer's packages
meet ours; each talks to its own broker, and only one pair runs at a time.
"""

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import OURS, Figures, Row
from benchmarks.measure import Bench, Contender, LoadFailed, Run
from tests.harness.apache import AS_RECOMMENDED as ROCKETMQ_FLAGS
from tests.harness.apache_proxy import ApacheProxy
from tests.harness.kafka import AS_RECOMMENDED as KAFKA_FLAGS
from tests.harness.kafka import Kafka
from tests.harness.processes import ROOT, Ariane

PEERS = ROOT / ".cache/peers"
OFFICIAL, AIOKAFKA = "rocketmq-python", "aiokafka"
TOPIC, READ_TOPIC = "clients", "clients_read"
READ_COUNT = 200_000
IMPORTS = 7
IMPORT_MS_MAX = 80


@dataclass
class Client(Contender):
    """A client and the server it talks to."""

    interpreter: Path = Path(sys.executable)
    program: str = "ariane_client"
    address: Callable[[], str] = str

    def run(self, mode: str, limit: float, *, topic: str = TOPIC) -> Run:
        """Have the client work for so many seconds, or for so many messages."""
        words = ["-m", f"benchmarks.programs.{self.program}", mode, self.address(), topic, limit]
        run = self.measure([self.interpreter, *words])
        if run["failed"]:
            raise LoadFailed(f"{self.name}: {mode} went wrong: {self.runs[-1]['note']}")
        return run


@contextlib.contextmanager
def started(directory: Path, *, ours_only: bool) -> Iterator[list[Client]]:
    """The clients to compare, each with a server that is up and has the topics."""
    with contextlib.ExitStack() as running:
        ariane = running.enter_context(Ariane(directory / "ariane"))
        clients = [Client(OURS, ariane, address=lambda: ariane.namesrv_address)]
        if not ours_only:
            proxy = ApacheProxy(directory / "apache-proxy", flags=ROCKETMQ_FLAGS)
            running.enter_context(proxy)
            kafka = running.enter_context(Kafka(directory / "kafka", flags=KAFKA_FLAGS))
            clients += [
                Client(
                    OFFICIAL,
                    proxy,
                    interpreter=interpreter("rocketmq"),
                    program="rocketmq_client",
                    address=lambda: proxy.endpoints,
                ),
                Client(
                    AIOKAFKA,
                    kafka,
                    interpreter=interpreter("aiokafka"),
                    program="aiokafka_client",
                    address=lambda: kafka.bootstrap,
                ),
            ]
        for client in clients:
            print(f"starting the server of {client.name}", flush=True)
            client.server.start()
            if client.name != AIOKAFKA:  # Kafka makes topics of four partitions by itself
                client.create_topics(TOPIC, 1)
        yield clients


def interpreter(peer: str) -> Path:
    """The Python that has the peer's client."""
    path = PEERS / peer / "bin/python"
    if not path.exists():
        raise SystemExit(f"no {peer} in {PEERS}; `make peers` installs the clients to compare with")
    return path


def warm(clients: list[Client], seconds: float) -> None:
    """Let every server compile what it will do; JVMs need their time."""
    for client in clients:
        print(f"warming {client.name}", flush=True)
        with client.alone(clients):
            client.run("awaited", seconds)
        client.runs.clear()


def chosen(clients: list[Client], bench: Bench, *names: str) -> Bench:
    """The same effort for some of the clients."""
    wanted = [client for client in clients if client.name in names]
    return Bench(list[Contender](wanted), bench.rounds, bench.seconds)


def awaited(clients: list[Client], bench: Bench) -> list[Row]:
    """1 KiB, 64 in flight, each send awaited."""
    figures = measured("client-send", clients, bench, "awaited", OURS, OFFICIAL, AIOKAFKA)
    figures.times_at_least("sends awaited", "msg/s", "msgs_per_s", 25, OFFICIAL)
    figures.times_at_least("sends awaited", "msg/s", "msgs_per_s", 2, AIOKAFKA)
    figures.at_least("sends awaited", "msg/s", "msgs_per_s", 45_000)
    figures.shown("client's CPU", "us/msg", "client_cpu_us", OFFICIAL)
    figures.shown("client's CPU", "us/msg", "client_cpu_us", AIOKAFKA)
    return figures.rows


def batched(clients: list[Client], bench: Bench) -> list[Row]:
    """1 KiB, handed over and gathered into batches for 5 ms, each message's future waited for."""
    figures = measured("client-batch", clients, bench, "batched", OURS, AIOKAFKA)
    figures.times_at_least("sends gathered", "msg/s", "msgs_per_s", 1, AIOKAFKA)
    figures.shown("client's CPU", "us/msg", "client_cpu_us", AIOKAFKA)
    return figures.rows


def blocking(clients: list[Client], bench: Bench) -> list[Row]:
    """1 KiB, one thread that waits for each send."""
    figures = measured("client-block", clients, bench, "blocking", OURS)
    figures.at_least("blocking sends", "msg/s", "msgs_per_s", 8_000)
    figures.shown("client's CPU", "us/msg", "client_cpu_us")
    return figures.rows


def pushed(clients: list[Client], bench: Bench) -> list[Row]:
    """A topic of 1 KiB bodies, from its start: our handlers, aiokafka's loop over messages."""
    some = chosen(clients, bench, OURS, AIOKAFKA)
    for client in clients:
        if client in some.contenders:
            with client.alone(clients):
                client.run("fill", READ_COUNT, topic=READ_TOPIC)

    def measure(contender: Contender, _: int) -> Run:
        assert isinstance(contender, Client)
        return contender.run("consume", READ_COUNT, topic=READ_TOPIC)

    figures = Figures("client-push", interleaved(clients, some, measure))
    figures.times_at_least("consumed", "msg/s", "msgs_per_s", 1, AIOKAFKA)
    figures.at_least("consumed", "msg/s", "msgs_per_s", 100_000)
    figures.shown("client's CPU", "us/msg", "client_cpu_us", AIOKAFKA)
    return figures.rows


def measured(case: str, clients: list[Client], bench: Bench, mode: str, *names: str) -> Figures:
    """Rounds of one mode."""

    def measure(contender: Contender, _: int) -> Run:
        assert isinstance(contender, Client)
        return contender.run(mode, bench.seconds)

    return Figures(case, interleaved(clients, chosen(clients, bench, *names), measure))


def interleaved(
    clients: list[Client], bench: Bench, measure: Callable[[Contender, int], Run]
) -> dict[str, list[Run]]:
    """Rounds during which the servers of all others stand still, taking part or not."""
    with contextlib.ExitStack() as still:
        for client in clients:
            if client not in bench.contenders:
                still.enter_context(client.stopped())
        return bench.interleave(measure)


def imports() -> list[Row]:
    """Time to import the package, and then its client, in a new interpreter; modules compiled."""
    code = (
        "import time; start = time.perf_counter(); import ariane; package = time.perf_counter();"
        "from ariane import Client, Message; end = time.perf_counter();"
        "print((package - start) * 1000, (end - start) * 1000)"
    )
    with TemporaryDirectory() as compiled:
        places = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        runs = [
            subprocess.check_output(
                [sys.executable, "-c", code], env={**os.environ, **places}, text=True
            )
            for _ in range(IMPORTS + 1)
        ]
    times = [[float(word) for word in run.split()] for run in runs[1:]]  # the first one compiles
    package_ms, client_ms = (statistics.median(found) for found in zip(*times, strict=True))
    bar = f"< {IMPORT_MS_MAX} ms"
    return [
        Row("import", "import ariane", "ms", package_ms, None, bar, package_ms < IMPORT_MS_MAX),
        Row("import", "with its client, and asyncio", "ms", client_ms, None, "", None),
    ]


CASES: dict[str, Callable[[list[Client], Bench], list[Row]]] = {
    "client-send": awaited,
    "client-batch": batched,
    "client-block": blocking,
    "client-push": pushed,
}
