"""What the store asks of a disk.

Paths are relative, with `/` between the parts, below one root. A change is durable only once it was
synced: bytes by `MappedFile.sync`, names (create, rename, remove) by `sync_directory`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class MappedFile(Protocol):
    """One file of fixed length as memory; what is written to `buffer` is in the file."""

    @property
    def path(self) -> str:
        """Where it is, below the disk's root."""
        ...

    @property
    def size(self) -> int:
        """Its length in bytes."""
        ...

    @property
    def buffer(self) -> memoryview:
        """All bytes, writable; stays valid for as long as anybody holds it, even after `close`."""
        ...

    def reserve(self, first: int, end: int) -> None:
        """Give the range blocks of its own, so that writing there cannot fail; or DiskFull."""
        ...

    def populate(self, first: int, end: int) -> None:
        """Bring the pages in, ready to be written; an optimisation without visible effect."""
        ...

    def read_soon(self, first: int, end: int) -> None:
        """Begin to bring a range in that is about to be read all over; an optimisation."""
        ...

    def forget(self, first: int, end: int) -> None:
        """Keep a range out of memory until it is looked at again; an optimisation.

        What was written to it through a private map is lost.
        """
        ...

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the file by a system call; raises DiskFull or OSError, never a signal."""
        ...

    def sync(self, first: int, end: int) -> None:
        """Return once the range is on the platter, or raise OSError: then nobody can tell."""
        ...

    def open_descriptor(self) -> int:
        """A descriptor of the caller's own, who closes it; or OSError. Any thread may ask."""
        ...

    def zero(self, first: int, end: int) -> None:
        """Make the range read as zeros; its blocks may go, so reserve them again before writing."""
        ...

    def close(self) -> None:
        """Let go of the file; the memory goes when the last reader does."""
        ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let others in."""
        ...


class Disk(Protocol):
    """Files below one root directory."""

    @property
    def syncs_by_descriptor(self) -> bool:
        """Whether `fdatasync` is all that a sync takes, so that any thread may do it."""
        ...

    def mapped(
        self,
        path: str,
        size: int,
        *,
        create: bool = False,
        private: bool = False,
        read_ahead: bool = False,
    ) -> MappedFile:
        """Map a file; `create` makes it (zeros), `private` keeps writes out of the file.

        Without `read_ahead` a page fault brings in one page. Queue and index files are mostly
        holes, and a fault that brought in megabytes of them would stall the writer.
        """
        ...

    def made(self, path: str, size: int, *, reserved: int, data: bytes) -> MappedFile:
        """Make a file that begins with `data`, its directories if need be, and map it.

        Its first `reserved` bytes have blocks. Any thread may call it; what fails leaves no file.
        """
        ...

    @property
    def maps_left(self) -> int:
        """How many more files this process may map, a few kept for those a store cannot do without.

        A process without maps to spare cannot even have memory.
        """
        ...

    def names(self, directory: str) -> list[tuple[str, int]]:
        """Files in a directory with their lengths, sorted; none when it does not exist."""
        ...

    def directories(self, directory: str) -> list[str]:
        """Directories in a directory, sorted; none when it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        ...

    def read(self, path: str) -> bytes:
        """A whole file; raises FileNotFoundError."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Make or overwrite a file; nothing is synced."""
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file so that a crash leaves the old or the new one, the old kept as `.bak`."""
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in the same directory, replacing what had it."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is below it; it may be gone already."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and the ones above it; it may be there already."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on the platter."""
        ...

    def sync_many(
        self, ranges: Sequence[tuple[MappedFile, int, int]], directories: Collection[str]
    ) -> None:
        """Sync (file, first, end) ranges and directories; those removed meanwhile are skipped."""
        ...

    def modified_s(self, path: str) -> float:
        """When a file was last written, in seconds since the epoch."""
        ...

    def usage(self) -> tuple[float, int]:
        """How full the disk is (0 to 1), and the bytes that are free."""
        ...

    def lock(self, path: str) -> Lock:
        """Hold the lock file against every other process, or raise StoreLocked."""
        ...
