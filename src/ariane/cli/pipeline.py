"""`ariane pipeline`: ready-made Spark jobs, on this machine or on any Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ariane.cli.options import pairs_of
from ariane.cli.output import Output, OutputOption, complain, say, say_json, say_table
from ariane.errors import ArianeError, ConfigError
from ariane.spark.pipelines.outcome import Outcome, Progress, Report
from ariane.spark.pipelines.queries import failure
from ariane.spark.pipelines.registry import SUMMARIES, pipeline_of
from ariane.spark.pipelines.settings import Option, from_file, from_words, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FINDINGS: Final = 1
NAMESRV_VARIABLE: Final = "ARIANE_NAMESRV"

pipelines = typer.Typer(
    help="Archive, replay, mirror, audit and more, by Spark.", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(help="The pipeline.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(pipelines, name="pipeline")


@pipelines.command("list")
def list_pipelines(output: OutputOption = Output.TABLE) -> None:
    """List the pipelines."""
    if output is Output.JSON:
        say_json([{"name": name, "summary": summary} for name, summary in SUMMARIES.items()])
    else:
        say_table(["NAME", "WHAT IT DOES"], list(SUMMARIES.items()))


@pipelines.command()
def show(name: NameArgument, output: OutputOption = Output.TABLE) -> None:
    """Show what a pipeline takes."""
    options = options_of(pipeline_of(name).Config)
    if output is Output.JSON:
        say_json([_view_of(option) for option in options])
        return
    say(SUMMARIES[name])
    say()
    say_table(
        ["OPTION", "TAKES", "DEFAULT", "MEANS"],
        [
            [option.flag, option.kind, _default_text(option), option.help]
            for option in sorted(options, key=lambda option: not option.is_required)
        ],
    )


@pipelines.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="The pipeline's own options follow its name; `ariane pipeline show NAME` lists them.",
)
def run(
    context: typer.Context,
    name: NameArgument,
    *,
    master: Annotated[
        str, typer.Option(help="Spark's master: local[*], spark://HOST:7077, yarn, k8s://...")
    ] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Take the pipeline's options from this TOML file.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a pipeline. Exit code 0: done; 1: it failed or has findings; 2: wrong options."""
    pipeline = pipeline_of(name)
    given = from_file(pipeline.Config, file) if file is not None else {}
    names = {option.name for option in options_of(pipeline.Config)}
    if "namesrv" in names and (namesrv := os.environ.get(NAMESRV_VARIABLE)):
        given = {"namesrv": namesrv} | given
    config = from_words(pipeline.Config, context.args, given)
    settings = pairs_of(conf or [], option="--conf")

    spark = _session(name, master, settings)
    from py4j.protocol import Py4JError  # noqa: PLC0415 - there since there is a session
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        with _progress(name) as report:
            outcome = pipeline.run(spark, config, report)
    except (PySparkException, Py4JError) as error:
        raise failure(error) from error
    finally:
        spark.stop()
    _say_outcome(outcome, output)
    if outcome.findings:
        raise typer.Exit(EXIT_FINDINGS)


def _session(name: str, master: str, settings: dict[str, str]) -> SparkSession:
    from ariane.spark.session import session  # noqa: PLC0415 - wrong options are told of sooner

    try:
        return session(f"ariane {name}", master, settings)
    except ArianeError:
        raise
    except Exception as error:
        raise ConfigError(
            f"Spark did not start with --master {master}: {failure(error)}; `ariane doctor spark` "
            "looks for what is wrong"
        ) from error


@contextmanager
def _progress(name: str) -> Iterator[Report]:
    """Progress on standard error: a line that rewrites itself where somebody watches."""
    total = 0

    def line_of(progress: Progress) -> str:
        nonlocal total
        total += progress.message_count
        return (
            f"batch {progress.batch_id}  {progress.message_count:,} messages"
            f"  {progress.rate:,.0f} msg/s  {total:,} in all  {progress.note}"
        ).rstrip()

    if not sys.stderr.isatty():
        yield lambda progress: typer.echo(f"{name}  {line_of(progress)}", err=True)
        return
    from rich.console import Console  # noqa: PLC0415 - only who watches pays for it
    from rich.progress import Progress as Bar  # noqa: PLC0415
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda progress: bar.update(task, description=f"{name}  {line_of(progress)}")


def _say_outcome(outcome: Outcome, output: Output) -> None:
    if output is Output.JSON:
        say_json(outcome.view())
        return
    if outcome.titles:
        say_table([title.upper().replace("_", " ") for title in outcome.titles], outcome.rows)
    for finding in outcome.findings:
        complain(finding)
    facts = [_fact_text(key.replace("_", " "), value) for key, value in outcome.facts.items()]
    say(f"{outcome.pipeline}: {', '.join(filter(None, facts))}")


def _fact_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name if value else ""
    return f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}"


def _default_text(option: Option) -> str:
    if option.is_required:
        return "required"
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    if isinstance(option.default, tuple):
        return ",".join(option.default)
    return "" if option.is_mapping else str(option.default)


def _view_of(option: Option) -> dict[str, object]:
    return {
        "name": option.name,
        "flag": option.flag,
        "takes": option.kind,
        "required": option.is_required,
        "default": option.default,
        "help": option.help,
    }
