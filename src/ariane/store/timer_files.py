"""The files of the timer wheel together: the wheel, the timer log, and the check.

The wheel is mostly holes, so its blocks are given to it a chunk at a time, as slots come into use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ariane.disk import Disk, MappedFile
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.clockwork import Clockwork
from ariane.store.flush import may_try_again
from ariane.store.timer_check import TimerCheckFile
from ariane.store.timer_log import DIRECTORY, TimerLogFiles
from ariane.store.timer_wheel import SLOT_BYTES
from ariane.store.wheel import Wheel, wheel_chunk_bytes

WHEEL_PATH: Final = "timerwheel"


class TimerFiles:
    """Mapped once `open_wheel` and `check.open` were called; room for the wheel comes from here."""

    def __init__(
        self, disk: Disk, *, slot_count: int, precision_ms: int, log_file_bytes: int
    ) -> None:
        self.slot_count = slot_count
        self.precision_ms = precision_ms
        self.log = TimerLogFiles(disk, log_file_bytes)
        self.check = TimerCheckFile(disk)
        self._disk = disk
        self._file: MappedFile | None = None
        self._wheel: Wheel | None = None
        self._root_changed = False

    @property
    def wheel(self) -> Wheel:
        """The slots."""
        assert self._wheel is not None
        return self._wheel

    def wheel_fault(self) -> str | None:
        """Why the wheel that lies there cannot be used; None if it can."""
        size = dict(self._disk.names("")).get(WHEEL_PATH)
        if size == self.slot_count * SLOT_BYTES:
            return None
        return "there is no timerwheel" if size is None else f"timerwheel has {size} bytes"

    def open_wheel(self, *, anew: bool = False) -> None:
        """Map the wheel, an empty one if asked to; raises OSError."""
        self._close_wheel()
        if anew:
            self._disk.remove(WHEEL_PATH)
            self._root_changed = True
        size = self.slot_count * SLOT_BYTES
        self._file = self._disk.mapped(WHEEL_PATH, size, create=anew)
        self._wheel = Wheel(self._file.buffer, self.slot_count, self.precision_ms)

    def begin_anew(self) -> None:
        """Empty wheel and timer log, whatever they were."""
        self.log.close()
        self.log.clear()
        self.open_wheel(anew=True)

    def clockwork(
        self, log: Log, queue: Queue, *, window_slots: int, read_ms: int, next_offset: int
    ) -> Clockwork:
        """The wheel, ready to work."""
        return Clockwork(
            log,
            queue,
            self.wheel,
            self.log.units,
            window_slots=window_slots,
            read_ms=read_ms,
            next_offset=next_offset,
        )

    def add_unit_file(self) -> None:
        """Begin the next file of the timer log."""
        self.log.add_file()

    def reserve_units(self) -> None:
        """Give the timer log more blocks."""
        self.log.reserve()

    def reserve_slots(self, chunk: int) -> None:
        """Give a chunk of the wheel its blocks."""
        assert self._file is not None
        first = chunk * wheel_chunk_bytes
        self._file.reserve(first, min(first + wheel_chunk_bytes, self._file.size))
        self.wheel.chunk_reserved(chunk)

    def reserve_all_slots(self) -> None:
        """Give the whole wheel its blocks, since any slot may be written to."""
        assert self._file is not None
        for chunk in range(-(-self._file.size // wheel_chunk_bytes)):
            self.reserve_slots(chunk)

    def distrust_names(self) -> None:
        """Any name may be known to the page cache only: the next sync covers them all."""
        self.log.names_changed = self.check.is_new = self._root_changed = True

    def sync_job(self, mark_failed: Callable[[], None]) -> Callable[[], int]:
        """What puts wheel and timer log on the platter, on any thread; up to where the log is."""
        assert self._file is not None
        ranges = [*self.log.unsynced(), (self._file, 0, self._file.size)]
        directories = {DIRECTORY} if self.log.names_changed else set()
        if self.check.is_new:
            directories.add("config")
        if directories or self._root_changed:
            directories.add("")
        self.log.names_changed = self.check.is_new = self._root_changed = False
        end, disk = self.log.units.end, self._disk

        def job() -> int:
            try:
                disk.sync_many(ranges, directories)
            except OSError as error:
                if not may_try_again(error):
                    mark_failed()
                raise
            return end

        return job

    def close(self) -> None:
        """Let go of every file."""
        self._close_wheel()
        self.log.close()
        self.check.close()

    def _close_wheel(self) -> None:
        if self._wheel is not None:
            self._wheel.release()
            self._wheel = None
        if self._file is not None:
            self._file.close()
            self._file = None
