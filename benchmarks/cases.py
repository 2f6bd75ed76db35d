"""The cases that compare brokers at the basics, each with the bar it must reach.

A case measures every contender the same way and returns rows.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import APACHE, OURS, Figures, Row
from benchmarks.measure import TRIES, Bench, Contender, LoadFailed, Run, is_quiet, noise
from tests.harness.apache import AS_RECOMMENDED, Apache
from tests.harness.processes import Ariane, Server, free_port, wait_until
from tests.harness.wire import Wire, WireRefused

FILL = 2_000_000  # messages of the topic that is read


def produced(contender: Contender, *arguments: object) -> Run:
    run = contender.load("produce", *arguments)
    if run["failed"]:
        raise LoadFailed(f"{contender.name} refused or lost sends: {contender.runs[-1]}")
    return run


def send(bench: Bench, case: str, body: int, connections: int, window: int) -> Figures:
    def measure(contender: Contender, _: int) -> Run:
        shape = ["-b", body, "-c", connections, "-w", window, "-t", bench.seconds]
        return produced(contender, "--topic", f"{case}", *shape)

    return Figures(case, bench.interleave(measure))


def send_pipelined(case: str, body: int) -> Callable[[Bench], list[Row]]:
    def run(bench: Bench) -> list[Row]:
        figures = send(bench, case, body, 4, 64)
        figures.times_at_least("send rate", "msg/s", "msgs_per_s", 5)
        figures.share_at_most("CPU per million", "s", "server_cpu_s_per_m", 8)
        ours, apache = figures.median("p999_us")[0], figures.median("p99_us")[1]
        met = None if apache is None else ours < apache
        bar = "p99.9 < its p99"
        figures.rows.append(Row(case, "p99.9 (its p99)", "us", ours, apache, bar, met))
        return figures.rows

    return run


def send_one_by_one(case: str, connections: int, factor: float) -> Callable[[Bench], list[Row]]:
    def run(bench: Bench) -> list[Row]:
        figures = send(bench, case, 128, connections, 1)
        figures.times_at_least("send rate", "msg/s", "msgs_per_s", factor)
        figures.shown("CPU per million", "s", "server_cpu_s_per_m")
        figures.shown("p99", "us", "p99_us")
        return figures.rows

    return run


def batch(bench: Bench) -> list[Row]:
    """Batches, and how long after the last acknowledgement everything could be pulled."""
    base = int(time.time())

    def measure(contender: Contender, number: int) -> Run:
        topic = f"batch_{base}_{number}"
        shape = ["-c", 4, "-w", 16, "--batch", 32, "-t", bench.seconds]
        run = produced(contender, "--topic", topic, *shape)
        run["visible_ms"] = visible_after_ms(contender.server, topic, int(run["messages"]))
        return run

    figures = Figures("batch-32", bench.interleave(measure))
    figures.times_at_least("acknowledged rate", "msg/s", "msgs_per_s", 3)
    figures.shown("CPU per million", "s", "server_cpu_s_per_m")
    worst = max(run["visible_ms"] for run in figures.runs[OURS])
    apache = figures.median("visible_ms")[1]
    bar = "<= 50 ms, worst run"
    figures.rows.append(
        Row("batch-32", "all visible after last ack", "ms", worst, apache, bar, worst <= 50)
    )
    return figures.rows


def visible_after_ms(server: Server, topic: str, messages: int) -> float:
    """Time until the queues' ends add up to all messages and each last one can be pulled."""
    start = time.monotonic()
    with Wire(server.broker) as wire:
        ends = [0] * 4

        def seen() -> bool:
            ends[:] = [wire.max_offset(topic, queue_id) for queue_id in range(4)]
            return sum(ends) == messages and all(
                wire.pull(topic, queue_id, end - 1, 1) for queue_id, end in enumerate(ends) if end
            )

        wait_until(seen, f"all {messages} messages of {topic}", seconds=120)
    return (time.monotonic() - start) * 1000


def fill(bench: Bench) -> None:
    """Have a topic full of messages with every contender; done once for a series."""
    for contender in bench.contenders:
        tries = 0
        while not contender.filled:
            tries += 1
            topic = f"filled_{tries}"
            try:
                with contender.alone(bench.contenders):
                    shape = ["-c", 4, "-w", 16, "--batch", 32, "-n", FILL]
                    produced(contender, "--topic", topic, *shape)
                    visible_after_ms(contender.server, topic, FILL)
                contender.filled = topic
            except LoadFailed:
                if tries == TRIES:
                    raise


def pull(bench: Bench) -> list[Row]:
    fill(bench)

    def measure(contender: Contender, _: int) -> Run:
        contender.read_store()
        run = contender.load("consume", "--topic", contender.filled, "-m", 32)
        if run["failed"] or run["messages"] != FILL:
            raise LoadFailed(f"{contender.name}: a pull run went wrong: {contender.runs[-1]}")
        return run

    figures = Figures("pull-32", bench.interleave(measure))
    figures.times_at_least("pull rate", "msg/s", "msgs_per_s", 2.5)
    figures.share_at_most("CPU per million", "s", "server_cpu_s_per_m", 3)
    figures.shown("p99 of a pull", "us", "p99_us")
    return figures.rows


