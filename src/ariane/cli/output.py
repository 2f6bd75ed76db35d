"""What commands print: tables for people, JSON for programs, complaints on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer


class Output(StrEnum):
    """How a command that reads something prints it."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="A table for people or JSON for programs.")
]


def say(text: str = "") -> None:
    """One line on standard output, there at once even when somebody reads it through a pipe."""
    if sys.stdout is None:  # closed before we began
        return
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def announce(text: str) -> None:
    """Like `say`, for a server: one that nobody reads any more goes on all the same."""
    try:
        say(text)
    except BrokenPipeError:
        # What is left in the buffer would fail again at the end, and spoil the exit code.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def complain(text: str) -> None:
    """One line on standard error: what happened and what to try."""
    typer.secho(f"error: {text}", fg=typer.colors.RED, err=True)


def warn(text: str) -> None:
    """One line on standard error that stops nothing."""
    typer.secho(f"warning: {text}", fg=typer.colors.YELLOW, err=True)


def say_json(value: Any) -> None:
    """The value as indented JSON."""
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def say_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under their titles, each column as wide as it must be and numbers to the right."""
    lines = [list(titles), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    is_number = [
        bool(rows) and all(isinstance(row[column], int | float) for row in rows)
        for column in range(len(titles))
    ]
    for number, line in enumerate(lines):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        text = "  ".join(cells).rstrip()
        say(typer.style(text, bold=True) if number == 0 and sys.stdout.isatty() else text)


def time_text(milliseconds: int) -> str:
    """A moment as people write it, in local time; a dash when there is none."""
    if milliseconds <= 0:
        return "-"
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def bytes_text(body: bytes, *, length_max: int = 0) -> str:
    """A body as text when it is text, else as hexadecimal; cut when longer than `length_max`."""
    try:
        text = visible(body.decode())
    except UnicodeDecodeError:
        text = body.hex()
    return f"{text[:length_max]}…" if 0 < length_max < len(text) else text


def visible(text: str) -> str:
    """Text on one line that cannot command a terminal: what does not print is written out."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "-" if value is None or value == "" else visible(str(value))
