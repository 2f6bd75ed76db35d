"""`make bench`: Ariane and its peers side by side, one machine, one run; see README.md here.

python -m benchmarks.run [--only CASE,CASE] [--quick] [--ours-only] [--rounds N] [--seconds S]
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import clients, cliffs, messaging
from benchmarks.cases import CASES as BASIC_CASES
from benchmarks.cases import SYNC_CASES, cold_start, memory
from benchmarks.figures import APACHE, OURS, Figures, Row, table
from benchmarks.filters import filters
from benchmarks.measure import Bench, Contender, LoadFailed, Run, users_s
from benchmarks.spark import CASES as SPARK_CASES
from benchmarks.spark import spark_cases
from benchmarks.store_check import MESSAGES, store_check
from tests.harness.apache import AS_RECOMMENDED, Apache
from tests.harness.processes import ROOT, Ariane

SCRATCH = ROOT / ".cache/bench"
RESULTS = ROOT / "benchmarks/results"
APACHE_VERSION = "5.5.0"
CASES = {**BASIC_CASES, **messaging.CASES}
SINGLE_CASES: dict[str, Callable[[], list[Row]]] = {  # without peers
    "timers": lambda: [
        *messaging.pending_timers(SCRATCH / "pending"),
        *messaging.due_timers(SCRATCH / "due"),
    ],
    "filters": filters,
    "import": clients.imports,
    "store-check": store_check,
    **cliffs.CASES,
}
QUICK_CASES: dict[str, Callable[[], list[Row]]] = {
    **SINGLE_CASES,
    "store-check": partial(store_check, MESSAGES // 10),
}
ALL = [
    *CASES, *SYNC_CASES, "memory", "cold-start", *clients.CASES, *SINGLE_CASES, *SPARK_CASES,
]  # fmt: skip


def main() -> int:
    options = parse()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    outcome = Outcome()
    try:
        if any(name in options.only for name in (*CASES, "memory")):
            series(options, "async", CASES, {}, outcome)
        if any(name in options.only for name in SYNC_CASES):
            series(options, "sync", SYNC_CASES, {"flushDiskType": "SYNC_FLUSH"}, outcome)
        if "cold-start" in options.only:
            outcome.rows += cold_starts(options)
        if any(name in options.only for name in clients.CASES):
            client_series(options, outcome)
        for name, single in (QUICK_CASES if options.quick else SINGLE_CASES).items():
            if name in options.only:
                outcome.attempt(name, partial(beside_others, name, single))
        if names := [name for name in SPARK_CASES if name in options.only]:
            settings = {"is_quick": options.quick, "ours_only": options.ours_only}
            told = (outcome.raw, outcome.failures)
            work = partial(spark_cases, names, *told, rounds=options.rounds, **settings)
            outcome.attempt("Spark beside Kafka", work)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
    print(table(outcome.rows))
    for failure in outcome.failures:
        print(f"not measured: {failure}")
    path = (
        RESULTS / f"{datetime.datetime.now():%Y-%m-%d-%H%M}{'-quick' if options.quick else ''}.json"
    )
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(report(options, outcome), indent=1) + "\n")
    print(f"written to {path.relative_to(ROOT)}")
    return 1 if outcome.failures or any(row.fails for row in outcome.rows) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Ariane and its peers side by side.")
    parser.add_argument("--only", default=",".join(ALL), help=f"cases, of {','.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help="one short round, a JVM half warm")
    parser.add_argument(
        "--ours-only", action="store_true", help="without peers: figures, no ratios"
    )
    parser.add_argument("--rounds", type=int, default=0, help="rounds; medians count (3)")
    parser.add_argument("--seconds", type=float, default=0, help="length of a run (5)")
    options = parser.parse_args()
    options.only = options.only.split(",")
    for name in options.only:
        if name not in ALL:
            parser.error(f"no case {name}; there are {', '.join(ALL)}")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (2 if options.quick else 5)
    return options


@dataclass
class Outcome:
    """What a run of `make bench` has found so far."""

    rows: list[Row] = field(default_factory=list)
    raw: list[dict[str, object]] = field(default_factory=list)  # every run behind the rows
    failures: list[str] = field(default_factory=list)

    def attempt(self, name: str, case: Callable[[], list[Row]]) -> None:
        """Measure a case; one that cannot be measured does not end the others."""
        print(f"measuring {name}", flush=True)
        try:
            rows = case()
        except (LoadFailed, AssertionError, OSError) as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            return
        print(table(rows), flush=True)
        self.rows += rows


def beside_others(name: str, case: Callable[[], list[Row]]) -> list[Row]:
    """The case's rows, and what other work on the machine took meanwhile: a wait may be its."""
    began_s, busy_s, own_s = time.monotonic(), users_s(), own_cpu_s()
    rows = case()
    others_s = users_s() - busy_s - (own_cpu_s() - own_s)
    cores = others_s / (time.monotonic() - began_s)
    return [*rows, Row(name, "others meanwhile", "cores", cores, None, "", None)]


