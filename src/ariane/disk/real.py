"""The machine's file system.

Maps are made by `mmap(2)` itself, because Python's `mmap` keeps a descriptor for each and a broker
has tens of thousands of queue files. A map is undone when the last object that looks into it is
gone, so a slice of the log handed to a socket outlives the segment it came from.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import struct
import sys
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ariane.disk.contract import MappedFile
from ariane.errors import DiskFull, StoreLocked

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
PUNCH_HOLE: Final = 0x02
KEEP_SIZE: Final = 0x01
SYNC_ONE_BY_ONE_MAX: Final = 64
POPULATE_WRITE: Final = 23
READ_CALL_BYTES: Final = 512 << 10  # of one call Linux reads no more than a disk takes at once
MAP_FAILED: Final = ctypes.c_void_p(-1).value
FULL: Final = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EIO: "the disk reports an error; look into the log of the system",
    errno.EDQUOT: "the quota is used up; free some space",
    errno.EFBIG: "no file may be that long; raise the limit (ulimit -f)",
}
MAPS_SPARE: Final = 4096  # for segments, indexes, libraries, memory and threads
MAPS_MAX_PATH: Final = "/proc/sys/vm/max_map_count"
HELD: Final = frozenset({errno.EAGAIN, errno.EACCES})  # by another open file
UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

# Calls through ctypes leave the interpreter lock; Python's own mmap.madvise would hold it.
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class RealMappedFile:
    """A file of the machine, mapped.

    Each call opens the file anew: maps outnumber the descriptors a process may have, and a file
    that one thread syncs may be let go by another. The map keeps the inode, so an error that
    write-back met is still reported to the descriptor opened after it. Whoever writes or syncs by
    a descriptor for longer has one of its own, so none is closed under another thread.
    """

    __slots__ = ("_address", "_full_path", "buffer", "path", "size")

    def __init__(self, path: str, full_path: str, descriptor: int, size: int, flags: int) -> None:
        self.path = path
        self.size = size
        self._full_path = full_path
        self._address, self.buffer = map_file(descriptor, size, flags)

    def reserve(self, first: int, end: int) -> None:
        """Give the range blocks of its own, so that writing there cannot fail; or DiskFull."""
        with self._open() as descriptor, _full_disk(f"no room for {end - first} bytes", self.path):
            os.posix_fallocate(descriptor, first, end - first)

    def populate(self, first: int, end: int) -> None:
        """Bring the pages in, ready to be written; an old kernel leaves them to be faulted in."""
        buffer = self.buffer  # held, so that the pages stay mapped during the call
        start = first - first % mmap.PAGESIZE
        length = min(end, len(buffer)) - start
        if length > 0:
            _libc.madvise(self._address + start, length, POPULATE_WRITE)

    def read_soon(self, first: int, end: int) -> None:
        """Begin to bring a range in that is about to be read all over."""
        end = min(end, self.size)
        for start in range(first - first % mmap.PAGESIZE, end, READ_CALL_BYTES):
            length = min(end - start, READ_CALL_BYTES)
            _libc.madvise(self._address + start, length, mmap.MADV_WILLNEED)

    def forget(self, first: int, end: int) -> None:
        """Keep a range out of memory until it is looked at again; its pages stay cached."""
        start = first - first % mmap.PAGESIZE
        length = min(end, self.size) - start
        if length > 0:
            _libc.madvise(self._address + start, length, mmap.MADV_DONTNEED)

    def expect_scattered(self) -> None:
        """Bring in one page per fault, without those around it."""
        _libc.madvise(self._address, self.size, mmap.MADV_RANDOM)

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the file by a system call; raises DiskFull or OSError, never a signal."""
        with self._open() as descriptor, _full_disk(f"no room for {len(data)} bytes", self.path):
            while data:
                count = os.pwrite(descriptor, data, position)
                data, position = data[count:], position + count

    def sync(self, first: int, end: int) -> None:
        """Return once the range (in fact the whole file) is on the platter, or raise OSError."""
        with self._open() as descriptor:
            os.fdatasync(descriptor)

    def open_descriptor(self) -> int:
        """A descriptor of the caller's own, who closes it; or OSError. Any thread may ask."""
        return os.open(self._full_path, os.O_RDWR | os.O_CLOEXEC)

    def zero(self, first: int, end: int) -> None:
        """Make the range read as zeros, giving its blocks back where the file system can."""
        if end <= first:
            return
        with self._open() as descriptor:
            if _libc.fallocate(descriptor, PUNCH_HOLE | KEEP_SIZE, first, end - first) == 0:
                return
            if ctypes.get_errno() not in UNSUPPORTED:
                raise OSError(ctypes.get_errno(), "cannot zero a range", self.path)
        self.buffer[first:end] = bytes(end - first)

    def close(self) -> None:
        """Let go of the file; the memory goes when the last reader does."""
        self.buffer = memoryview(b"")

    @contextmanager
    def _open(self) -> Iterator[int]:
        descriptor = os.open(self._full_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class RealLock:
    """A byte-range lock on an open file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let others in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class RealDisk:
    """Files below one directory of the machine, which is made if missing."""

    syncs_by_descriptor = True

    def __init__(self, root: str | Path, *, maps_max: int | None = None) -> None:
        self.root = Path(root)
        self._prefix = f"{self.root}/"  # joining text is ten times as quick as joining Paths
        self._maps_max = _maps_max() if maps_max is None else maps_max

    @property
    def maps_left(self) -> int:
        """How many more files this process may map, a few kept for those a store cannot miss."""
        return self._maps_max - _maps.count

    def mapped(
        self,
        path: str,
        size: int,
        *,
        create: bool = False,
        private: bool = False,
        read_ahead: bool = False,
    ) -> RealMappedFile:
        """Map a file; `create` makes it (zeros), `private` keeps writes out of the file."""
        full_path = self._prefix + path
        access = (os.O_RDONLY if private else os.O_RDWR) | os.O_CLOEXEC
        is_new = create and not self.exists(path)
        with _full_disk("no room for a new file", path):
            descriptor = os.open(full_path, access | (os.O_CREAT if create else 0), FILE_MODE)
        try:
            if create:
                with _full_disk(f"no room for {size} bytes", path):
                    os.ftruncate(descriptor, size)
            sharing = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
            file = RealMappedFile(path, full_path, descriptor, size, sharing)
        except BaseException:
            if is_new:  # whoever tries again may choose another name
                self.remove(path)
            raise
        finally:
            os.close(descriptor)
        if not read_ahead:
            file.expect_scattered()
        return file

    def made(self, path: str, size: int, *, reserved: int, data: bytes) -> RealMappedFile:
        """Make a file that begins with `data`, its directories if need be, and map it."""
        full_path = self._prefix + path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with _full_disk("no room for a new file", path):
            try:
                descriptor = os.open(full_path, flags, FILE_MODE)
            except FileNotFoundError:
                self.make_directory(_parent(path))
                descriptor = os.open(full_path, flags, FILE_MODE)
        try:
            with _full_disk(f"no room for {reserved} bytes", path):
                os.ftruncate(descriptor, size)
                os.posix_fallocate(descriptor, 0, reserved)
                if data and os.pwrite(descriptor, data, 0) != len(data):
                    raise OSError(errno.EIO, "written in part only", path)
            file = RealMappedFile(path, full_path, descriptor, size, mmap.MAP_SHARED)
        except BaseException:
            self.remove(path)
            raise
        finally:
            os.close(descriptor)
        file.expect_scattered()
        return file

    def names(self, directory: str) -> list[tuple[str, int]]:
        """Files in a directory with their lengths, sorted; none when it does not exist."""
        try:
            with os.scandir(self._prefix + directory) as entries:
                return sorted(
                    (entry.name, entry.stat().st_size) for entry in entries if entry.is_file()
                )
        except FileNotFoundError:
            return []

    def directories(self, directory: str) -> list[str]:
        """Directories in a directory, sorted; none when it does not exist."""
        try:
            with os.scandir(self._prefix + directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        return (self.root / path).exists()

    def read(self, path: str) -> bytes:
        """A whole file; raises FileNotFoundError."""
        return (self.root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Make or overwrite a file; nothing is synced."""
        self._write(path, data, synced=False)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file so that a crash leaves the old or the new one, the old kept as `.bak`."""
        self._write(f"{path}.tmp", data, synced=True)
        with suppress(FileNotFoundError):
            self.rename(path, f"{path}.bak")
        self.rename(f"{path}.tmp", path)
        self.sync_directory(_parent(path))

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in the same directory, replacing what had it."""
        (self.root / path).replace(self.root / new_path)

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        (self.root / path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is below it; it may be gone already."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.root / path)

    def make_directory(self, path: str) -> None:
        """Make a directory and the ones above it; it may be there already."""
        missing = self.root / path
        if not missing.is_dir():
            with _full_disk("no room for a new directory", path):
                missing.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on the platter."""
        descriptor = os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_many(
        self, ranges: Sequence[tuple[MappedFile, int, int]], directories: Collection[str]
    ) -> None:
        """Sync ranges and directories; past a few the whole file system is cheaper."""
        if len(ranges) + len(directories) <= SYNC_ONE_BY_ONE_MAX:
            for file, first, end in ranges:
                with suppress(FileNotFoundError):  # removed meanwhile: nothing left to keep
                    file.sync(first, end)
            for directory in directories:
                with suppress(FileNotFoundError):
                    self.sync_directory(directory)
            return
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(descriptor) != 0:
                raise OSError(ctypes.get_errno(), "cannot sync the file system", str(self.root))
        finally:
            os.close(descriptor)

    def modified_s(self, path: str) -> float:
        """When a file was last written, in seconds since the epoch."""
        return (self.root / path).stat().st_mtime

    def usage(self) -> tuple[float, int]:
        """How full the disk is (0 to 1), and the bytes that are free, as `df` counts them."""
        status = os.statvfs(self.root)
        used = status.f_blocks - status.f_bfree
        usable = used + status.f_bavail  # blocks kept for root are nobody's
        return (used / usable if usable else 1.0), status.f_bavail * status.f_frsize

    def lock(self, path: str) -> RealLock:
        """Hold byte 0 of the lock file, as a JVM does, or raise StoreLocked.

        The lock belongs to the open file, so it keeps out a second store of this process too, and
        it conflicts with the process-wide record lock that Java takes.
        """
        descriptor = os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            _lock_first_byte(descriptor, fcntl.F_WRLCK)
            os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in HELD:
                raise
            raise StoreLocked(
                f"{self.root / path} is locked: another broker uses this store; stop it, or choose"
                " another storePathRootDir"
            ) from error
        return RealLock(descriptor)

    def is_locked(self, path: str) -> bool:
        """Whether somebody holds the lock file; being allowed to read it is enough to know."""
        try:
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            _lock_first_byte(descriptor, fcntl.F_RDLCK)
        except OSError as error:
            if error.errno not in HELD:
                raise
            return True
        finally:
            os.close(descriptor)
        return False

    def _write(self, path: str, data: bytes, *, synced: bool) -> None:
        descriptor = os.open(
            self._prefix + path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE
        )
        try:
            with _full_disk(f"no room for {len(data)} bytes", path):
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Maps:
    """How many files this process has mapped; any thread maps."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.RLock()  # a map may go while one comes, in the same thread

    def came(self) -> None:
        with self._lock:
            self.count += 1

    def unmap(self, address: int, size: int) -> None:
        _libc.munmap(address, size)
        with self._lock:
            self.count -= 1


_maps: Final = _Maps()


def map_file(descriptor: int, size: int, sharing: int) -> tuple[int, memoryview]:
    """Where a file lies in memory from now on, and the memory; the descriptor may be closed."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, size, protection, sharing, descriptor, 0)
    if address is None or address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"cannot map {size} bytes")
    memory = (ctypes.c_ubyte * size).from_address(address)
    # Whoever holds a view holds `memory`; when the last is gone nobody can look any more.
    weakref.finalize(memory, _maps.unmap, address, size).atexit = False
    _maps.came()
    return address, memoryview(memory).cast("B")


def _maps_max() -> int:
    try:
        return int(Path(MAPS_MAX_PATH).read_text()) - MAPS_SPARE
    except (OSError, ValueError):  # no such limit here
        return sys.maxsize


def _lock_first_byte(descriptor: int, kind: int) -> None:
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def _full_disk(found: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if (why := FULL.get(error.errno or 0)) is None:
            raise
        raise DiskFull(f"{found} in {path}: {why}") from error
