"""`ariane doctor`: looks for what would go wrong, and says what to do about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Final

import typer

from ariane.cli.output import Output, OutputOption, say, say_json
from ariane.clock import SystemClock
from ariane.errors import ArianeError
from ariane.spark.doctor import Check, Machine, diagnose, gather, output_of, round_trip

SERVE: Final = "from ariane.cli.main import run; run()"
READY: Final = re.compile(r"^ready\b.*namesrv=(\S+)")

doctor = typer.Typer(help="Look for what would go wrong.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(doctor, name="doctor")


@doctor.callback()
def _group() -> None:
    """Look for what would go wrong."""


@doctor.command()
def spark(
    namesrv: Annotated[
        str,
        typer.Option(
            "--namesrv",
            "-n",
            envvar="ARIANE_NAMESRV",
            metavar="HOST:PORT",
            help="Go through this cluster instead of a broker of the doctor's own.",
        ),
    ] = "",
    master: Annotated[str, typer.Option(help="The Spark to try.", metavar="URL")] = "local[2]",
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the round trip.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check Java, Python, PySpark and Arrow, then send rows through a broker and back by Spark."""
    checks: list[Check] = []

    def tell(check: Check) -> None:
        checks.append(check)
        if output is Output.TABLE:
            _say_check(check)

    for check in diagnose(gather(Machine(sys.executable, dict(os.environ), output_of))):
        tell(check)
    if not quick and all(check.passed for check in checks):  # else it would only fail more darkly
        with _cluster(namesrv) as address:
            tell(round_trip(address, SystemClock().monotonic_s, master))
    if output is Output.JSON:
        say_json([asdict(check) for check in checks])
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


def _say_check(check: Check) -> None:
    verdict = typer.style("ok  ", fg="green") if check.passed else typer.style("FAIL", fg="red")
    say(f"{verdict}  {check.name}: {check.found}")
    if not check.passed:
        say(f"      next: {check.advice}")


@contextmanager
def _cluster(namesrv: str) -> Iterator[str]:
    """The address of the cluster that was given, or of one that lives as long as the round trip."""
    if namesrv:
        yield namesrv
        return
    with tempfile.TemporaryDirectory(prefix="ariane-doctor-") as directory:
        words = ["up", "--data", directory, "--namesrv-port", "0", "--broker-port", "0"]
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield _address_of(server)
        finally:
            server.kill()
            server.communicate()


def _address_of(server: subprocess.Popen[str]) -> str:
    """The name server's address, from the line by which `ariane up` says that it is ready."""
    assert server.stdout is not None
    printed = []
    for line in server.stdout:
        if found := READY.match(line):
            return found[1]
        printed.append(line)
    raise ArianeError(f"a broker for the round trip did not start: {''.join(printed).strip()}")
