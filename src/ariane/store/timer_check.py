"""The `config/timercheck` file: RocketMQ's seven numbers, and behind them our own progress.

The numbers say what is on the platter: all slots before `read_ms` were delivered, units below
`log_position` hold every message of the timer queue below `queue_offset` that still waits. They
change about once a second, after everything they speak of was synced. Progress changes with every
turn and is never synced: after a kill it tells exactly what was delivered. It counts only together
with the very numbers it was written with, which Apache's broker changes, and only if the log is
still as long as it was, which it is not after a power cut.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import astuple, dataclass
from typing import Final

from ariane.disk import Disk, MappedFile

PATH: Final = "config/timercheck"
FILE_BYTES: Final = 4096
NUMBERS: Final = struct.Struct(">7q")
PROGRESS: Final = struct.Struct(">4sI6q")
CRC: Final = struct.Struct(">I")
PLACES: Final = (512, 1024)  # written in turn, so that a kill leaves one of them whole
PRECISION: Final = struct.Struct(">4sII")  # magic, precision, check
PRECISION_PLACE: Final = 1536
MAGIC: Final = b"ARTW"
VERSION: Final = 1
PRECISION_CHECK: Final = 0x5EC0FDE5


@dataclass(slots=True, frozen=True)
class TimerCheck:
    """What Apache's broker reads, and its slaves are told."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """As they lie in the file, and as GET_TIMER_CHECK_POINT answers."""
        return NUMBERS.pack(*astuple(self))


@dataclass(slots=True, frozen=True)
class Progress:
    """What has been delivered and taken in, as of the last turn."""

    precision_ms: int
    read_ms: int
    done_ms: int  # whatever was due by then, of the messages below `queue_offset`, was delivered
    queue_offset: int
    log_end: int  # it was true while the log was so long


class TimerCheckFile:
    """The mapped file; all methods but `sync` are for the loop's thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: MappedFile | None = None
        self._noted: Progress | None = None
        self._serial = 0
        self.is_new = False  # its name has to be synced
        self.check = TimerCheck()
        self.precision_ms: int | None = None  # the wheel's, if we wrote to it

    def load(self) -> tuple[TimerCheck | None, Progress | None]:
        """What the file says; nothing when it is missing or has another length."""
        if dict(self._disk.names("config")).get("timercheck") != FILE_BYTES:
            return None, None
        data = self._disk.read(PATH)
        self.check = TimerCheck(*NUMBERS.unpack_from(data))
        magic, precision_ms, crc = PRECISION.unpack_from(data, PRECISION_PLACE)
        if magic == MAGIC and crc == precision_ms ^ PRECISION_CHECK:
            self.precision_ms = precision_ms
        found = [pair for place in PLACES if (pair := _decode(data, place)) is not None]
        serial, progress = max(found, key=lambda pair: pair[0], default=(0, None))
        self._serial = serial
        return (None if self.check == TimerCheck() else self.check), progress

    def open(self) -> None:
        """Map the file, made if it is missing; or DiskFull."""
        if self._file is not None:
            return
        is_new = dict(self._disk.names("config")).get("timercheck") != FILE_BYTES
        if is_new:
            self._disk.make_directory("config")
        file = self._disk.mapped(PATH, FILE_BYTES, create=is_new)
        file.reserve(0, FILE_BYTES)
        self.is_new = self.is_new or is_new
        self._file = file

    def write(self, check: TimerCheck, progress: Progress) -> None:
        """Put other numbers in the file, and the progress that belongs to them."""
        assert self._file is not None
        self.check = check
        self._file.buffer[: NUMBERS.size] = check.encode()
        self._file.buffer[PRECISION_PLACE : PRECISION_PLACE + PRECISION.size] = PRECISION.pack(
            MAGIC, progress.precision_ms, progress.precision_ms ^ PRECISION_CHECK
        )
        self._noted = None
        self.note(progress)

    def note(self, progress: Progress) -> None:
        """Note how far things are."""
        assert self._file is not None
        if progress == self._noted:
            return
        self._noted = progress
        self._serial += 1
        head = PROGRESS.pack(MAGIC, VERSION, self._serial, *astuple(progress))
        block = head + CRC.pack(zlib.crc32(head, zlib.crc32(self.check.encode())))
        place = PLACES[self._serial % len(PLACES)]
        self._file.buffer[place : place + len(block)] = block

    def sync(self) -> None:
        """Return once the file is on the platter; any thread may call this."""
        assert self._file is not None
        self._file.sync(0, FILE_BYTES)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _decode(data: bytes, place: int) -> tuple[int, Progress] | None:
    head = data[place : place + PROGRESS.size]
    magic, version, serial, *numbers = PROGRESS.unpack(head)
    (crc,) = CRC.unpack_from(data, place + PROGRESS.size)
    if magic != MAGIC or version != VERSION:
        return None
    if crc != zlib.crc32(head, zlib.crc32(data[: NUMBERS.size])):
        return None
    return serial, Progress(*numbers)
