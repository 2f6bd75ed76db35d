"""The cases of what RocketMQ does besides sending and pulling: delays, timers, popping."""

import secrets
from collections.abc import Callable
from pathlib import Path

from benchmarks.cases import FILL, fill, produced
from benchmarks.clients import Client
from benchmarks.figures import OURS, Figures, Row
from benchmarks.measure import Bench, Contender, LoadFailed, Run
from tests.harness.processes import Ariane

PENDING = 1_000_000
PENDING_MB_MAX = 200
DUE_PER_S = 10_000
LATE_S_MAX = 1.0
POP_CONNECTIONS = 8
POPPED_MAX = FILL * 9 // 10  # a run ends before the topic does


def send_later(case: str, wish: str) -> Callable[[Bench], list[Row]]:
    """Messages that wait for hours, so that no delivery falls into a run."""

    def run(bench: Bench) -> list[Row]:
        def measure(contender: Contender, _: int) -> Run:
            shape = ["-b", 128, "-c", 4, "-w", 64, "-t", bench.seconds]
            return produced(contender, "--topic", case, "--property", wish, *shape)

        figures = Figures(case, bench.interleave(measure))
        figures.times_at_least("send rate", "msg/s", "msgs_per_s", 3)
        figures.shown("CPU per million", "s", "server_cpu_s_per_m")
        figures.shown("p99", "us", "p99_us")
        return figures.rows

    return run


def pop(case: str, *words: str) -> Callable[[Bench], list[Row]]:
    """Pop and acknowledge; every run is a new group, which begins at the first message."""

    def run(bench: Bench) -> list[Row]:
        fill(bench)

        def measure(contender: Contender, _: int) -> Run:
            contender.read_store()
            group = f"{case}_{secrets.token_hex(4)}"
            limits = ["-t", bench.seconds, "-n", POPPED_MAX]
            shape = ["-c", POP_CONNECTIONS, "-m", 32, *limits, *words]
            run = contender.pop("--topic", contender.filled, "--group", group, *shape)
            if run["failed"]:
                raise LoadFailed(f"{contender.name} refused acknowledgements: {run}")
            return run

        figures = Figures(case, bench.interleave(measure))
        figures.times_at_least("popped and acknowledged", "msg/s", "msgs_per_s", 3)
        figures.shown("CPU per million", "s", "server_cpu_s_per_m")
        return figures.rows

    return run


def pending_timers(directory: Path) -> list[Row]:
    """The most anonymous memory that a broker takes while it takes in a million timers."""
    with Ariane(directory) as server:
        contender = Contender(OURS, server.start())
        shape = ["-b", 128, "-c", 4, "-w", 64, "-n", PENDING]
        produced(contender, "--topic", "pending", "--property", "TIMER_DELAY_SEC=7200", *shape)
        most = contender.anonymous_mb_max
    bar = f"<= {PENDING_MB_MAX} MB"
    what = f"anonymous, {PENDING:,} pending"
    return [Row("timers", what, "MB", most, None, bar, most <= PENDING_MB_MAX)]


def due_timers(directory: Path) -> list[Row]:
    """Ten thousand timers due in each of ten seconds, and when a consumer has them."""
    with Ariane(directory) as server:
        client = Client(OURS, server.start(), address=lambda: server.namesrv_address)
        run = client.run("timers", DUE_PER_S, topic="due")
    if run["ahead_s"] <= 0:
        raise LoadFailed(f"the first timer was due before the last was sent: {run}")
    what = f"at {DUE_PER_S:,} due a second"
    early, late = -run["late_s_min"], run["late_s_max"]
    bar = f"<= {LATE_S_MAX:g} s"
    return [
        Row("timers", f"earliest, {what}", "s", -early, None, ">= 0 s", early <= 0),
        Row("timers", f"latest, {what}", "s", late, None, bar, late <= LATE_S_MAX),
    ]


CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "delay-level": send_later("delay-level", "DELAY=18"),
    "timer": send_later("timer", "TIMER_DELAY_SEC=7200"),
    "pop-ack": pop("pop-ack"),
    "pop-batch": pop("pop-batch", "--batch"),
}
