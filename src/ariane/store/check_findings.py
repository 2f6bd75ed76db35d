"""What the parts of the checker share: the report, and what the store says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ariane.config import StoreConfig
from ariane.disk import Disk
from ariane.kernel.log import Log
from ariane.store import queues, segments
from ariane.store.checkpoint import ABORT_PATH, CheckpointFile
from ariane.store.delays import delays_ms_of
from ariane.store.deletions import Deletions
from ariane.store.queues import ENTRY_BYTES

Progress = Callable[[int, int], None]  # told how many bytes of the log are walked, and of how many

PROBLEMS_PER_KIND_MAX: Final = 10
EVERYTHING: Final = 1 << 62


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found wrong."""

    segment_count: int = 0
    record_count: int = 0
    log_first: int = 0
    log_end: int = 0
    queue_count: int = 0
    queue_entry_count: int = 0
    index_file_count: int = 0
    key_count: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Subject:
    """A stopped store: its log and files' sizes, its checkpoint, and how it was stopped."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self.disk = disk
        self.config = config
        self.report = Report()
        self.segment_bytes = self._size_in(segments.DIRECTORY) or config.segment_bytes
        self.queue_bytes = self._queue_file_bytes() or config.queue_file_bytes
        self.delays_ms = delays_ms_of(config.delay_levels)
        self.log = Log(self.segment_bytes, bytes(8), delays_ms=self.delays_ms)
        checkpoint = CheckpointFile(disk).load()
        self.claim = checkpoint.claim
        self.was_killed = disk.exists(ABORT_PATH)
        # Of a killed broker's store, entries and keys of records from here on may be missing still.
        self.covered = EVERYTHING
        if self.was_killed and (self.claim is not None or checkpoint.log_ms == 0):
            self.covered = self.claim.log_offset if self.claim is not None else 0
        self.deletions = Deletions(disk)
        self.deletions.load()

    def positions(self, directory: str, size: int) -> list[int]:
        """Where the usable files of a directory begin; the others are told."""
        positions: list[int] = []
        files = self.disk.names(directory)
        for name, found in files:
            path = f"{directory}/{name}"
            if self.is_unfinished(path, found, is_last=name == files[-1][0]):
                continue
            is_named = name.isascii() and name.isdigit() and len(name) == segments.NAME_DIGITS
            if not is_named:
                self.report.problems.append(f"{path} does not belong there")
            elif found != size:
                self.report.problems.append(f"{path} has {found} bytes and should have {size}")
            elif positions and int(name) != positions[-1] + size:
                self.report.problems.append(f"{path} does not follow the file before it")
                break
            else:
                positions.append(int(name))
        return positions

    def is_unfinished(self, path: str, size: int, *, is_last: bool) -> bool:
        """Whether a kill came while the file was made; it is told of as such."""
        if size or not (is_last and self.was_killed):
            return False
        self.report.warnings.append(
            f"the broker was killed while it made {path}; the next start removes it"
        )
        return True

    def _size_in(self, directory: str) -> int:
        """The length most files of a directory have; 0 when there are none."""
        sizes = [size for name, size in self.disk.names(directory) if name.isdigit()]
        return max(sizes, key=sizes.count, default=0)

    def _queue_file_bytes(self) -> int:
        for topic in self.disk.directories(queues.DIRECTORY):
            for number in self.disk.directories(f"{queues.DIRECTORY}/{topic}"):
                size = self._size_in(f"{queues.DIRECTORY}/{topic}/{number}")
                if size and size % ENTRY_BYTES == 0:
                    return size
        return 0
