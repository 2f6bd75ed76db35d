"""The index files: which message has which key, a file for every so many keys.

The newest file is written, the others are full. Slots get their blocks when a file is made, and lie
in memory until a checkpoint finds it full or the store stops; entries get theirs a chunk at a time
ahead of the next one.
"""

from __future__ import annotations

import logging
import struct
from datetime import datetime
from typing import Final

from ariane.clock import Clock
from ariane.disk import Disk, MappedFile
from ariane.errors import StoreError
from ariane.kernel.index import Index, index_file_bytes

logger: Final = logging.getLogger("ariane.store")

DIRECTORY: Final = "index"
HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
CHUNK_BYTES: Final = 1 << 20
NAME_DIGITS: Final = 17
END_MS_AT: Final = 8
TABLES_MAX: Final = 4  # of full files that wait for a checkpoint


def file_name(number: int) -> str:
    """The name of the file that was made at a time, given as one number."""
    return f"{number:0{NAME_DIGITS}d}"


class IndexFile:
    """One mapped index file."""

    __slots__ = ("file", "index", "is_changed", "name", "synced_next")

    def __init__(self, name: int, file: MappedFile, index: Index) -> None:
        self.name = name
        self.file = file
        self.index = index
        self.synced_next = index.next  # entries below are on the platter
        self.is_changed = False  # slots or entries were rewritten

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever put in."""
        return self.index.next <= 1

    def read_soon(self) -> None:
        """Begin to bring in what is used: faulted in page by page it would take seconds."""
        self.file.read_soon(0, self._entry_position(self.index.next))

    def clear_tail(self) -> None:
        """Make zeros of whatever follows the last entry."""
        first = self._entry_position(self.index.next)
        self.file.zero(first, self.file.size)
        self.index.reserved_end = self.index.next
        self.is_changed = True

    def set_end_ms(self, store_ms: int) -> None:
        """Put the exact time of the last entry into the header, where a rebuild knows seconds."""
        struct.pack_into(">q", self.file.buffer, END_MS_AT, store_ms)

    @property
    def slots_end(self) -> int:
        """Where the slots end and the entries begin."""
        return self._entry_position(1)

    def reserve_slots(self) -> None:
        """Give header and slots their blocks; or DiskFull."""
        self.file.reserve(0, self.slots_end)

    def reserve(self, count: int) -> None:
        """Give the next `count` entries their blocks; or DiskFull."""
        index = self.index
        while index.reserved_end < min(index.next + count, index.entry_count):
            first = self._entry_position(index.reserved_end)
            last = first + ENTRY_BYTES - 1  # chunks do not end where entries do
            end = min(last - last % CHUNK_BYTES + CHUNK_BYTES, self.file.size)
            self.file.reserve(first, end)
            entries = (end - self._entry_position(0)) // ENTRY_BYTES
            index.reserved_end = min(entries, index.entry_count)

    def range_ahead(self, count: int) -> tuple[int, int]:
        """The bytes to reserve so that `count` more entries have room; none if they do."""
        index = self.index
        first = self._entry_position(index.reserved_end)
        wanted = self._entry_position(min(index.next + count, index.entry_count))
        return first, max(first, wanted)

    def reserved_to(self, position: int) -> None:
        """Note that every entry in front of a position has its blocks."""
        entries = (position - self._entry_position(0)) // ENTRY_BYTES
        self.index.reserved_end = max(self.index.reserved_end, entries)

    def take_keys(self) -> None:
        """Be ready for many keys: slots in memory, entries by calls."""
        if self.index.has_table:
            return
        self.index.take_slots()
        self.index.write_by(self.file.open_descriptor())

    def take_no_more(self) -> None:
        """Have every entry in the file; its slots follow with the next checkpoint."""
        self.index.reserved_end = self.index.next  # whoever still holds it finds no room
        self.index.write_by(-1)
        self.is_changed = True

    def write_slots(self) -> None:
        """Write a full file's slots from the table they lie on; any thread may call this."""
        self.file.write(HEADER_BYTES, self.index.slot_bytes)

    def put_slots_back(self) -> None:
        """Have the slots in the file, for whoever takes it to be complete."""
        self.index.put_slots_back()
        self.index.write_by(-1)
        self.is_changed = True

    def release(self) -> None:
        """Let go of the map."""
        self.index.release()
        self.file.close()

    def _entry_position(self, entry: int) -> int:
        return HEADER_BYTES + self.index.slot_count * SLOT_BYTES + entry * ENTRY_BYTES


