"""The timer log's files: of fixed length, mapped, given blocks a chunk ahead of the next unit.

Invariant: `units` and `files` hold the same maps in the same order.
"""

from __future__ import annotations

from typing import Final

from ariane.disk import Disk, MappedFile
from ariane.store.segments import file_name, positions_in
from ariane.store.wheel import TimerLog

DIRECTORY: Final = "timerlog"
CHUNK_BYTES: Final = 256 * 1024
PAGE_BYTES: Final = 4096

Range = tuple[MappedFile, int, int]


class TimerLogFiles:
    """The mapped files, oldest first, and how much of them has been synced."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        self._disk = disk
        self.units = TimerLog(file_bytes)
        self.files: list[MappedFile] = []
        self.synced_end = 0
        self.names_changed = False

    def load(self) -> None:
        """Map what the directory holds; the end is found by whoever knows what the units mean."""
        size = self.units.file_bytes
        for position in positions_in(self._disk, DIRECTORY, size, forgive_empty=True):
            file = self._disk.mapped(f"{DIRECTORY}/{file_name(position)}", size)
            self._take(file, position)
        self.units.end = self.units.reserved_end = self.units.end_position

    def add_file(self) -> None:
        """Begin the next file; the one before it ends with a blank."""
        units = self.units
        if not self.files:
            self._disk.make_directory(DIRECTORY)
        elif units.end < units.end_position:
            while units.reserved_end < units.end_position:
                self.reserve()
            units.seal()
        path = f"{DIRECTORY}/{file_name(units.end_position)}"
        file = self._disk.mapped(path, units.file_bytes, create=True)
        self.names_changed = True
        position = units.end_position
        self._take(file, position)
        units.end = units.reserved_end = position

    def reserve(self) -> None:
        """Give the next chunk its blocks; or DiskFull."""
        units = self.units
        start = units.reserved_end - (units.end_position - units.file_bytes)
        stop = min(-(-(start + CHUNK_BYTES) // PAGE_BYTES) * PAGE_BYTES, units.file_bytes)
        self.files[-1].reserve(start, stop)
        units.reserved_end = units.end_position - units.file_bytes + stop

    def end_at(self, end: int, *, synced_end: int, is_clean: bool) -> None:
        """Let the log end here: later files go, and what follows is made zero unless it is."""
        units = self.units
        while len(self.files) > 1 and units.end_position - units.file_bytes >= end:
            self._drop_last()
        if self.files and end < units.end_position and not is_clean:
            self.files[-1].zero(end - (units.end_position - units.file_bytes), units.file_bytes)
        units.end = units.reserved_end = end
        self.synced_end = synced_end

    def clear(self) -> None:
        """Remove every file; the log begins again at zero."""
        while self.files:
            self._drop_last()
        for name, _ in self._disk.names(DIRECTORY):
            self._disk.remove(f"{DIRECTORY}/{name}")
            self.names_changed = True
        self.units = TimerLog(self.units.file_bytes)
        self.synced_end = 0

    def drop_expired(self, log_first: int) -> list[str]:
        """Let go of files whose units all point in front of the log; the caller removes them."""
        units, removable = self.units, []
        while len(self.files) > 1:
            last = units.unit(units.first_position + units.last_in_file)
            if last is not None and last[4] >= log_first:
                break
            if self.synced_end < units.first_position + units.file_bytes:
                break
            units.drop_first()
            file = self.files.pop(0)
            file.close()
            removable.append(file.path)
            self.names_changed = True
        return removable

    def unsynced(self) -> list[Range]:
        """The parts of files that were written since the last sync."""
        size, found = self.units.file_bytes, []
        for i, file in enumerate(self.files):
            base = self.units.first_position + i * size
            first, end = max(self.synced_end - base, 0), min(self.units.end - base, size)
            if first < end:
                found.append((file, first, end))
        return found

    def close(self) -> None:
        """Let go of every map."""
        while self.files:
            self.units.drop_last()
            self.files.pop().close()

    def _drop_last(self) -> None:
        self.units.drop_last()
        file = self.files.pop()
        file.close()
        self._disk.remove(file.path)
        self.names_changed = True

    def _take(self, file: MappedFile, position: int) -> None:
        self.units.add(position, file.buffer)
        self.files.append(file)
