"""A server whose system calls fail while a test says so: `faulty_calls.c`, preloaded."""

import errno
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.processes import Ariane

SOURCE = Path(__file__).with_name("faulty_calls.c")
KINDS: Final = ("open", "write", "sync", "dup", "accept", "reserve", "map")  # as in the source
FIELDS: Final = struct.Struct("=iiii")  # chance in a thousand, errno, wait in ms, how often it was


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to which call."""

    call: str
    error: int = 0  # 0 cuts a write short
    wait_ms: int = 0
    per_mille: int = 1000

    def __str__(self) -> str:
        what = errno.errorcode.get(self.error) or (f"{self.wait_ms} ms" if self.wait_ms else "cut")
        return f"{self.call}: {what} ({self.per_mille} of 1000)"


class FaultyAriane(Ariane):
    """`ariane up` with faults to be switched on below its directory."""

    def __init__(self, directory: Path, tools: Path) -> None:
        super().__init__(directory)
        self.library = tools / "faulty_calls.so"
        if not self.library.exists():
            tools.mkdir(parents=True, exist_ok=True)
            command = [
                "cc",
                "-O1",
                "-shared",
                "-fPIC",
                "-o",
                str(self.library),
                str(SOURCE),
                "-ldl",
            ]
            subprocess.run(command, check=True)
        path = tools / "faults"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.faults_path = path

    def spawn(
        self, name: str, command: Sequence[str | Path], environment: dict[str, str] | None = None
    ) -> Path:
        added = {
            "LD_PRELOAD": str(self.library),
            "FAULTS_FILE": str(self.faults_path),
            "FAULTS_UNDER": os.path.realpath(self.store),
        }
        return super().spawn(name, command, {**(environment or {}), **added})

    @contextmanager
    def having(self, fault: Fault) -> Iterator[None]:
        """Let calls fail for a while."""
        at = KINDS.index(fault.call) * FIELDS.size
        values = fault.per_mille, fault.error, fault.wait_ms, 0
        self.memory[at : at + FIELDS.size] = FIELDS.pack(*values)
        try:
            yield
        finally:
            self.memory[at : at + 4] = bytes(4)  # the count stays, to be read

    def struck(self, call: str) -> int:
        """How often the last fault of this call came about."""
        count: int = FIELDS.unpack_from(self.memory, KINDS.index(call) * FIELDS.size)[3]
        return count