class Indexes:
    """The index files, oldest first."""

    def __init__(self, disk: Disk, clock: Clock, *, slot_count: int, entry_count: int) -> None:
        self._disk = disk
        self._clock = clock
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._renamed = False
        self.files: list[IndexFile] = []
        self.has_checkpoints = False  # to come, which put the slots of full files back

    @property
    def keys_max(self) -> int:
        """How many keys a file can hold."""
        return self._entry_count - 1

    @property
    def current(self) -> Index | None:
        """The file that takes new keys."""
        return self.files[-1].index if self.files else None

    def load(self) -> None:
        """Map what the directory holds."""
        if not self._disk.exists(DIRECTORY):
            self._disk.make_directory(DIRECTORY)
            self._disk.sync_directory("")
        expected = index_file_bytes(self._slot_count, self._entry_count)
        for name, size in self._finished():
            path = f"{DIRECTORY}/{name}"
            if not (name.isascii() and name.isdigit() and len(name) == NAME_DIGITS):
                raise StoreError(
                    f"{path} does not belong there: index files are named by {NAME_DIGITS} digits;"
                    " move it elsewhere"
                )
            if size != expected:
                raise StoreError(
                    f"{path} has {size} bytes and must have {expected}: start with the"
                    " maxHashSlotNum and maxIndexNum the store was made with, or move the file"
                    " elsewhere and its keys will be read from the log again"
                )
            self._take(int(name), self._disk.mapped(path, size))

    def _finished(self) -> list[tuple[str, int]]:
        """The files in front of the first that a crash left without length; the rest are removed.

        Those after it hold later keys only, and the index must have no gaps: recovery reads them
        from the log again. The newest goes first, so that a crash here leaves no gap either.
        """
        found = self._disk.names(DIRECTORY)
        count = next((i for i, (_, size) in enumerate(found) if size == 0), len(found))
        for name, _ in reversed(found[count:]):
            logger.warning("unfinished file removed path=%s/%s", DIRECTORY, name)
            self._disk.remove(f"{DIRECTORY}/{name}")
        return found[:count]

    def make_room(self, count: int) -> Index | None:
        """An index with room for `count` more keys, made now if need be; or DiskFull.

        None when no file could ever hold so many.
        """
        if count > self.keys_max:
            return None
        if not self.files or self.files[-1].index.next + count > self._entry_count:
            self._create()
        newest = self.files[-1]
        newest.reserve(count)
        newest.take_keys()
        return newest.index

    def put_slots_back(self) -> None:
        """Have everything in the files; a key that comes after all takes the slots again."""
        for file in self.files:
            if file.index.has_table:
                file.put_slots_back()

    def without_slots(self) -> list[IndexFile]:
        """The full files whose slots are on a table yet."""
        return [file for file in self.files[:-1] if file.index.has_table]

    def query(
        self, topic: bytes, key: bytes, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Log offsets of messages whose key has this hash, newest first."""
        found: list[int] = []
        for file in reversed(self.files):
            index = file.index
            if file.is_empty or index.begin_ms > end_ms or index.end_ms + 999 < begin_ms:
                continue
            found += index.query(topic, key, begin_ms, end_ms, count_max - len(found))
            if len(found) >= count_max:
                break
        return found

    def trim(self, log_offset: int) -> list[str]:
        """Let go of files that only point below `log_offset`; returns them for removal.

        One whose slots are on a table yet stays: a checkpoint may be reading them on its thread.
        """
        removable = []
        while (
            len(self.files) > 1
            and self.files[0].index.end_offset < log_offset
            and not self.files[0].index.has_table
        ):
            file = self.files.pop(0)
            file.release()
            removable.append(file.file.path)
        return removable

    def drop_last(self) -> None:
        """Remove the newest file."""
        file = self.files.pop()
        path = file.file.path
        file.release()
        self._disk.remove(path)
        self._renamed = True

    @property
    def has_unsynced(self) -> bool:
        """Whether anything changed since it was last taken to be synced."""
        return self._renamed or any(
            file.is_changed or file.synced_next != file.index.next for file in self.files
        )

    def unsynced(self) -> tuple[list[tuple[MappedFile, int, int]], set[str]]:
        """What must be synced to cover every key so far."""
        files = [
            file for file in self.files if file.is_changed or file.synced_next != file.index.next
        ]
        for file in files:
            file.is_changed, file.synced_next = False, file.index.next
        directories = {DIRECTORY} if self._renamed else set()
        self._renamed = False
        return [(file.file, 0, file.file.size) for file in files], directories

    def distrust_names(self) -> None:
        """Any name may be known to the page cache only: the next sync covers them all."""
        self._renamed = True

    def close(self) -> None:
        """Let go of every map."""
        while self.files:
            self.files.pop().release()

    def _create(self) -> None:
        number = self._next_number()
        path = f"{DIRECTORY}/{file_name(number)}"
        size = index_file_bytes(self._slot_count, self._entry_count)
        mapped = self._disk.mapped(path, size, create=True)
        before = self.files[-1] if self.files else None
        file = IndexFile(number, mapped, self._index(mapped))
        try:
            file.reserve_slots()
        except BaseException:
            file.release()
            self._disk.remove(path)
            raise
        if before is not None:
            file.index.preset(before.index.end_ms, before.index.end_offset)
            before.take_no_more()
        file.is_changed = True
        self.files.append(file)
        if before is not None and not (
            self.has_checkpoints and len(self.without_slots()) <= TABLES_MAX
        ):
            before.put_slots_back()
        self._renamed = True
        logger.info("index file made path=%s", path)

    def _next_number(self) -> int:
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000)  # local, as Apache names them
        number = int(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}")
        return max(number, self.files[-1].name + 1) if self.files else number

    def _take(self, name: int, mapped: MappedFile) -> None:
        file = IndexFile(name, mapped, self._index(mapped))
        self.files.append(file)

    def _index(self, mapped: MappedFile) -> Index:
        index = Index(mapped.buffer, self._slot_count, self._entry_count)
        index.reserved_end = index.next
        return index
