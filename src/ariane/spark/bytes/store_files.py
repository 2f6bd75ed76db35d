"""The files of a store, mapped to be read while somebody else, or nobody, writes them.

Nothing here writes, locks or waits. Retention takes files away by their names, and what is mapped
stays good; a file that was made anew under an old name is told by its inode. An entry may be there
before its record is. It counts only when the record lies there whole and says that it is the one
meant, so what a writer has not finished does not exist yet. Formats: docs/formats/bulk_read.md,
consume_queue.md, record.md.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ariane.errors import AccessImpossible
from ariane.spark._columns import LogView
from ariane.spark.bytes.contract import AccessOptions, QueueBounds

ENTRY: Final = struct.Struct(">qiq")  # log offset, record size, tags code
PADDING_BYTES: Final = 0x7FFFFFFF  # the record size of an entry that was never used
NAME_DIGITS: Final = 20
SEGMENTS_MAPPED_MAX: Final = 64
QUEUE_FILES_MAPPED_MAX: Final = 256
SAMPLE_COUNT: Final = 64
AHEAD_CALL_BYTES: Final = 512 << 10  # of one call Linux reads no more than a disk takes at once
LIGHT_PREFIX: Final = "%LMQ%"  # of queues whose entries mean records of other topics
NO_NAME: Final = "local"

Entry = tuple[int, int, int]


class _Known(NamedTuple):
    """A file as its directory shows it."""

    path: str
    inode: int
    size: int


def known_files(directory: Path) -> dict[int, _Known]:
    """The files of a directory by the position their names say, in order; none without it."""
    found: dict[int, _Known] = {}
    try:
        paths = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    for path in paths:
        if len(path.name) == NAME_DIGITS and path.name.isdecimal():
            with suppress(FileNotFoundError):  # gone since
                status = path.stat()
                if status.st_size:  # else its making has just begun
                    found[int(path.name)] = _Known(str(path), status.st_ino, status.st_size)
    return dict(sorted(found.items()))


def _map(known: _Known) -> mmap.mmap | None:
    """The file, unless it has gone or is another by now."""
    try:
        descriptor = os.open(known.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        if found.st_ino != known.inode or found.st_size != known.size:
            return None
        return mmap.mmap(descriptor, known.size, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


class LogFiles:
    """The commit log: which segments there are, and those that are mapped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[int, _Known] = {}
        self._inodes: dict[int, int] = {}  # of what is mapped
        self._maps: dict[int, mmap.mmap] = {}
        self.view = LogView()

    def refresh(self) -> None:
        """Look at the directory anew."""
        self._known = known_files(self._directory)
        if any(
            self._known[base].inode != inode
            for base, inode in self._inodes.items()
            if base in self._known
        ):
            self.view = LogView()  # another store has taken this one's place
            self._inodes.clear()
            self._maps.clear()

    @property
    def first(self) -> int:
        """The log offset of the oldest byte."""
        return next(iter(self._known), 0)

    def map_at(self, log_offset: int) -> bool:
        """Map the segment that holds a log offset; False when there is none."""
        if log_offset >= self._end:
            self.refresh()  # it may have been made since
        for base, known in self._known.items():
            if base <= log_offset < base + known.size:
                return self._map(base, known)
        return False

    @property
    def _end(self) -> int:
        if not self._known:
            return 0
        base, known = next(reversed(self._known.items()))
        return base + known.size

    def read_soon(self, first: int, end: int) -> None:
        """Begin to bring in a stretch of the log that is about to be read."""
        for base, mapped in self._maps.items():
            start = max(first - base, 0)
            stop = min(end - base, len(mapped))
            for at in range(start - start % mmap.PAGESIZE, stop, AHEAD_CALL_BYTES):
                mapped.madvise(mmap.MADV_WILLNEED, at, min(AHEAD_CALL_BYTES, stop - at))

    def _map(self, base: int, known: _Known) -> bool:
        if base in self._maps:
            return True
        mapped = _map(known)
        if mapped is None:
            return False
        if len(self._maps) >= SEGMENTS_MAPPED_MAX:
            dropped = self.view.drop_oldest()
            del self._maps[dropped], self._inodes[dropped]
        self.view.add(base, mapped)
        self._maps[base] = mapped
        self._inodes[base] = known.inode
        return True