def end_to_end(bench: Bench) -> list[Row]:
    def measure(contender: Contender, _: int) -> Run:
        run = contender.load("e2e", "--topic", "e2e", "-r", 1000, "-t", bench.seconds)
        if run["failed"]:
            raise LoadFailed(f"{contender.name}: an e2e run went wrong: {contender.runs[-1]}")
        return run

    figures = Figures("latency", bench.interleave(measure))
    figures.share_at_most("produce to receive, p50", "us", "p50_us", 3)
    figures.share_at_most("produce to receive, p99", "us", "p99_us", 3)
    figures.shown("produce to receive, p99.9", "us", "p999_us")
    return figures.rows


def topics(bench: Bench) -> list[Row]:
    """One topic and a thousand, in turn."""
    words: dict[str, list[object]] = {
        "one": ["--topic", "one"],
        "many": ["--topic", "many", "--topics", 1000, "--no-create"],
    }
    for contender in bench.contenders:
        contender.create_topics("many", 1000)
        produced(contender, *words["many"], "-c", 1, "-w", 16, "-n", 20_000)  # makes the queues
    shape = ["-c", 4, "-w", 64, "-t", bench.seconds / 8]

    def turn(contender: Contender, name: str) -> Run:
        tries: list[Run] = []
        while len(tries) < TRIES and not (tries and is_quiet(tries[-1])):
            tries.append(produced(contender, *words[name], *shape))
        return min(tries, key=noise)

    def measure(contender: Contender, _: int) -> Run:
        # In short turns and both orders: a machine that gets slower or faster favours none.
        runs = [(name, turn(contender, name)) for name in ("one", "many", "many", "one") * 4]
        rates = {
            name: statistics.median(run["msgs_per_s"] for which, run in runs if which == name)
            for name in words
        }
        noises = {
            key: statistics.median(run[key] for _, run in runs)
            for key in ("other_cores", "stolen_cores")
        }
        return {**rates, "share": rates["many"] / rates["one"], **noises}

    figures = Figures("topics-1000", bench.interleave(measure))
    figures.shown("send rate, 1 topic", "msg/s", "one")
    figures.shown("send rate, 1,000 topics x 4", "msg/s", "many")
    ours, apache = figures.median("share")
    bar = ">= 0.9 of our own"
    figures.rows.append(Row("topics-1000", "1,000 against 1", "", ours, apache, bar, ours >= 0.9))
    return figures.rows


def sync_flush(bench: Bench) -> list[Row]:
    figures = send(bench, "sync-64x1", 128, 64, 1)
    figures.times_at_least("send rate, SYNC_FLUSH", "msg/s", "msgs_per_s", 2)
    figures.shown("CPU per million", "s", "server_cpu_s_per_m")
    figures.shown("p99", "us", "p99_us")
    return figures.rows


def memory(at_rest: dict[str, float], contenders: list[Contender]) -> list[Row]:
    """Anonymous memory before the first message, and the most seen during all runs."""
    loaded = {contender.name: contender.anonymous_mb_max for contender in contenders}
    return [
        Row("memory", what, "MB", mb[OURS], mb.get(APACHE), "<= 200 MB", mb[OURS] <= 200)
        for what, mb in (("anonymous, at rest", at_rest), ("anonymous, under load", loaded))
    ]


def cold_start(directory: Path, name: str) -> Run:
    """Seconds from starting a new process to the first accepted send."""
    server: Server
    start = time.monotonic()
    if name == OURS:
        server = Ariane(directory)
        server.launch({}, namesrv_port=free_port(), broker_port=free_port())
    else:
        server = Apache(directory, flags=AS_RECOMMENDED)
        server.launch({})
    with server:
        wait_until(lambda: accepts_send(server), f"{name} to accept a send", seconds=90)
        return {"start_s": time.monotonic() - start}


def accepts_send(server: Server) -> bool:
    try:
        with Wire(server.broker) as wire:
            wire.send("cold_start", 0, b"first", key="first")
            return True
    except (OSError, WireRefused):
        return False


CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "send-128": send_pipelined("send-128", 128),
    "send-1k": send_pipelined("send-1k", 1024),
    "send-64x1": send_one_by_one("send-64x1", 64, 2.5),
    "send-1x1": send_one_by_one("send-1x1", 1, 1.6),
    "batch-32": batch,
    "pull-32": pull,
    "latency": end_to_end,
    "topics-1000": topics,
}
SYNC_CASES: dict[str, Callable[[Bench], list[Row]]] = {"sync-64x1": sync_flush}
