"""How far each delay level has been delivered, kept in two files.

`config/delayOffset.json` is Apache's: level -> the first queue offset not delivered yet. It is
written every ten seconds, and says only what the flush of the log has covered: deliveries that a
power cut undoes must be made again, for the waiting message may have been safe for hours.

`config/delayProgress` is ours, a mapped file that the kernel writes after each delivery
(`store/deliveries.pyx`), so that a killed broker delivers nothing twice. A note there counts only
if the log still reaches what it was noted with; otherwise the first file does.

A level's queue is delivered from front to back, as its messages come due in that order. Not so when
the level was given a shorter delay by a restart: what waits from before is due after what comes in
now. So the queue is cut where due times step back, and each run of it is delivered on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ariane.broker import pretty
from ariane.broker.persistence import SavedFile, Saver, load
from ariane.broker.tables import next_version
from ariane.clock import Clock
from ariane.disk import Disk, MappedFile
from ariane.protocol.bodies import DataVersion, DelayOffsets
from ariane.store.delays import LEVELS_MAX, delays_ms_of
from ariane.store.deliveries import Slots, descents
from ariane.store.store import Store
from ariane.topics import SCHEDULE_TOPIC

OFFSETS_PATH: Final = "config/delayOffset.json"
SLOTS_PATH: Final = "config/delayProgress"
SLOTS_BYTES: Final = 64  # each
RUNS_MAX: Final = 4  # of a level
OPEN: Final = (1 << 63) - 1  # the end of a level's last run

Range = tuple[int, int]


@dataclass(slots=True)
class Run:
    """A stretch of a level's queue: [next, end) is left to deliver."""

    slot: int
    next: int
    end: int


class DelayProgress:
    """Level -> its runs."""

    def __init__(self, clock: Clock, saver: Saver, store: Store) -> None:
        self.version = DataVersion(timestamp=clock.wall_ms())
        self.runs: dict[int, list[Run]] = {}
        self.file = SavedFile(OFFSETS_PATH, self._encode, saver)
        self._clock = clock
        self._store = store
        self._safe: dict[int, int] = {}  # level -> offset, as far as the flush has covered
        self._unsafe: tuple[int, dict[int, int]] | None = None  # until the log is flushed so far
        self._mapped: MappedFile | None = None
        self._slots: Slots | None = None

    @property
    def slots(self) -> Slots:
        """The kernel's door to the mapped file, once loaded."""
        assert self._slots is not None, "progress has not been loaded"
        return self._slots

    def load(self, disk: Disk) -> None:
        """Find out what is left to deliver; raises CorruptFile, DiskFull or OSError."""
        saved = load(disk, OFFSETS_PATH, DelayOffsets)
        if saved is not None:
            self.version = saved.data_version
        self._map(disk)
        found = self._store.topics().get(SCHEDULE_TOPIC, [])  # maybe of a longer table than now
        wanted = range(1, len(delays_ms_of(self._store.config.delay_levels)) + 1)
        for level in sorted({*wanted, *(queue_id + 1 for queue_id in found)}):
            if level <= LEVELS_MAX:
                self._load_level(level, saved.offsets.get(level, 0) if saved else 0)
        assert self._mapped is not None
        self._mapped.sync(0, self._mapped.size)  # what it said before must not come back
        self._safe = self.offsets()

    def offsets(self) -> dict[int, int]:
        """Level -> the first offset not delivered, for the levels that ever had a message."""
        return {
            level: self.runs[level][0].next
            for level in self.runs
            if self._store.queue(SCHEDULE_TOPIC, level - 1).end
        }

    def advanced(self, run: Run, next_offset: int) -> None:
        """A message was delivered, or given up, and the log has its copy."""
        run.next = next_offset
        self.slots.note(run.slot, next_offset, run.end, self._store.written)

    def drop_finished(self, level: int) -> None:
        """Forget runs that have nothing left."""
        runs = self.runs[level]
        while runs[0].next >= runs[0].end:
            runs.pop(0)

    def observe(self) -> None:
        """Let what the flush of the log has covered become what is saved; called now and then."""
        if self._unsafe is None:
            offsets = self.offsets()
            if offsets != self._safe:
                self._unsafe = (self._store.written, offsets)
        elif self._store.flushed >= self._unsafe[0]:
            self._safe, self._unsafe = self._unsafe[1], None
            self.version = next_version(self.version, self._clock)
            self.file.mark()

    def save_now(self) -> None:
        """Write everything for the last time; waits for the log to be flushed."""
        self._store.flush_now()
        for _ in range(3):  # a look that was waiting for the flush, a new look, and its end
            self.observe()
        self.file.save_now()

    def close(self) -> None:
        """Let go of the mapped file."""
        if self._slots is not None and self._mapped is not None:
            self._slots.release()
            self._mapped.close()
            self._slots = self._mapped = None

    def table(self) -> DelayOffsets:
        """Everything, as it is shown."""
        return DelayOffsets(data_version=self.version, offsets=self.offsets())

    def _map(self, disk: Disk) -> None:
        size = LEVELS_MAX * RUNS_MAX * SLOTS_BYTES
        found = dict(disk.names("config")).get("delayProgress")
        if found is not None and found != size:
            disk.remove(SLOTS_PATH)
            found = None
        disk.make_directory("config")
        self._mapped = disk.mapped(SLOTS_PATH, size, create=found is None)
        self._mapped.reserve(0, size)
        if found is None:
            disk.sync_directory("config")
        self._slots = Slots(self._mapped.buffer)

    def _load_level(self, level: int, saved: int) -> None:
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        log_end = self._store.written
        slots = range((level - 1) * RUNS_MAX, level * RUNS_MAX)
        noted = [self.slots.get(slot, log_end) for slot in slots]
        left = ranges_left(noted, saved, queue.min_offset, queue.end)
        steps = descents(queue, left[0][0], queue.end)
        cut = ranges_cut(left, steps)
        for slot, (first, end) in zip(slots, cut + [(0, 0)] * (RUNS_MAX - len(cut)), strict=True):
            self.slots.reset(slot, first, end, log_end)
        self.runs[level] = [
            Run(slot, first, end) for slot, (first, end) in zip(slots, cut, strict=False)
        ]

    def _encode(self) -> bytes:
        return pretty.document(
            dataVersion=pretty.member(self.version), offsetTable=pretty.numbers(self._safe)
        )


def ranges_left(
    noted: Sequence[Range | None], saved: int, queue_first: int, queue_end: int
) -> list[Range]:
    """What of a queue is left, by what was noted if all of it holds, else by what was saved.

    The last range is open. Apache's broker may have gone on where ours stopped, and saved more.
    """
    ranges = [(saved, OPEN)] if None in noted else [one for one in noted if one is not None]
    first = min(max(saved, queue_first), queue_end)
    left = [(max(start, first), end) for start, end in ranges if max(start, first) < end]
    if not left or left[-1][1] != OPEN or left[-1][0] > queue_end:
        left = [one for one in left if one[1] != OPEN] + [(queue_end, OPEN)]
    return left


def ranges_cut(ranges: Sequence[Range], steps: Sequence[int]) -> list[Range]:
    """The ranges cut at the offsets where due times step back, as far as there are places."""
    cut = list(ranges[: RUNS_MAX - 1])
    if len(ranges) > RUNS_MAX - 1:
        cut.append((ranges[RUNS_MAX - 1][0], OPEN))
    for step in steps:
        for i, (first, end) in enumerate(cut):
            if first < step < end and len(cut) < RUNS_MAX:
                cut[i : i + 1] = [(first, step), (step, end)]
                break
    return cut
