"""What a pipeline tells: its progress while it runs and its outcome at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

Cell = str | int | float | bool | None


class Progress(msgspec.Struct, frozen=True):
    """One batch of a pipeline, done."""

    batch_id: int
    message_count: int
    seconds: float
    note: str = ""  # what else is worth a line

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.message_count / self.seconds if self.seconds > 0 else 0.0


Report = Callable[[Progress], None]


def quietly(progress: Progress) -> None:
    """Tell nobody."""


class Outcome(msgspec.Struct, frozen=True):
    """How a pipeline ended: facts, a table, and what it found wrong, which should be nothing."""

    pipeline: str
    facts: Mapping[str, Cell]
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def records(self) -> list[dict[str, Cell]]:
        """The table's rows by title."""
        return [dict(zip(self.titles, row, strict=True)) for row in self.rows]

    def view(self) -> dict[str, Any]:
        """The outcome as JSON shows it."""
        return {
            "pipeline": self.pipeline,
            "facts": dict(self.facts),
            "rows": self.records,
            "findings": list(self.findings),
        }


def table_of(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Titles and rows, as `Outcome` takes them."""
    return {"titles": tuple(titles), "rows": tuple(tuple(map(_cell, row)) for row in rows)}


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
