"""A disk in memory, for tests: it can stop at any moment, and fail on purpose.

Each file has its live bytes, which are what a process sees, and its stable bytes, which are what a
power cut cannot take. The live ones are a file in the machine's memory (memfd), so they are written
through maps and by system calls as those of a real disk are. Names are treated the same way: a
create, rename or remove is pending until its directory is synced, and those pending in one
directory survive as a prefix, as a journal keeps them. `crash_image` makes the disk a restart would
find.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from ariane.disk.contract import MappedFile
from ariane.disk.real import map_file
from ariane.errors import DiskFull, StoreLocked

if TYPE_CHECKING:
    from random import Random  # noqa: TID251 - only its type; callers pass one in

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512


class CrashMode(Enum):
    """How the machine stopped."""

    KILL = "kill"  # the process died; everything it wrote is there
    DROP = "drop"  # power failed; nothing unsynced is there
    MIXED = "mixed"  # power failed; each unsynced page is kept, dropped or torn


class _Inode:
    """The bytes of one file; its descriptor goes with it, its memory with the last who looks."""

    __slots__ = ("descriptor", "lost", "memory", "modified_s", "reserved", "size", "stable")

    def __init__(self, modified_s: float) -> None:
        self.descriptor = -1  # as long as it is empty
        self.memory = memoryview(bytearray())
        self.size = 0
        self.stable = bytearray()
        self.reserved: set[int] = set()
        # Pages that a failed sync marked clean, as they were: later syncs skip them until they are
        # written to.
        self.lost: dict[int, bytes] = {}
        self.modified_s = modified_s

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    @property
    def live(self) -> bytes:
        return bytes(self.memory)

    def resize(self, size: int) -> None:
        if self.descriptor < 0:
            self.descriptor = os.memfd_create("simulated", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size)
        self.memory = memoryview(bytearray())
        if size:
            _, self.memory = map_file(self.descriptor, size, mmap.MAP_SHARED)
        self.size = size

    def fill(self, data: bytes | bytearray) -> None:
        self.resize(len(data))
        self.memory[:] = data

    def dirty_pages(self) -> list[int]:
        live, stable = self.live, self.stable
        if live == stable:
            return []
        return [
            start // PAGE_BYTES
            for start in range(0, max(len(live), len(stable)), PAGE_BYTES)
            if live[start : start + PAGE_BYTES] != stable[start : start + PAGE_BYTES]
        ]

    def copy(self) -> _Inode:
        other = _Inode(self.modified_s)
        other.fill(self.live)
        other.stable = bytearray(self.stable)
        other.reserved = set(self.reserved)
        other.lost = dict(self.lost)
        return other

    def lose(self, pages: range) -> None:
        for page in set(pages).intersection(self.dirty_pages()):
            self.lost[page] = self.page(page)

    def rewritten(self, first: int, end: int) -> None:
        for page in range(first // PAGE_BYTES, -(-end // PAGE_BYTES)):
            self.lost.pop(page, None)

    def persist(self, page: int) -> None:
        if self.lost.get(page) == self.page(page):
            return
        self.lost.pop(page, None)
        start = page * PAGE_BYTES
        if len(self.stable) < self.size:
            self.stable.extend(bytes(self.size - len(self.stable)))
        self.stable[start : start + PAGE_BYTES] = self.page(page)

    def page(self, page: int) -> bytes:
        return bytes(self.memory[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])


class _Name:
    """A pending change of one name: `inode` is what it points at afterwards, None for nothing."""

    __slots__ = ("changes", "directory")

    def __init__(self, directory: str, changes: list[tuple[str, _Inode | None, bool]]) -> None:
        self.directory = directory
        self.changes = changes  # path, inode, whether the path is a directory

    def removed_directories(self) -> list[str]:
        return [path for path, inode, is_directory in self.changes if is_directory and not inode]


class SimulatedFile:
    """A file of a SimulatedDisk, as the store sees it."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode, *, private: bool) -> None:
        self.path = path
        self.size = inode.size
        self._disk = disk
        self._inode = inode
        self.buffer = memoryview(bytearray(inode.memory)) if private else inode.memory

    def reserve(self, first: int, end: int) -> None:
        """Count the range's pages against the disk's capacity; may raise DiskFull."""
        self._disk.begin("open", self.path)
        self._disk.begin("reserve", self.path)
        pages = set(range(first // PAGE_BYTES, -(-end // PAGE_BYTES))) - self._inode.reserved
        if len(pages) * PAGE_BYTES > self._disk.free_bytes():
            raise DiskFull(f"no room for {end - first} bytes in {self.path}: the disk is full")
        self._inode.reserved |= pages
        self._disk.done("reserve", self.path)

    def populate(self, first: int, end: int) -> None:
        """Nothing to do: memory is always there."""

    def read_soon(self, first: int, end: int) -> None:
        """Nothing to do: memory is always there."""

    def forget(self, first: int, end: int) -> None:
        """Nothing to do: nobody counts the memory."""

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the live file."""
        self.reserve(position, position + len(data))
        self._disk.begin("open", self.path)
        self._disk.begin("write", self.path)
        self._inode.memory[position : position + len(data)] = data
        self._inode.rewritten(position, position + len(data))
        self._inode.modified_s = self._disk.now_s()
        self._disk.done("write", self.path)

    def open_descriptor(self) -> int:
        """A descriptor of the caller's own, who closes it; what it syncs nobody learns of."""
        self._disk.begin("open", self.path)
        return os.dup(self._inode.descriptor)

    def sync(self, first: int, end: int) -> None:
        """Make the range's pages stable; after a planted failure only those written to again."""
        pages = range(first // PAGE_BYTES, -(-min(end, self.size) // PAGE_BYTES))
        self._disk.begin("open", self.path)
        try:
            self._disk.begin("sync", self.path)
        except OSError:
            self._inode.lose(pages)
            raise
        for page in pages:
            self._inode.persist(page)
        self._inode.modified_s = self._disk.now_s()
        self._disk.done("sync", self.path)

    def zero(self, first: int, end: int) -> None:
        """Make the range read as zeros and give back the pages wholly inside it."""
        if end <= first:
            return
        self._disk.begin("open", self.path)
        self._disk.begin("zero", self.path)
        self._inode.memory[first:end] = bytes(end - first)
        self._inode.reserved -= set(range(-(-first // PAGE_BYTES), end // PAGE_BYTES))
        self._disk.done("zero", self.path)

    def close(self) -> None:
        """Let go of the file."""
        self.buffer = memoryview(b"")


class SimulatedLock:
    """A held name."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Let others in."""
        self._held.discard(self._path)


class SimulatedDisk:
    """Files in memory. `on_operation(kind, path)` is called after each thing done to them."""

    syncs_by_descriptor = False  # it must be told what is stable

    def __init__(
        self, *, capacity_bytes: int = 1 << 40, now_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.now_s = now_s
        self.on_operation: Callable[[str, str], None] | None = None
        self.before_operation: Callable[[str, str], None] | None = None  # may raise, as disks do
        self.used_ratio: float | None = None  # what `usage` says instead of the truth
        self.maps_left = 1 << 30
        self._files: dict[str, _Inode] = {}
        self._directories: set[str] = {""}
        self._durable_files: dict[str, _Inode] = {}
        self._durable_directories: set[str] = {""}
        self._pending: list[_Name] = []
        self._locked: set[str] = set()
        self._faults: list[tuple[str, int, Exception]] = []  # kind, how many to let pass, error

    def plant(self, kind: str, error: Exception, *, after: int = 0) -> None:
        """Make one operation of a kind fail, once `after` others of the kind have passed."""
        self._faults.append((kind, after, error))

    def heal(self) -> None:
        """Take back every fault that has not happened yet."""
        self._faults.clear()

    def begin(self, kind: str, path: str) -> None:
        """Raise what was planted for this operation; called before anything is done."""
        if self.before_operation is not None:
            self.before_operation(kind, path)
        for i, (planted, after, error) in enumerate(self._faults):
            if planted == kind:
                if after == 0:
                    del self._faults[i]
                    raise error
                self._faults[i] = (planted, after - 1, error)

    def done(self, kind: str, path: str) -> None:
        """Tell the watcher that something was done."""
        if self.on_operation is not None:
            self.on_operation(kind, path)

    def free_bytes(self) -> int:
        """What the disk has room for still."""
        inodes = {id(inode): inode for inode in self._files.values()}.values()
        return self.capacity_bytes - sum(len(inode.reserved) for inode in inodes) * PAGE_BYTES

    def unreserved_writes(self) -> list[tuple[str, int]]:
        """Pages that hold data without blocks: on a full disk each would have been a SIGBUS."""
        return [
            (path, page)
            for path, inode in sorted(self._files.items())
            for page in range(-(-inode.size // PAGE_BYTES))
            if page not in inode.reserved and any(inode.page(page))
        ]

    def write_back(self, random: Random) -> None:
        """Let some dirty pages reach the platter on their own, as a kernel does in its time."""
        for inode in self._files.values():
            for page in inode.dirty_pages():
                if random.random() < 0.5:
                    inode.persist(page)

    def write_again(self, directory: str) -> None:
        """Take all files below as written to, with the same bytes.

        A process may do so through a map; comparing bytes, as is done here, does not show it.
        """
        for path, inode in self._files.items():
            if path.startswith(f"{directory}/"):
                inode.rewritten(0, inode.size)

    def crash_image(self, random: Random, mode: CrashMode) -> SimulatedDisk:
        """The disk as the next process would find it, if this one stopped now."""
        image = SimulatedDisk(capacity_bytes=self.capacity_bytes, now_s=self.now_s)
        if mode is CrashMode.KILL:
            self._copy_all(image)
            return image
        files, directories = self._surviving_names(random, mode)
        image._directories = set(directories)
        image._durable_directories = set(directories)
        for path, inode in files.items():
            copy = _Inode(inode.modified_s)
            copy.stable = _surviving_bytes(inode, random, mode)
            copy.fill(copy.stable)
            copy.reserved = set(inode.reserved)
            image._files[path] = copy
        image._durable_files = dict(image._files)
        return image

    def mapped(
        self,
        path: str,
        size: int,
        *,
        create: bool = False,
        private: bool = False,
        read_ahead: bool = False,
    ) -> SimulatedFile:
        """Map a file; `create` makes it (zeros), `private` keeps writes out of the file."""
        inode = self._files.get(path)
        if inode is None and not create:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if inode is None:
            inode = self._create(path)
        else:
            self.begin("open", path)
        if create and inode.size != size:
            self.begin("resize", path)
            inode.resize(size)
            self.done("resize", path)
        return SimulatedFile(self, path, inode, private=private)

    def made(self, path: str, size: int, *, reserved: int, data: bytes) -> SimulatedFile:
        """Make a file that begins with `data`, its directories if need be, and map it."""
        self.make_directory(_parent(path))
        try:
            file = self.mapped(path, size, create=True)
            file.reserve(0, reserved)
            if data:
                file.write(0, memoryview(data))
        except BaseException:
            self.remove(path)
            raise
        return file

    def names(self, directory: str) -> list[tuple[str, int]]:
        """Files in a directory with their lengths, sorted; none when it does not exist."""
        self.begin("list", directory)
        return sorted(
            (path.rpartition("/")[2], inode.size)
            for path, inode in self._files.items()
            if _parent(path) == directory
        )

    def directories(self, directory: str) -> list[str]:
        """Directories in a directory, sorted; none when it does not exist."""
        self.begin("list", directory)
        return sorted(
            path.rpartition("/")[2]
            for path in self._directories
            if path and _parent(path) == directory
        )

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        return path in self._files or path in self._directories

    def read(self, path: str) -> bytes:
        """A whole file; raises FileNotFoundError."""
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.begin("open", path)
        return self._files[path].live

    def write(self, path: str, data: bytes) -> None:
        """Make or overwrite a file; nothing is synced."""
        inode = self._files.get(path) or self._create(path)
        self.begin("write", path)
        pages = set(range(-(-len(data) // PAGE_BYTES)))
        if len(pages - inode.reserved) * PAGE_BYTES > self.free_bytes():
            raise DiskFull(f"no room for {len(data)} bytes in {path}: the disk is full")
        inode.reserved = pages
        inode.fill(data)
        inode.modified_s = self.now_s()
        self.done("write", path)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file so that a crash leaves the old or the new one, the old kept as `.bak`."""
        temporary = f"{path}.tmp"
        self.write(temporary, data)
        self.mapped(temporary, len(data)).sync(0, len(data))
        if path in self._files:
            self.rename(path, f"{path}.bak")
        self.rename(temporary, path)
        self.sync_directory(_parent(path))

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in the same directory, replacing what had it."""
        assert _parent(path) == _parent(new_path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.begin("rename", path)
        inode = self._files.pop(path)
        self._files[new_path] = inode
        self._pend(path, [(path, None, False), (new_path, inode, False)])
        self.done("rename", path)

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        if path in self._files:
            self.begin("remove", path)
            del self._files[path]
            self._pend(path, [(path, None, False)])
            self.done("remove", path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is below it; it may be gone already."""
        for below in sorted(self._files):
            if below.startswith(f"{path}/"):
                self.remove(below)
        for below in sorted(self._directories, reverse=True):
            if below == path or below.startswith(f"{path}/"):
                self.begin("remove", below)
                self._directories.discard(below)
                self._pend(below, [(below, None, True)])
                self.done("remove", below)

    def make_directory(self, path: str) -> None:
        """Make a directory and the ones above it; it may be there already."""
        if path in self._directories:
            return
        self.make_directory(_parent(path))
        self.begin("make_directory", path)
        self._directories.add(path)
        self._pend(path, [(path, _Inode(0.0), True)])
        self.done("make_directory", path)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.begin("open", path)
        self.begin("sync_directory", path)
        left: list[_Name] = []
        for change in self._pending:
            if change.directory != path:
                left.append(change)
                continue
            _apply(change, self._durable_files, self._durable_directories)
            for removed in change.removed_directories():
                left = [other for other in left if not _is_within(other.directory, removed)]
        self._pending = left
        self.done("sync_directory", path)

    def sync_many(
        self, ranges: Sequence[tuple[MappedFile, int, int]], directories: Collection[str]
    ) -> None:
        """Sync ranges and directories one by one; those removed meanwhile are skipped."""
        for file, first, end in ranges:
            if file.path in self._files:
                file.sync(first, end)
        for directory in sorted(directories):  # so that a seed always gives the same life
            if directory in self._directories:
                self.sync_directory(directory)

    def modified_s(self, path: str) -> float:
        """When a file was last written, in seconds since the epoch."""
        self.begin("look", path)
        return self._files[path].modified_s

    def set_modified_s(self, path: str, seconds: float) -> None:
        """Make a file look as old as a test needs."""
        self._files[path].modified_s = seconds

    def usage(self) -> tuple[float, int]:
        """How full the disk is (0 to 1), and the bytes that are free."""
        self.begin("look", "")
        free = self.free_bytes()
        ratio = 1 - free / self.capacity_bytes if self.used_ratio is None else self.used_ratio
        return ratio, free

    def lock(self, path: str) -> SimulatedLock:
        """Hold the lock file, or raise StoreLocked."""
        if path in self._locked:
            raise StoreLocked(f"{path} is locked: another broker uses this store")
        self._locked.add(path)
        self.write(path, b"lock")
        return SimulatedLock(self._locked, path)

    def _create(self, path: str) -> _Inode:
        if _parent(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", _parent(path))
        self.begin("create", path)
        inode = self._files[path] = _Inode(self.now_s())
        self._pend(path, [(path, inode, False)])
        self.done("create", path)
        return inode

    def _pend(self, path: str, changes: list[tuple[str, _Inode | None, bool]]) -> None:
        self._pending.append(_Name(_parent(path), changes))

    def _copy_all(self, image: SimulatedDisk) -> None:
        """A killed process loses nothing, but what it left unsynced is so still."""
        copies: dict[int, _Inode] = {}

        def copy(inode: _Inode) -> _Inode:
            if id(inode) not in copies:
                copies[id(inode)] = inode.copy()
            return copies[id(inode)]

        image._directories = set(self._directories)
        image._durable_directories = set(self._durable_directories)
        image._files = {path: copy(inode) for path, inode in self._files.items()}
        image._durable_files = {path: copy(inode) for path, inode in self._durable_files.items()}
        image._pending = [
            _Name(
                change.directory,
                [(path, inode and copy(inode), is_dir) for path, inode, is_dir in change.changes],
            )
            for change in self._pending
        ]

    def _surviving_names(
        self, random: Random, mode: CrashMode
    ) -> tuple[dict[str, _Inode], set[str]]:
        files, directories = dict(self._durable_files), set(self._durable_directories)
        left: dict[str, int] = {}
        if mode is CrashMode.MIXED:
            for change in self._pending:
                left[change.directory] = left.get(change.directory, 0) + 1
            left = {directory: random.randint(0, count) for directory, count in left.items()}
        for change in self._pending:
            if left.get(change.directory, 0) > 0:
                left[change.directory] -= 1
                _apply(change, files, directories)
        reachable = {path for path in directories if _is_reachable(path, directories)}
        return {path: f for path, f in files.items() if _parent(path) in reachable}, reachable


def _apply(change: _Name, files: dict[str, _Inode], directories: set[str]) -> None:
    for path, inode, is_directory in change.changes:
        if is_directory and inode is not None:
            directories.add(path)
        elif is_directory:  # and with it what was in it: another of that name starts empty
            directories.difference_update([d for d in directories if _is_within(d, path)])
            for below in [f for f in files if _is_within(f, path)]:
                del files[below]
        else:
            files.pop(path, None)
            if inode is not None:
                files[path] = inode


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _is_reachable(path: str, directories: set[str]) -> bool:
    while path:
        if path not in directories:
            return False
        path = _parent(path)
    return True


def _surviving_bytes(inode: _Inode, random: Random, mode: CrashMode) -> bytearray:
    live = inode.live
    if mode is CrashMode.KILL:
        return bytearray(live)
    if mode is CrashMode.DROP or live == inode.stable:
        return bytearray(inode.stable)
    size = random.choice([len(live), len(inode.stable)])
    image = inode.stable[:size] + bytearray(max(0, size - len(inode.stable)))
    kept = random.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    for page in inode.dirty_pages():
        start = page * PAGE_BYTES
        if random.random() < 0.2:  # one page in five is torn
            for sector in range(start, start + PAGE_BYTES, SECTOR_BYTES):
                if random.random() < kept:
                    _copy(live, image, sector, sector + SECTOR_BYTES)
        elif random.random() < kept:
            _copy(live, image, start, start + PAGE_BYTES)
    return image


def _copy(source: bytes, target: bytearray, first: int, end: int) -> None:
    end = min(end, len(source), len(target))
    if first < end:
        target[first:end] = source[first:end]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