class QueueFiles:
    """One consume queue."""

    def __init__(self, directory: Path, log: LogFiles, queue_id: int) -> None:
        self._directory = directory
        self._log = log
        self._queue_id = queue_id
        self._known: dict[int, _Known] = {}
        self._maps: dict[int, tuple[int, mmap.mmap]] = {}  # by position: inode and map

    def refresh(self) -> None:
        """Look at the directory anew, and forget what has been replaced."""
        self._known = known_files(self._directory)
        self._maps = {
            position: (inode, mapped)
            for position, (inode, mapped) in self._maps.items()
            if position in self._known and self._known[position].inode == inode
        }

    def entries(self, queue_offset: int) -> memoryview:
        """Entries from an offset to the end of their file, written or not; none without a file."""
        wanted = queue_offset * ENTRY.size
        for position, known in self._known.items():
            if position <= wanted < position + known.size:
                mapped = self._mapped(position, known)
                if mapped is None:
                    break
                return memoryview(mapped)[wanted - position :]
        return memoryview(b"")

    def entry(self, queue_offset: int) -> Entry | None:
        """Log offset, record size and tags code; None when it has not been written."""
        found = self.entries(queue_offset)
        if len(found) < ENTRY.size:
            return None
        entry: Entry = ENTRY.unpack_from(found)
        return entry if entry[1] > 0 else None

    def bounds(self) -> QueueBounds:
        """What can be read: from the first entry whose record is there to the last one whole."""
        low = next(iter(self._known), 0) // ENTRY.size
        end = self._confirmed(low, self._end(low))
        first = self._search(low, end, self._is_gone)
        while first < end and (entry := self.entry(first)) and entry[1] == PADDING_BYTES:
            first += 1
        return QueueBounds(first, end)

    def _confirmed(self, low: int, end: int) -> int:
        """Where entries end whose records are there: those of the newest may be on their way."""
        high, step = end, 1
        while end > low and not self._is_true(end - 1):
            end, step = max(low, end - step), step * 2
        return self._search(end, high, self._is_true)

    def _end(self, low: int) -> int:
        """The first offset without an entry: in the newest file that has any.

        Old files may go while we look, so what is not there tells nothing of where the end is.
        """
        for position, known in reversed(self._known.items()):
            first = position // ENTRY.size
            if self.entry(first) is not None:
                return self._search(first, first + known.size // ENTRY.size, self._is_written)
        return low

    def offset_at(self, timestamp_ms: int) -> int:
        """The first offset stored at or after a moment; times never fall along a queue."""
        bounds = self.bounds()
        return self._search(
            bounds.first, bounds.end, lambda offset: self.store_ms_at(offset) < timestamp_ms
        )

    def store_ms_at(self, queue_offset: int) -> int:
        """When a message was stored; -1 for one that cannot be read."""
        entry = self.entry(queue_offset)
        if entry is None:
            return -1
        found = self._log.view.store_ms_of(entry[0], entry[1])
        if found is None and self._log.map_at(entry[0]):
            found = self._log.view.store_ms_of(entry[0], entry[1])
        return -1 if found is None else found

    def record_at(self, queue_offset: int) -> tuple[int, bytes] | None:
        """Log offset and bytes of a message's record, or None when it is not there."""
        entry = self.entry(queue_offset)
        if entry is None or not self._log.map_at(entry[0]):
            return None
        record = self._log.view.record(entry[0], entry[1])
        return None if record is None else (entry[0], record)

    def sizes(self, first: int, end: int) -> Iterator[int]:
        """Record sizes at some offsets of a range, evenly spread."""
        for offset in range(first, end, max(1, (end - first) // SAMPLE_COUNT)):
            entry = self.entry(offset)
            if entry is not None and entry[1] != PADDING_BYTES:
                yield entry[1]

    def _is_written(self, queue_offset: int) -> bool:
        return self.entry(queue_offset) is not None

    def _is_gone(self, queue_offset: int) -> bool:
        entry = self.entry(queue_offset)
        return entry is None or entry[0] < self._log.first or entry[1] == PADDING_BYTES

    def _is_true(self, queue_offset: int) -> bool:
        entry = self.entry(queue_offset)
        if entry is None:
            return False
        if entry[1] == PADDING_BYTES or entry[0] < self._log.first:
            return True
        return self._log.map_at(entry[0]) and self._log.view.is_entry_true(
            entry[0], entry[1], queue_offset, self._queue_id
        )

    def _search(self, low: int, high: int, is_before: Callable[[int], bool]) -> int:
        """The first offset of [low, high) for which `is_before` is false, else `high`."""
        while low < high:
            middle = (low + high) // 2
            if is_before(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _mapped(self, position: int, known: _Known) -> mmap.mmap | None:
        if position in self._maps:
            return self._maps[position][1]
        mapped = _map(known)
        if mapped is not None:
            self._maps[position] = (known.inode, mapped)
        return mapped


class StoreFiles:
    """One store directory; what it tells of its queues is a `StoreMetadata`."""

    def __init__(self, root: Path, broker: str) -> None:
        self.broker = broker
        self._root = root
        self._queues_directory = root / "consumequeue"
        _check_layout(root)
        self.log = LogFiles(root / "commitlog")
        self._queues: dict[tuple[str, int], QueueFiles] = {}

    def topics(self) -> list[str]:
        """Topics that have a queue, system topics among them."""
        return [name for name in _directories(self._queues_directory) if self.queues(name)]

    def queues(self, topic: str) -> list[int]:
        """The topic's queues; none when it has none."""
        directory = self._queues_directory / topic
        return sorted(
            int(name)
            for name in _directories(directory)
            if name.isdecimal() and known_files(directory / name)
        )

    def queue(self, topic: str, queue_id: int) -> QueueFiles:
        """The queue's files as they are now."""
        if topic.startswith(LIGHT_PREFIX):
            raise AccessImpossible(
                f"{topic} is a light topic, whose messages lie under other names"
            )
        if len(self._queues) >= QUEUE_FILES_MAPPED_MAX:
            self._queues.clear()
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            directory = self._queues_directory / topic / str(queue_id)
            queue = self._queues[topic, queue_id] = QueueFiles(directory, self.log, queue_id)
        self.log.refresh()
        queue.refresh()
        return queue

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """What of a queue can be read now; (0, 0) for one that was never written."""
        return self.queue(topic, queue_id).bounds()

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at or after a moment; the end when there is none."""
        return self.queue(topic, queue_id).offset_at(timestamp_ms)

    def mean_record_bytes(self, topic: str, queue_id: int, first: int, end: int) -> float:
        """How large the records of a range are on average; a sample will do. 0 for an empty one."""
        sizes = list(self.queue(topic, queue_id).sizes(first, end))
        return sum(sizes) / len(sizes) if sizes else 0.0


def store_paths_of(options: AccessOptions) -> dict[str, Path]:
    """Store directories by broker; the name is empty for a path that was given without one."""
    found: dict[str, Path] = {}
    for part in (options.store_path or "").split(","):
        name, equals, path = part.strip().rpartition("=")
        if path:
            found[name if equals else ""] = Path(path)
    return found


def _check_layout(root: Path) -> None:
    for name in ("commitlog", "consumequeue"):
        if not (root / name).is_dir():
            raise AccessImpossible(
                f"{root} is no store that can be read here: it has no directory {name}; give the "
                "broker's storePathRootDir"
            )
        if not os.access(root / name, os.R_OK | os.X_OK):
            raise AccessImpossible(f"{root / name} may not be read by this user")
    if (root / "consumequeue" / "CURRENT").exists():
        raise AccessImpossible(
            f"{root} keeps its queues in RocksDB; only storeType=default can be read"
        )


def _directories(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
