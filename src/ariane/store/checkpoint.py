"""The `checkpoint` file: RocketMQ's five numbers, and behind them our own claim.

Apache's recovery after a kill reads the times and starts three seconds before the earlier of the
first two. Ours starts at the claim: the log offset up to which log, queues and index are on the
platter, with counts that tell whether they are all still there. A claim holds only together with
the very times it was written with, so when Apache's broker has used the store in between, which
changes the times and knows nothing of claims, it counts no more. Two places take turns and the
times are written last, so one claim holds whenever the power fails.

Invariant: neither a time nor a claim ever says more than what has been synced.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from ariane.disk import Disk, MappedFile

PATH: Final = "checkpoint"
ABORT_PATH: Final = "abort"  # there while a broker runs, and after it was killed
FILE_BYTES: Final = 4096
TIMES: Final = struct.Struct(">qqqqq")
CLAIM: Final = struct.Struct(">4sI qqqqqq qqq")
CLAIM_CRC: Final = struct.Struct(">I")
CLAIM_PLACES: Final = (1024, 2048)
CLAIM_MAGIC: Final = b"ARCL"
CLAIM_VERSION: Final = 1


@dataclass(slots=True, frozen=True)
class Claim:
    """What was synced: everything the log holds below `log_offset`, and its entries."""

    log_offset: int
    queue_count: int
    queue_entries: int  # the sum of all queues' ends
    index_name: int  # the newest index file, 0 for none
    index_next: int  # and the entry it would write next
    sequence: int = 0


@dataclass(slots=True, frozen=True)
class Checkpoint:
    """The file's content; `claim` is None where none holds."""

    log_ms: int = 0  # store time of the last synced record
    queues_ms: int = 0  # every record up to then is in its queue and, as far as needed, indexed
    index_ms: int = 0  # end of the last full and synced index file
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    claim: Claim | None = None

    @property
    def recover_from_ms(self) -> int:
        """RocketMQ's rule: nothing stored before this needs to be looked at."""
        return max(0, min(self.log_ms, self.queues_ms) - 3000)


class CheckpointFile:
    """The mapped file; written by one thread at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: MappedFile | None = None

    def load(self) -> Checkpoint:
        """What the file says; nothing at all when it is missing or has another length."""
        if dict(self._disk.names("")).get(PATH) != FILE_BYTES:
            return Checkpoint()
        return decode(self._disk.read(PATH))

    def save(self, checkpoint: Checkpoint) -> None:
        """Put the claim, then the times, on the platter; raises OSError or DiskFull.

        Without a claim the times go first and whatever was claimed before is taken back.
        """
        file = self._map()
        times = TIMES.pack(
            checkpoint.log_ms,
            checkpoint.queues_ms,
            checkpoint.index_ms,
            checkpoint.master_flushed_offset,
            checkpoint.confirm_offset,
        )
        if checkpoint.claim is not None:
            sequence = max(_sequence(file.buffer, place) for place in CLAIM_PLACES) + 1
            place = _place_for_next(bytes(file.buffer))
            claim = _encode_claim(checkpoint.claim, sequence, times)
            file.buffer[place : place + len(claim)] = claim
            file.sync(0, FILE_BYTES)
        file.buffer[: len(times)] = times
        file.sync(0, FILE_BYTES)
        if checkpoint.claim is None:
            file.buffer[CLAIM_PLACES[0] :] = bytes(FILE_BYTES - CLAIM_PLACES[0])
            file.sync(0, FILE_BYTES)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _map(self) -> MappedFile:
        if self._file is None:
            is_new = dict(self._disk.names("")).get(PATH) != FILE_BYTES
            file = self._disk.mapped(PATH, FILE_BYTES, create=is_new)
            file.reserve(0, FILE_BYTES)
            if is_new:
                self._disk.sync_directory("")
            self._file = file
        return self._file


def decode(data: bytes) -> Checkpoint:
    """Read the file's bytes."""
    claims = [claim for place in CLAIM_PLACES if (claim := _decode_claim(data, place)) is not None]
    newest = max(claims, key=lambda claim: claim.sequence, default=None)
    log_ms, queues_ms, index_ms, master_flushed_offset, confirm_offset = TIMES.unpack_from(data)
    return Checkpoint(log_ms, queues_ms, index_ms, master_flushed_offset, confirm_offset, newest)


def _encode_claim(claim: Claim, sequence: int, times: bytes) -> bytes:
    head = CLAIM.pack(
        CLAIM_MAGIC,
        CLAIM_VERSION,
        sequence,
        claim.log_offset,
        claim.queue_count,
        claim.queue_entries,
        claim.index_name,
        claim.index_next,
        *struct.unpack_from(">qqq", times),
    )
    return head + CLAIM_CRC.pack(zlib.crc32(head))


def _decode_claim(data: bytes, place: int) -> Claim | None:
    head = data[place : place + CLAIM.size]
    magic, version, sequence, *numbers = CLAIM.unpack(head)
    (crc,) = CLAIM_CRC.unpack_from(data, place + CLAIM.size)
    if magic != CLAIM_MAGIC or version != CLAIM_VERSION or crc != zlib.crc32(head):
        return None
    if tuple(numbers[5:8]) != struct.unpack_from(">qqq", data):
        return None
    log_offset, queue_count, queue_entries, index_name, index_next = numbers[:5]
    return Claim(log_offset, queue_count, queue_entries, index_name, index_next, sequence)


def _place_for_next(data: bytes) -> int:
    """Where no claim holds, or the older of two: a save that was cut short changes nothing."""
    claims = {place: _decode_claim(data, place) for place in CLAIM_PLACES}
    return min(claims, key=lambda place: -1 if (held := claims[place]) is None else held.sequence)


def _sequence(buffer: memoryview, place: int) -> int:
    magic, _, sequence = struct.unpack_from(">4sIq", buffer, place)
    return int(sequence) if magic == CLAIM_MAGIC else 0
