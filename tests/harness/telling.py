"""What tests tell beyond pass and fail, for the end of the run, whichever process they ran in.

Tests hand it over as properties of their reports, which xdist brings to the process that prints.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

SAID, VERDICT = "said", "verdict"  # names of properties

Table = dict[str, dict[str, str]]  # client/server -> feature -> verdict


def verdicts_in(properties: Iterable[tuple[str, Any]]) -> dict[str, Table]:
    """The tables of verdicts by their titles; each property is title, run, feature, verdict."""
    tables: dict[str, Table] = {}
    for name, value in properties:
        if name == VERDICT:
            title, run, feature, verdict = value
            tables.setdefault(title, {}).setdefault(run, {})[feature] = verdict
    return tables


def said_in(properties: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Lines that tests wanted to be seen."""
    return (str(value) for name, value in properties if name == SAID)


def lines_of(table: Table) -> list[str]:
    """A line per feature, a column per run: seconds, FAIL, or - where there is no such thing."""
    runs = sorted(table)
    features = list(dict.fromkeys(name for run in runs for name in table[run]))
    width = max(map(len, features), default=0) + 2
    lines = [" " * width + "".join(f"{run:>15}" for run in runs)]
    for name in features:
        cells = (_cell(table[run].get(name, "")) for run in runs)
        lines.append(f"{name:{width}}" + "".join(f"{cell:>15}" for cell in cells))
    return lines + list(_remarks(table, runs))


def _cell(verdict: str) -> str:
    kind, _, detail = verdict.partition(" ")
    if kind == "PASS":
        return detail.strip("()") or "pass"
    return "FAIL" if kind.startswith("FAIL") else "-"


def _remarks(table: Table, runs: Sequence[str]) -> Iterator[str]:
    for run in runs:
        for name, verdict in table[run].items():
            if not verdict.startswith("PASS"):
                yield f"{run} {name}: {verdict}"
