"""`ariane bench`: how much the cluster carries, and how fast, as a Python client sees it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

import typer

from ariane.cli.load import Plan, PullLoad, RoundTripLoad, SendLoad, Tally, clients, run_for
from ariane.cli.options import DEFAULT_NAMESRV, NamesrvOption
from ariane.cli.output import Output, OutputOption, say, say_json
from ariane.client import Client
from ariane.clock import Clock, SystemClock

bench = typer.Typer(help="Measure sends, pulls and round trips.", no_args_is_help=True)

TopicOption = Annotated[str, typer.Option(help="The topic to use; made if need be.")]
SizeOption = Annotated[int, typer.Option(min=8, help="Bytes in a body.")]
ConnectionsOption = Annotated[int, typer.Option(min=1, help="Clients, a connection each.")]
InFlightOption = Annotated[int, typer.Option(min=1, help="Requests in flight on each.")]
DurationOption = Annotated[int, typer.Option(min=1, help="Seconds to measure.")]
WarmUpOption = Annotated[int, typer.Option(min=0, help="Seconds before that count for nothing.")]


class Load(Protocol):
    """Something that loads the cluster until it is cancelled."""

    def __init__(self, plan: Plan, opened: Sequence[Client], clock: Clock) -> None: ...

    async def run(self, tally: Tally) -> None:
        """Go on until cancelled."""
        ...


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(bench, name="bench")


@bench.command()
def send(
    *,
    topic: TopicOption = "ariane-bench",
    size: SizeOption = 1024,
    connections: ConnectionsOption = 4,
    in_flight: InFlightOption = 64,
    batch: Annotated[int, typer.Option(min=1, help="Messages in a request.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages a second, an open loop; 0 is a closed loop.")
    ] = 0,
    duration: DurationOption = 10,
    warm_up: WarmUpOption = 1,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send as fast as answers come, or at a rate."""
    plan = Plan(topic, size, connections, in_flight, batch, rate, duration)
    _measure("send", SendLoad, plan, warm_up_s=warm_up, namesrv=namesrv, output=output)


@bench.command()
def pull(
    *,
    topic: TopicOption = "ariane-bench",
    connections: ConnectionsOption = 2,
    in_flight: InFlightOption = 4,
    count: Annotated[int, typer.Option(min=1, help="Messages asked for in a pull.")] = 32,
    duration: DurationOption = 10,
    warm_up: WarmUpOption = 1,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read what the topic holds, over and over."""
    plan = Plan(topic, 0, connections, in_flight, count, 0, duration)
    _measure("pull", PullLoad, plan, warm_up_s=warm_up, namesrv=namesrv, output=output)


@bench.command()
def e2e(
    *,
    topic: TopicOption = "ariane-bench-e2e",
    size: SizeOption = 1024,
    connections: ConnectionsOption = 1,
    rate: Annotated[float, typer.Option(min=1, help="Messages a second.")] = 1_000,
    duration: DurationOption = 10,
    warm_up: WarmUpOption = 1,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send at a rate, receive by long polling, and time the whole way."""
    plan = Plan(topic, size, connections, 1, 1, rate, duration)
    _measure("e2e", RoundTripLoad, plan, warm_up_s=warm_up, namesrv=namesrv, output=output)


def _measure(
    case: str, kind: type[Load], plan: Plan, *, warm_up_s: int, namesrv: str, output: Output
) -> None:
    tally, seconds = asyncio.run(_run(kind, plan, warm_up_s, namesrv))
    report = _report(case, plan, tally, seconds)
    if output is Output.JSON:
        say_json(report)
    else:
        _say_report(report)


async def _run(kind: type[Load], plan: Plan, warm_up_s: int, namesrv: str) -> tuple[Tally, float]:
    clock = SystemClock()
    async with clients(namesrv, plan.connection_count) as opened:
        if warm_up_s:
            unseen = kind(plan, opened, clock).run
            await run_for(unseen, Tally(), warm_up_s, clock, lambda tally: None)
        tally = Tally()
        run = kind(plan, opened, clock).run
        return tally, await run_for(run, tally, plan.duration_s, clock, _progress(clock))


def _progress(clock: Clock) -> Callable[[Tally], None]:
    """A line on standard error each second; one that rewrites itself where somebody watches."""
    start_s = last_s = clock.monotonic_s()
    last_count = 0

    def watch(tally: Tally) -> None:
        nonlocal last_s, last_count
        now_s = clock.monotonic_s()
        rate = (tally.message_count - last_count) / (now_s - last_s)
        line = (
            f"{now_s - start_s:4.0f} s  {rate:12,.0f} msg/s"
            f"  p99 {tally.latency.percentile(99) / 1000:9.2f} ms  errors {tally.errors.total()}"
        )
        last_s, last_count = now_s, tally.message_count
        typer.echo(f"\r{line}", nl=not sys.stderr.isatty(), err=True)

    return watch


def _report(case: str, plan: Plan, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "case": case,
        "loop": "open" if plan.rate else "closed",
        "topic": plan.topic,
        "connections": plan.connection_count,
        "in_flight": plan.in_flight,
        "batch": plan.batch_count,
        "body_bytes": plan.body_bytes,
        "rate": plan.rate,
        "seconds": round(seconds, 3),
        "messages": tally.message_count,
        "messages_per_second": round(tally.message_count / seconds, 1),
        "mebibytes_per_second": round(tally.byte_count / seconds / (1 << 20), 3),
        "errors": dict(tally.errors),
        "latency_ms": tally.latency.summary_ms(),
    }


def _say_report(report: dict[str, Any]) -> None:
    if sys.stderr.isatty():
        typer.echo(err=True)
    say(
        f"{report['messages']:,} messages in {report['seconds']:.1f} s: "
        f"{report['messages_per_second']:,.0f} msg/s, {report['mebibytes_per_second']:,.2f} MiB/s"
    )
    say(
        "latency  " + "  ".join(f"{name} {ms:,.2f} ms" for name, ms in report["latency_ms"].items())
    )
    for name, count in report["errors"].items():
        say(f"errors   {name} {count:,}")
