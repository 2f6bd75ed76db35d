"""The commit log's files: what may lie in their directory, how the next one is made, how one goes.

A segment is given all its blocks when it is made, so an append can never meet a full disk; its name
is on the platter before a record goes into it. The kernel's `Log` writes through the maps held
here, in the same order.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Final

from ariane.disk import Disk, MappedFile
from ariane.errors import StoreError
from ariane.kernel.bad_pages import guard
from ariane.kernel.log import Log

logger: Final = logging.getLogger("ariane.store")

DIRECTORY: Final = "commitlog"
NAME_DIGITS: Final = 20


def file_name(position: int) -> str:
    """The name of the file that begins at a position."""
    return f"{position:0{NAME_DIGITS}d}"


def positions_in(
    disk: Disk,
    directory: str,
    file_bytes: int,
    *,
    forgive_empty: bool = False,
    behind_hole: list[str] | None = None,
) -> list[int]:
    """Where the files of a directory begin, in order, each of the right length and none missing.

    A file of no length at the end is a creation that a crash cut short, and is removed; with
    `forgive_empty` one in the middle takes those after it along. With `behind_hole` the files after
    a missing one are put there and do not count. Anything else is left alone and named in a
    StoreError.
    """
    found = disk.names(directory)
    for i, (name, size) in enumerate(found):
        path = f"{directory}/{name}"
        if not (name.isascii() and name.isdigit() and len(name) == NAME_DIGITS):
            raise StoreError(
                f"{path} does not belong there: files in {directory} are named by {NAME_DIGITS}"
                " digits; move it elsewhere"
            )
        if size == 0 and (forgive_empty or i == len(found) - 1):
            for later, _ in reversed(found[i:]):
                logger.warning("unfinished file removed path=%s/%s", directory, later)
                disk.remove(f"{directory}/{later}")
            found = found[:i]
            break
        if size != file_bytes:
            raise StoreError(
                f"{path} has {size} bytes and must have {file_bytes}: start with the file size the"
                " store was made with, or restore the file from a backup"
            )
    positions = [int(name) for name, _ in found]
    for i, (before, after) in enumerate(pairwise(positions), 1):
        if after != before + file_bytes and behind_hole is not None:
            behind_hole += [f"{directory}/{file_name(position)}" for position in positions[i:]]
            return positions[:i]
        if after != before + file_bytes:
            raise StoreError(
                f"{directory} has a hole: {file_name(before)} is followed by {file_name(after)} and"
                f" {file_name(before + file_bytes)} is missing; restore it from a backup"
            )
    return positions


class Segments:
    """The mapped segments, oldest first, and the next one if it has been made ahead of need."""

    def __init__(self, disk: Disk, log: Log) -> None:
        self._disk = disk
        self._log = log
        self.files: list[MappedFile] = []
        self.next: MappedFile | None = None
        self._is_guarded = False

    def load(self) -> None:
        """Map what the directory holds."""
        self._disk.make_directory(DIRECTORY)
        for position in positions_in(self._disk, DIRECTORY, self._log.file_bytes):
            if position % self._log.file_bytes:
                raise StoreError(
                    f"{DIRECTORY}/{file_name(position)} begins at no multiple of"
                    f" {self._log.file_bytes}: start with the mappedFileSizeCommitLog the store was"
                    " made with"
                )
            path = f"{DIRECTORY}/{file_name(position)}"
            file = self._disk.mapped(path, self._log.file_bytes, read_ahead=True)
            self._take(file, position)

    def guard(self) -> None:
        """Read as zeros, from now on, what the disk cannot give, instead of ending the process."""
        self._is_guarded = True
        for file in self.files:
            guard(file.buffer)

    def create(self, position: int) -> MappedFile:
        """Make the segment that begins at `position`, blocks and name on the disk; or DiskFull.

        Touches nothing but the disk, so any thread may call it.
        """
        path = f"{DIRECTORY}/{file_name(position)}"
        file = self._disk.mapped(path, self._log.file_bytes, create=True, read_ahead=True)
        try:
            file.reserve(0, file.size)
            file.sync(0, file.size)
            self._disk.sync_directory(DIRECTORY)
        except BaseException:
            file.close()
            self._disk.remove(path)
            raise
        return file

    def append(self, file: MappedFile | None = None) -> None:
        """Take the next segment into use, made now unless it was made before."""
        position = self._log.end_position if self.files else self._log.end
        self._take(file or self.next or self.create(position), position)
        self.next = None

    def drop_first(self) -> str:
        """Let go of the oldest segment; the caller removes the file it names."""
        self._log.drop_first()
        file = self.files.pop(0)
        file.close()
        return file.path

    def drop_last(self) -> None:
        """Remove the newest segment."""
        self._log.drop_last()
        file = self.files.pop()
        file.close()
        self._disk.remove(file.path)

    def cut(self, end: int, *, is_dirty: bool) -> None:
        """Take back what the log has behind `end`, where a record ends: none of it was dispatched.

        Zeros are on the platter there when this returns, so that nothing cut away can come back to
        life. Without `is_dirty` a tail that begins with zeros is all zeros. Nobody may be making a
        segment meanwhile; whoever writes goes on with a new descriptor.
        """
        log, has_dropped = self._log, False
        log.truncate(end)
        while log.file_count > 1 and log.end_position - log.file_bytes > end:
            if not has_dropped:
                self.discard_next()
            self.drop_last()
            has_dropped = True
        self.sync_names()  # of a first start that was cut short, too
        file = self.files[-1]
        start = end - (log.end_position - log.file_bytes)
        if start < file.size:
            if is_dirty or has_dropped or any(file.buffer[start : start + 8]):
                file.zero(start, file.size)
            file.reserve(start, file.size)
            file.sync(start, file.size)

    def sync_names(self) -> None:
        """Return once created and removed segments are so on the platter."""
        self._disk.sync_directory(DIRECTORY)

    def discard_next(self) -> None:
        """Remove a segment that was made ahead and never used."""
        if self.next is not None:
            self.next.close()
            self._disk.remove(self.next.path)
            self.next = None

    def ranges(self, first: int, end: int) -> list[tuple[MappedFile, int, int]]:
        """The parts of files that hold log offsets [first, end)."""
        size = self._log.file_bytes
        found = []
        for file in list(self.files):
            base = int(file.path.rpartition("/")[2])
            if base < end and first < base + size:
                found.append((file, max(first - base, 0), min(end - base, size)))
        return found

    def close(self) -> None:
        """Let go of every map."""
        while self.files:
            self.drop_first()

    def _take(self, file: MappedFile, position: int) -> None:
        self._log.add(position, file.buffer)
        self.files.append(file)
        if self._is_guarded:
            guard(file.buffer)
