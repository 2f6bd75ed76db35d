"""Runs clients' programs against a server and reads their verdicts: `PASS name`, `FAIL name why`.

`SKIP name why` is for what the server or the client does not have.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

Table = dict[str, dict[str, str]]  # client/server -> feature -> verdict

REPORT: dict[str, Table] = {}  # by title, for the end of the run
VERDICTS = ("PASS", "FAIL", "SKIP")


class Verdicts:
    """What one run of a client's program found."""

    def __init__(self, title: str, run: str, features: Sequence[str]) -> None:
        self.features = dict.fromkeys(features, "FAIL: no verdict")
        REPORT.setdefault(title, {})[run] = self.features
        self.output = ""

    def run(
        self, command: Sequence[str | Path], directory: Path, *, timeout_s: float = 280
    ) -> None:
        """Run the program to its end in a directory of its own; a run that hangs is cut off."""
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
            self.output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            self.output = (
                text_of(late.stdout) + text_of(late.stderr) + f"\ncut off after {timeout_s:g} s"
            )
        for line in self.output.splitlines():
            verdict, _, rest = line.partition(" ")
            name, _, detail = rest.partition(" ")
            if verdict in VERDICTS and name in self.features:
                self.features[name] = f"{verdict} {detail}".strip()

    def check(self, name: str) -> None:
        """Fail unless the feature passed, or is not there."""
        verdict = self.features[name]
        assert not verdict.startswith("FAIL"), f"{verdict}\n{self.output[-20_000:]}"


def text_of(output: bytes | str | None) -> str:
    """What a process printed before it was cut off."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def lines_of(table: Table) -> list[str]:
    """A line per feature, a column per run: seconds, FAIL, or - where there is no such thing."""
    runs = list(table)
    features = list(dict.fromkeys(name for verdicts in table.values() for name in verdicts))
    width = max(map(len, features), default=0) + 2
    lines = [" " * width + "".join(f"{run:>15}" for run in runs)]
    for name in features:
        cells = (_cell(table[run].get(name, "")) for run in runs)
        lines.append(f"{name:{width}}" + "".join(f"{cell:>15}" for cell in cells))
    return lines


def _cell(verdict: str) -> str:
    kind, _, detail = verdict.partition(" ")
    if kind == "PASS":
        return detail.strip("()") or "pass"
    return "FAIL" if kind.startswith("FAIL") else "-"
