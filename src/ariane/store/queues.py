"""The consume queues' files: one directory per topic and queue, files of fixed length, mapped.

Files are made when their first entry is, full length but sparse; blocks are reserved a chunk ahead
of the entry to be written, so an entry never meets a full disk. A queue that has grown long has the
chunk after the next reserved off the loop, since that may wait for the file system's journal, and
writes many entries at a time by calls (docs/decisions/0025). An idle queue keeps its last file: the
queue's numbering lives in its name. A queue without a file takes its first entries in memory while
`Making` makes one (docs/decisions/0029).

There may be tens of thousands of queues, so nothing here that is done again and again looks at all
of them: what grew since is in the tally, then in `_unsynced` until a checkpoint takes it.

Invariants: `Queue` and `QueueFiles.files` hold the same maps in the same order. A queue with
entries that no sync has covered is in the tally's list or in `_unsynced`, or in a checkpoint under
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ariane.disk import Disk, MappedFile
from ariane.errors import StoreError, UnsupportedStore
from ariane.kernel.log import Log
from ariane.kernel.queue import KEPT_MAX, Queue, Tally
from ariane.store.segments import file_name, positions_in
from ariane.topics import SCHEDULE_TOPIC, topic_fault

DIRECTORY: Final = "consumequeue"
ENTRY_BYTES: Final = 20
RECORD_BYTES_MIN: Final = 91
QUEUE_ID_MAX: Final = 2**31 - 1
PADDING_BYTES: Final = 0x7FFFFFFF  # the record size of an entry that was never used
FIRST_CHUNK_BYTES: Final = 16 * 1024
PAGE_BYTES: Final = 4096
CHUNK_BYTES: Final = 256 * 1024  # what a long queue takes at a time
AHEAD_BYTES: Final = 1024 * 1024  # and what is made ready for it beyond
BY_CALLS_MAX: Final = 64  # long queues that are written by calls, with a descriptor and a desk each

SLICE_QUEUES: Final = 16  # so many are worked on between two looks at the clock

Range = tuple[MappedFile, int, int]


class QueueFiles:
    """The files of one queue and how much of them has been synced."""

    __slots__ = ("directory", "files", "has_asked", "ready_end", "synced_end", "tail_changed")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.files: list[MappedFile] = []
        self.synced_end = 0  # entries below are on the platter
        self.tail_changed = False  # so must be what follows the last entry
        self.has_asked = False  # for more blocks of the last file
        self.ready_end = 0  # entries below have blocks, though the queue need not know of all yet


class Queues:
    """Every consume queue by topic and number."""

    def __init__(self, disk: Disk, log: Log, file_bytes: int) -> None:
        self._disk = disk
        self._log = log
        self._file_bytes = file_bytes
        self._topics: dict[str, dict[int, Queue]] = {}
        self._files: dict[Queue, QueueFiles] = {}
        self._tally = Tally()
        self._unsynced: dict[Queue, None] = {}
        # Asked to have a file made for a fresh queue; says whether it will be.
        self.on_fresh: Callable[[Queue], bool] = _nobody_makes
        self.make_now: Callable[[Queue], object] = _nobody_makes
        # Asked to make a stretch of a long queue's file ready, and to say `made_ready` then.
        self.on_long: Callable[[Queue, MappedFile, int, int], None] = _nobody_asked
        self._by_calls: dict[Queue, None] = {}  # the one that grew last at the end
        self._renamed: set[str] = set()  # directories whose names have changed since the last sync
        self.behind_holes: list[str] = []  # files that were found behind a missing one

    def __iter__(self) -> Iterator[tuple[tuple[str, int], Queue]]:
        for topic, queues in self._topics.items():
            for queue_id, queue in queues.items():
                yield (topic, queue_id), queue

    def load(self) -> None:
        """Map what the directories hold; ends are found by recovery."""
        if not self._disk.exists(DIRECTORY):
            self._disk.make_directory(DIRECTORY)
            self._disk.sync_directory("")
        if strays := [name for name, _ in self._disk.names(DIRECTORY)]:
            if "CURRENT" in strays:
                raise UnsupportedStore(
                    f"{DIRECTORY} is a RocksDB directory (storeType=defaultRocksDB);"
                    " only storeType=default can be read"
                )
            raise StoreError(f"{DIRECTORY}/{strays[0]} does not belong there; move it elsewhere")
        for topic in self._disk.directories(DIRECTORY):
            for number in self._disk.directories(f"{DIRECTORY}/{topic}"):
                if not is_queue_number(number):
                    raise StoreError(
                        f"{DIRECTORY}/{topic}/{number} is not a queue number; move it elsewhere"
                    )
                self._load_queue(topic, int(number))

    def remove_behind_holes(self) -> None:
        """Remove files that cannot be used; what they held is to be read from the log again."""
        while self.behind_holes:
            path = self.behind_holes.pop()  # the newest first: cut short, the hole is still there
            self._disk.remove(path)
            self._renamed.add(path.rpartition("/")[0])

    def is_spent(self, queue: Queue) -> bool:
        """Whether no entry of a queue points into the log."""
        last = queue.entry(queue.end - 1)
        return last is None or last[0] < self._log.first_position

    def lacks_start(self, queue: Queue) -> bool:
        """Whether the files of a queue begin later than the log's records of it may.

        `trim` leaves an entry in front of the log's start, and one that begins in the middle of a
        file is padded.
        """
        first = queue.first_position // ENTRY_BYTES
        entry = queue.entry(first)
        return (
            first > 0
            and entry is not None
            and entry[0] > self._log.first_position
            and entry[1] != PADDING_BYTES
        )

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if it is known."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def obtain(self, topic: str, queue_id: int) -> Queue:
        """The queue, which has no files until its first message."""
        queues = self._topics.get(topic)
        if queues is None:
            if fault := topic_fault(topic):
                raise StoreError(fault)
            queues = self._topics[topic] = {}
        queue = queues.get(queue_id)
        if queue is None:
            if queue_id < 0:
                raise StoreError(f"queue {queue_id} of {topic}: queues count from 0")
            queue = queues[queue_id] = Queue(
                topic.encode(),
                queue_id,
                self._file_bytes,
                is_schedule=topic == SCHEDULE_TOPIC,
                tally=self._tally,
            )
            self._files[queue] = QueueFiles(f"{DIRECTORY}/{topic}/{queue_id}")
        return queue

    def topics(self) -> dict[str, list[int]]:
        """The queue numbers of each topic that has ever had a message."""
        found = {
            topic: sorted(queue_id for queue_id, queue in queues.items() if queue.has_entries)
            for topic, queues in sorted(self._topics.items())
        }
        return {topic: queue_ids for topic, queue_ids in found.items() if queue_ids}

    def first_path(self, queue: Queue) -> str:
        """Where the first file of a fresh queue belongs."""
        return f"{self._files[queue].directory}/{file_name(0)}"

    def adopt(self, queue: Queue, file: MappedFile, written_count: int) -> None:
        """Give a fresh queue its first file, with so many of the entries it keeps in it."""
        files = self._files[queue]
        queue.adopt(file.buffer, written_count)
        queue.reserved_end = min(FIRST_CHUNK_BYTES, self._file_bytes) // ENTRY_BYTES
        files.files.append(file)
        self._name_new(files.directory)
        self._unsynced[queue] = None

    def make_room(self, queue: Queue, count: int = 1) -> None:
        """Map and reserve what the next `count` entries need; or DiskFull, and nothing is lost."""
        if not queue.file_count and self._make_first(queue, queue.end, count):
            return
        files = self._files[queue]
        while queue.reserved_end < queue.end + count:
            position = queue.reserved_end * ENTRY_BYTES
            if position >= queue.end_position:
                self._add_file(queue, queue.end_position)
            file = files.files[(position - queue.first_position) // self._file_bytes]
            start = position % self._file_bytes
            is_long = queue.file_count > 1 or start >= CHUNK_BYTES // 2
            if files.ready_end > queue.reserved_end:
                queue.reserved_end = files.ready_end
            else:
                chunk = CHUNK_BYTES if is_long else max(start, FIRST_CHUNK_BYTES)
                # Up to a whole page, and always past `start`: pages do not end where entries do.
                stop = min(-(-(start + chunk) // PAGE_BYTES) * PAGE_BYTES, self._file_bytes)
                file.reserve(start, stop)
                queue.reserved_end = (position - start + stop) // ENTRY_BYTES
            if is_long:
                self._write_by_calls(queue, file)
            if is_long and not files.has_asked:
                first = queue.reserved_end * ENTRY_BYTES - (position - start)
                if first < self._file_bytes:
                    files.has_asked = True
                    self.on_long(queue, file, first, min(first + AHEAD_BYTES, self._file_bytes))

    def made_ready(self, queue: Queue, file: MappedFile, end: int) -> None:
        """Note that a file has its blocks up to `end`, if it still is the queue's last."""
        files = self._files.get(queue)
        if files is not None and files.files and files.files[-1] is file:
            files.has_asked = False
            base = queue.end_position - self._file_bytes
            files.ready_end = (base + end) // ENTRY_BYTES

    def step_to(self, queue: Queue, queue_offset: int) -> None:
        """Go on at another number, for a queue whose log says so.

        A number in front of all the files belongs to a topic made anew; one past the end leaves a
        gap, which is padded if there is anything to keep in front of it.
        """
        is_far = queue_offset > queue.end + self._file_bytes // ENTRY_BYTES
        is_in_front = queue_offset < queue.first_position // ENTRY_BYTES
        if not queue.file_count or is_in_front or (is_far and self.is_spent(queue)):
            self.reset(queue, queue_offset)
            self._begin(queue, queue_offset)
            return
        while queue.end < queue_offset:
            self.make_room(queue)
            stop = min(queue.reserved_end, queue_offset)
            queue.pad(queue.end, stop)
            queue.end = stop

    def reset(self, queue: Queue, queue_offset: int = 0) -> None:
        """Remove the queue's files; it will go on at `queue_offset`."""
        files = self._files[queue]
        self._by_calls.pop(queue, None)
        while files.files:
            self._drop_last(queue, files)
        queue.begin_at(queue_offset)
        files.synced_end = queue_offset

    def cut_tail(self, queue: Queue) -> None:
        """Make zeros of whatever follows the last entry."""
        files = self._files[queue]
        end = queue.end * ENTRY_BYTES
        while queue.file_count > 1 and queue.end_position - self._file_bytes >= end:
            self._drop_last(queue, files)
        if queue.file_count and end <= queue.first_position == 0:
            self._drop_last(queue, files)
        if queue.file_count and end < queue.end_position:
            files.files[-1].zero(end - queue.end_position + self._file_bytes, self._file_bytes)
        queue.reserved_end = queue.end
        files.synced_end = min(files.synced_end, queue.end)
        files.tail_changed = True

    def remove_unused(self) -> None:
        """Remove last files without an entry, which Apache's broker cannot start from.

        The only file of a queue that has counted stays: without it numbers would start again.
        """
        for queue, files in self._files.items():
            is_empty = queue.end * ENTRY_BYTES <= queue.end_position - self._file_bytes
            if queue.file_count and is_empty and (queue.file_count > 1 or queue.end == 0):
                self._drop_last(queue, files)
                queue.reserved_end = queue.end

    def find_min(self, queue: Queue) -> None:
        """Set the first offset whose record the log still has (the end when it has none)."""
        low = queue.first_from(self._log.first_position)
        while low < queue.end and (entry := queue.entry(low)) and entry[1] == PADDING_BYTES:
            low += 1
        queue.min_offset = low

    def trim(self, removable: list[str]) -> Iterator[None]:
        """Follow the log's new start, in slices; lists files no longer needed, to be removed.

        A queue that begins late meanwhile has entries that point in front of the log, and readers
        pass over these.

        The last entry that is on the platter stays: it carries the numbering through a power cut.
        So does the one in front of the first that is needed: it tells that no file is missing.
        """
        for number, (queue, files) in enumerate(list(self._files.items())):
            if number % SLICE_QUEUES == 0:
                yield
            if not files.files:
                continue
            self.find_min(queue)
            while (
                queue.file_count > 1
                and queue.first_position + self._file_bytes < queue.min_offset * ENTRY_BYTES
                and queue.first_position + self._file_bytes < files.synced_end * ENTRY_BYTES
            ):
                queue.drop_first()
                file = files.files.pop(0)
                file.close()
                removable.append(file.path)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's queues; whoever still holds one finds it empty and without room."""
        for queue in self._topics.pop(topic, {}).values():
            self.reset(queue)
            self._tally.leave(queue)
            self._unsynced.pop(queue, None)
            del self._files[queue]
        self._disk.remove_tree(f"{DIRECTORY}/{topic}")
        self._renamed = {
            path for path in self._renamed if not path.startswith(f"{DIRECTORY}/{topic}/")
        }
        self._renamed.add(DIRECTORY)

    def ends_of(self, topic: str) -> dict[int, int]:
        """The end of each queue of a topic that has entries."""
        return {
            queue_id: queue.end
            for queue_id, queue in self._topics.get(topic, {}).items()
            if queue.has_entries
        }

    def settle(self) -> Iterator[None]:
        """Put entries that queues keep back into their files, for readers that map these."""
        for number, queue in enumerate(self._take_grown()):
            if number % SLICE_QUEUES == 0:
                yield
            queue.settle()

    def counts(self) -> tuple[int, int]:
        """How many queues have entries, and the sum of their ends."""
        return self._tally.queue_count, self._tally.entry_count

    def counts_without(self, is_left_out: Callable[[Queue], bool]) -> tuple[int, int]:
        """The same of some queues, which are looked at one by one."""
        ends = [queue.end for queue in self._files if queue.end and not is_left_out(queue)]
        return len(ends), sum(ends)

    def recovered(self) -> None:
        """Know what there is, after a start has put it right: from now on only changes are."""
        self._tally.recount(self._files)
        self._unsynced = {
            queue: None
            for queue, files in self._files.items()
            if files.synced_end != queue.end or files.tail_changed
        }

    @property
    def has_unsynced(self) -> bool:
        """Whether anything changed since the last checkpoint began."""
        self._take_grown()
        return bool(self._unsynced or self._renamed)

    def unsynced(self, ranges: list[Range], ends: list[tuple[QueueFiles, int]]) -> Iterator[None]:
        """List what must be synced to cover every entry so far; `synced` takes the ends after it.

        It takes slices, in which queues grow: each is covered as far as it goes at its turn.
        Every queue that had grown when this began has its turn; and whoever grows after that is
        listed again for the next time.
        """
        self._take_grown()
        changed, self._unsynced = self._unsynced, {}
        for number, queue in enumerate(changed):
            if number % SLICE_QUEUES == 0:
                yield
            if queue.is_fresh:  # it came after this began; nothing of it can be synced yet
                self._unsynced[queue] = None
                continue
            files = self._files.get(queue)
            if files is None or (files.synced_end == queue.end and not files.tail_changed):
                continue
            ends.append((files, queue.end))
            end = queue.end_position if files.tail_changed else queue.end * ENTRY_BYTES
            files.tail_changed = False
            ranges.extend(self._ranges(queue, files, files.synced_end * ENTRY_BYTES, end))

    def take_renamed(self) -> set[str]:
        """Directories whose names must be synced, too."""
        directories, self._renamed = self._renamed, set()
        return directories

    def synced(self, ends: list[tuple[QueueFiles, int]]) -> None:
        """Note what a sync has covered."""
        for files, end in ends:
            files.synced_end = end

    def close(self) -> None:
        """Let go of every map."""
        for queue, files in self._files.items():
            while files.files:
                queue.drop_last()
                files.files.pop().close()

    def distrust_names(self) -> None:
        """Any name may be known to the page cache only: the next sync covers them all."""
        self._renamed.add(DIRECTORY)
        for topic in self._disk.directories(DIRECTORY):
            self._renamed.add(f"{DIRECTORY}/{topic}")
            for number in self._disk.directories(f"{DIRECTORY}/{topic}"):
                self._renamed.add(f"{DIRECTORY}/{topic}/{number}")

    def mark_unsynced(self, queue: Queue, queue_offset: int) -> None:
        """Entries from `queue_offset` on may be known to the page cache only."""
        self._files[queue].synced_end = queue_offset

    def _load_queue(self, topic: str, queue_id: int) -> None:
        directory = f"{DIRECTORY}/{topic}/{queue_id}"
        positions = positions_in(
            self._disk,
            directory,
            self._file_bytes,
            forgive_empty=True,
            behind_hole=self.behind_holes,
        )
        if not positions:
            return
        queue = self.obtain(topic, queue_id)
        for position in positions:
            path = f"{directory}/{file_name(position)}"
            self._check_maps()
            self._take(queue, self._disk.mapped(path, self._file_bytes), position)

    def _make_first(self, queue: Queue, end: int, count: int) -> bool:
        """Give a queue its first file, now or soon; whether `count` fit in until then."""
        if queue not in self._files:
            raise StoreError(f"topic {queue.topic.decode()} was deleted")
        if not queue.is_fresh and (end or count > KEPT_MAX or not self.on_fresh(queue)):
            self._begin(queue, end)
        elif end + count > queue.reserved_end:
            self.make_now(queue)
        return end + count <= queue.reserved_end

    def _begin(self, queue: Queue, queue_offset: int) -> None:
        """Make the first file of a queue; entries before `queue_offset` are padded."""
        entries_per_file = self._file_bytes // ENTRY_BYTES
        first = queue_offset - queue_offset % entries_per_file
        self._add_file(queue, first * ENTRY_BYTES)
        queue.end = queue.reserved_end = self._files[queue].synced_end = first
        while queue.end < queue_offset:
            self.make_room(queue)
            stop = min(queue.reserved_end, queue_offset)
            queue.pad(queue.end, stop)
            queue.end = stop
        queue.min_offset = queue_offset

    def _add_file(self, queue: Queue, position: int) -> None:
        directory = self._files[queue].directory
        if not queue.file_count:
            self._disk.make_directory(directory)
            self._name_new(directory)
        path = f"{directory}/{file_name(position)}"
        self._check_maps()
        file = self._disk.mapped(path, self._file_bytes, create=True)
        self._renamed.add(directory)
        self._take(queue, file, position)

    def _name_new(self, directory: str) -> None:
        self._renamed.update((DIRECTORY, directory.rpartition("/")[0], directory))

    def _check_maps(self) -> None:
        if self._disk.maps_left <= 0:
            raise StoreError(
                f"{len(self._files)} queues are as many files as this process may map; raise"
                " vm.max_map_count (sysctl -w vm.max_map_count=262144) and restart the broker"
            )

    def _take_grown(self) -> list[Queue]:
        grown = self._tally.take_grown()
        self._unsynced.update(dict.fromkeys(grown))
        return grown

    def _take(self, queue: Queue, file: MappedFile, position: int) -> None:
        queue.add(position, file.buffer)
        files = self._files[queue]
        files.files.append(file)
        files.has_asked = False
        files.ready_end = 0

    def _write_by_calls(self, queue: Queue, file: MappedFile) -> None:
        """Let a long queue write into its last file by calls, in the place of the idlest one."""
        self._by_calls.pop(queue, None)
        if file is not self._files[queue].files[-1]:
            return
        if not queue.writes_by_calls:
            try:
                queue.write_by(file.open_descriptor())
            except OSError:  # too many are open; the map does
                return
        self._by_calls[queue] = None
        if len(self._by_calls) > BY_CALLS_MAX:
            idlest = next(iter(self._by_calls))
            del self._by_calls[idlest]
            idlest.write_by(-1)

    def _drop_last(self, queue: Queue, files: QueueFiles) -> None:
        queue.drop_last()
        file = files.files.pop()
        file.close()
        self._disk.remove(file.path)
        self._renamed.add(files.directory)

    def _ranges(self, queue: Queue, files: QueueFiles, first: int, end: int) -> Iterator[Range]:
        for i, file in enumerate(files.files):
            base = queue.first_position + i * self._file_bytes
            start, stop = max(first - base, 0), min(end - base, self._file_bytes)
            if start < stop:
                yield file, start, stop


def may_number(log: Log, queue_offset: int) -> bool:
    """Whether so many messages may ever have been in a log; else the number is damaged."""
    return 0 <= queue_offset <= log.end_position // RECORD_BYTES_MIN


def is_queue_number(name: str) -> bool:
    """Whether a directory's name is that of a queue, as Apache's broker reads it."""
    return name.isascii() and name.isdigit() and int(name) <= QUEUE_ID_MAX


def _nobody_makes(_queue: Queue) -> bool:
    """Before the store is put together: files are made at once."""
    return False


def _nobody_asked(_queue: Queue, _file: MappedFile, _first: int, _end: int) -> None:
    """Before the store is put together."""
