"""The `ariane` command: finds the command that was asked for and imports nothing else.

A server must accept its first message within a second of its start, so each command lives in a
module of its own and only that module is imported. Here is also the one place where an error
becomes a line of text and an exit code.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Final

import typer

from ariane.cli import output
from ariane.errors import ArianeError, ConfigError

MODULES: Final = {
    "up": "serve",
    "namesrv": "serve",
    "broker": "serve",
    "topic": "topic",
    "send": "send",
    "tail": "tail",
    "message": "message",
    "store": "store",
    "bench": "bench",
    "doctor": "doctor",
    "pipeline": "pipeline",
}
EXIT_FAILED: Final = 1
EXIT_MISUSED: Final = 2


def app_for(words: list[str]) -> typer.Typer:
    """The application with the command that `words` ask for, or with all when they ask for none."""
    app = typer.Typer(
        name="ariane",
        help="RocketMQ in Python: servers, messages, stores.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(_options)
    asked = next((word for word in words if not word.startswith("-")), "")
    names = [asked] if asked in MODULES else list(MODULES)
    for module in dict.fromkeys(MODULES[name] for name in names):
        import_module(f"ariane.cli.{module}").register(app)
    return app


def run() -> None:
    """Run the command line and leave with its exit code."""
    words = sys.argv[1:]
    if isinstance(sys.stdout, io.TextIOWrapper):  # bodies may hold what a terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app_for(words)()
    except Exception as error:
        if "--debug" in words:
            raise
        output.complain(_line_of(error))
        sys.exit(EXIT_MISUSED if isinstance(error, ConfigError) else EXIT_FAILED)


def _line_of(error: Exception) -> str:
    if isinstance(error, ArianeError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"unexpected {type(error).__name__}: {error}; `ariane --debug ...` shows where"


def _options(
    debug: bool = typer.Option(False, "--debug", help="Show where an error came from."),
) -> None:
    """Read by `run`, which sees the words before any command is imported."""
