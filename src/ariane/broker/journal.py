"""Changes of a table since it was last written whole, so that one change costs one line.

A table of thousands that was written whole at each change would cost the square of their number. So
each change is appended to a file beside the table's and synced; now and then the table is written
whole, and the lines go. A line that the table has already is known by its version, so it does not
matter in which order a crash leaves the two files.

The file is of fixed length, zeros behind the last line. Each line has a checksum: one that a crash
left half written ends the journal, and nobody has been told that it was kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from ariane.disk import Disk, MappedFile
from ariane.errors import ProtocolError
from ariane.protocol import fastjson
from ariane.protocol.bodies import DataVersion

JOURNAL_BYTES: Final = 4 << 20  # some 16,000 changes
SUFFIX: Final = ".changes"
CHECKSUM_DIGITS: Final = 8

C = TypeVar("C", bound=msgspec.Struct)


class Journal:
    """The changes of one table. Written by whoever writes the table's file, and by nobody else."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path + SUFFIX
        self._file: MappedFile | None = None
        self._end = 0

    def append(self, lines: bytes) -> None:
        """Return once the lines are on the platter."""
        if self._file is None:
            self._file, self._end = self._made(), 0
        self._file.write(self._end, memoryview(lines))
        self._file.sync(self._end, self._end + len(lines))
        self._end += len(lines)

    def clear(self) -> None:
        """Drop every line: the table has been written whole."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._disk.remove(self._path)

    def _made(self) -> MappedFile:
        directory = self._path.rpartition("/")[0]
        self._disk.make_directory(directory)
        self._disk.sync_directory(directory.rpartition("/")[0])
        file = self._disk.mapped(self._path, JOURNAL_BYTES, create=True)
        self._disk.sync_directory(directory)
        return file


def line_of(change: msgspec.Struct) -> bytes:
    """A change as a line of the journal."""
    text = fastjson.encode(change)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def exists(disk: Disk, path: str) -> bool:
    """Whether there is a journal beside a table's file."""
    return disk.exists(path + SUFFIX)


def changes_after(disk: Disk, path: str, version: DataVersion, kind: type[C]) -> Iterator[C]:
    """The changes that a table of this version lacks, in their order.

    A table that somebody else wrote later, as Apache's broker may have, has a later time.
    """
    if not exists(disk, path):
        return
    for line in disk.read(path + SUFFIX).split(b"\n"):
        change = _change_of(line, kind)
        if change is None:
            return
        made: DataVersion = change.data_version  # type: ignore[attr-defined]
        if made.counter > version.counter and made.timestamp >= version.timestamp:
            yield change


def _change_of(line: bytes, kind: type[C]) -> C | None:
    """What a line says; None when it is not whole."""
    checksum, _, text = line.partition(b" ")
    if len(checksum) != CHECKSUM_DIGITS or checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        return fastjson.decode(text, kind)
    except ProtocolError:
        return None
