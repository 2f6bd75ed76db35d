"""Runs clients' programs against a server and reads their verdicts: `PASS name`, `FAIL name why`.

`SKIP name why` is for what the server or the client does not have.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

VERDICTS = ("PASS", "FAIL", "SKIP")


class Verdicts:
    """What one run of a client's program found; `title` and `name` say where it is told."""

    def __init__(self, title: str, name: str, features: Sequence[str]) -> None:
        self.title = title
        self.name = name
        self.features = dict.fromkeys(features, "FAIL: no verdict")
        self.output = ""
        self.fault = ""  # of the run as a whole

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
            status = done.returncode
        except subprocess.TimeoutExpired as late:
            self.output = (
                text_of(late.stdout) + text_of(late.stderr) + f"\ncut off after {timeout_s:g} s"
            )
            status = 1
        for line in self.output.splitlines():
            verdict, _, rest = line.partition(" ")
            name, _, detail = rest.partition(" ")
            if verdict in VERDICTS and name in self.features:
                self.features[name] = f"{verdict} {detail}".strip()
        if status and not any(told.startswith("FAIL") for told in self.features.values()):
            self.fault = f"ended with {status}, though no feature failed"

    def check(self, name: str) -> None:
        """Fail unless the feature passed, or is not there, and the run ended as it should."""
        verdict = self.features[name]
        assert not verdict.startswith("FAIL"), f"{verdict}\n{self.output[-20_000:]}"
        assert not self.fault, f"{self.fault}\n{self.output[-20_000:]}"


def text_of(output: bytes | str | None) -> str:
    """What a process printed before it was cut off."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
