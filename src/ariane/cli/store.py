"""`ariane store`: looking at a store directory that no broker is using."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ariane.cli.options import pairs_of, settings_in
from ariane.cli.output import Output, OutputOption, complain, say, say_json, warn
from ariane.config import StoreConfig, config_of
from ariane.disk import RealDisk
from ariane.errors import ConfigError
from ariane.store.check import check
from ariane.store.check_findings import Report

EXIT_UNSOUND: Final = 1
LOCK: Final = "lock"

stores = typer.Typer(help="Look at a store directory.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(stores, name="store")


@stores.callback()
def store() -> None:
    """Look at a store directory."""


@stores.command("check")
def check_store(
    directory: Annotated[Path, typer.Argument(help="The storePathRootDir.", metavar="DIR")],
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The broker.conf it was written with.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One such setting.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check every record and every queue and index entry; exit code 1 when something is wrong."""
    root = _store_in(directory)
    settings = settings_in(config) | pairs_of(set_ or [], option="--set")
    disk = RealDisk(root)
    _refuse_while_used(disk, root)
    report = _checked(disk, config_of(StoreConfig, settings))
    if output is Output.JSON:
        say_json(report)
    else:
        _say_report(report, root)
    if not report.is_sound:
        raise typer.Exit(EXIT_UNSOUND)


def _checked(disk: RealDisk, config: StoreConfig) -> Report:
    """Check, with a bar on standard error where somebody watches."""
    if not sys.stderr.isatty():
        return check(disk, config)
    from rich.console import Console  # noqa: PLC0415 - only who watches pays for it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking the log", total=None)
        return check(
            disk,
            config,
            progress=lambda walked, total: bar.update(task, completed=walked, total=total),
        )


def _store_in(directory: Path) -> Path:
    """The directory itself, or the store within what `ariane up --data` was given."""
    for root in (directory, directory / "store"):
        if (root / "commitlog").is_dir():
            return root
    raise ConfigError(f"{directory} is no store: it has no commitlog directory")


def _refuse_while_used(disk: RealDisk, root: Path) -> None:
    if disk.is_locked(LOCK):
        raise ConfigError(f"{root} is in use by a broker; stop it, then check")


def _say_report(report: Report, root: Path) -> None:
    for line in report.warnings:
        warn(line)
    for line in report.problems:
        complain(line)
    say(
        f"{root}: {report.record_count:,} records in {report.segment_count} segments"
        f" ({report.log_first}..{report.log_end}), {report.queue_entry_count:,} entries in"
        f" {report.queue_count} queues, {report.key_count:,} keys in"
        f" {report.index_file_count} index files"
    )
    if report.is_sound:
        say("sound")
        return
    say(f"{len(report.problems)} problems found")
    say(
        "to have queues or keys read from the log again, move consumequeue or index elsewhere and"
        " start the broker"
    )