def own_cpu_s() -> float:
    """CPU time of this process and of all it started that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def series(
    options: argparse.Namespace,
    kind: str,
    cases: dict[str, Callable[[Bench], list[Row]]],
    settings: dict[str, object],
    outcome: Outcome,
) -> None:
    """All wanted cases that share a pair of servers."""
    with contextlib.ExitStack() as running:
        contenders = [Contender(OURS, running.enter_context(Ariane(SCRATCH / kind / OURS)))]
        if not options.ours_only:
            apache = Apache(SCRATCH / kind / APACHE, flags=AS_RECOMMENDED)
            contenders.append(Contender(APACHE, running.enter_context(apache)))
        for contender in contenders:
            print(f"starting {contender.name} ({kind} flush)", flush=True)
            contender.server.start(**settings)
        time.sleep(3)
        at_rest = {contender.name: contender.note_memory() for contender in contenders}
        warm(options, contenders)
        bench = Bench(contenders, options.rounds, options.seconds)
        for name, case in cases.items():
            if name in options.only:
                outcome.attempt(name, partial(case, bench))
        if "memory" in options.only and kind == "async":
            outcome.rows += memory(at_rest, contenders)
        outcome.raw += [run for contender in contenders for run in contender.runs]


def client_series(options: argparse.Namespace, outcome: Outcome) -> None:
    """All wanted cases of the Python client and its peers."""
    with clients.started(SCRATCH / "clients", ours_only=options.ours_only) as running:
        clients.warm(running, 2 if options.quick else 15)
        bench = Bench(list[Contender](running), options.rounds, options.seconds)
        for name, case in clients.CASES.items():
            if name in options.only:
                outcome.attempt(name, partial(case, running, bench))
        outcome.raw += [run for client in running for run in client.runs]


def warm(options: argparse.Namespace, contenders: list[Contender]) -> None:
    """Two million messages for the JVM, which compiles as it goes; a few for ours."""
    for contender in contenders:
        messages = 1_000_000 if contender.name == APACHE and not options.quick else 200_000
        print(f"warming {contender.name} with {2 * messages:,} messages", flush=True)
        with contender.alone(contenders):
            contender.load(
                "produce", "--topic", "warm", "-c", 4, "-w", 64, "-n", messages * 7 // 10
            )
            contender.load("produce", "--topic", "warm", "-c", 64, "-n", messages * 2 // 10)
            contender.load("produce", "--topic", "warm", "-c", 4, "-b", 1024, "-n", messages // 10)
            contender.load(
                "produce", "--topic", "warm", "-c", 4, "-w", 16, "--batch", 32, "-n", messages
            )
        contender.runs.clear()


def cold_starts(options: argparse.Namespace) -> list[Row]:
    """Starts on empty directories, in turn."""
    print("measuring cold-start", flush=True)
    names = [OURS] if options.ours_only else [OURS, APACHE]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            runs[name].append(cold_start(SCRATCH / "cold" / f"{name}-{number}", name))
    figures = Figures("cold-start", runs)
    ours, apache = figures.median("start_s")
    what = "start to first accepted send"
    return [Row("cold-start", what, "s", ours, apache, "<= 1 s", ours <= 1)]


def report(options: argparse.Namespace, outcome: Outcome) -> dict[str, object]:
    """Everything a reader needs to judge the figures."""
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
            "kernel": platform.release(),
        },
        "versions": {
            "ariane": first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
            "python": platform.python_version(),
            "apache_rocketmq": APACHE_VERSION,
            "java": first_line(["java", "-version"]),
        },
        "rounds": options.rounds,
        "seconds": options.seconds,
        "quick": options.quick,
        "rows": [row.as_dict() for row in outcome.rows],
        "runs": outcome.raw,
        "failures": outcome.failures,
    }


def processor() -> str:
    """The processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def first_line(command: list[str]) -> str:
    """What a command says about itself, or nothing when it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
