"""Finding the way past what is missing: bytes of the log that cannot be read, files of the index.

A record says itself where it lies, so the next one can be told from anything that looks like it.
Only what was once known to be on the platter is looked for: behind that, whatever follows a record
that is not whole was never acknowledged, and may be of an earlier life of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ariane.disk import MappedFile
from ariane.kernel.log import Log
from ariane.protocol.message import decode_records
from ariane.protocol.properties import KEYS, UNIQUE_KEY

MAGICS: Final = (struct.pack(">I", 0xDAA320A7), struct.pack(">I", 0xDAA320AB))
MAGIC_AT: Final = 4
CHUNK_BYTES: Final = 1 << 20
RECORDS_MAX: Final = 1000  # notes of the broker itself have no keys, and may follow each other


def next_sound(log: Log, files: Sequence[MappedFile], damaged: int, limit: int) -> int | None:
    """Where the first sound record behind `damaged` begins, if that is in front of `limit`."""
    at = damaged + 1
    end = min(limit, log.end_position)
    while at < end:
        base = at - (at - log.first_position) % log.file_bytes
        file = files[(base - log.first_position) // log.file_bytes]
        stop = min(at + CHUNK_BYTES, end, base + log.file_bytes)
        start = at + log.head_bytes - base
        chunk = bytes(file.buffer[start : start + stop - at + MAGIC_AT + len(MAGICS[0])])
        for candidate in _candidates(chunk, at, stop):
            found = log.next_record(candidate, log.end_position)
            if found is not None and found[0] == candidate + log.head_bytes:
                return candidate
        file.forget(at - base, stop - base)
        at = stop
    return None


def has_key_between(log: Log, first: int, end: int) -> bool:
    """Whether a record in [first, end) has a key, going by the first so many of them.

    `first` is where a record begins, or its head.
    """
    at = first
    for _ in range(RECORDS_MAX):
        found = log.next_record(at, log.end_position, check_crc=False)
        if found is None or found[0] - log.head_bytes >= end:
            return False
        log_offset, size = found
        if (record := log.record(log_offset, log.end_position)) is not None:
            properties = decode_records(record)[0].properties
            if properties.get(UNIQUE_KEY) or properties.get(KEYS):
                return True
        at = log_offset + size
    return False


def _candidates(chunk: bytes, at: int, stop: int) -> list[int]:
    """Where in [at, stop) a record might begin, going by its magic alone."""
    found = []
    for magic in MAGICS:
        position = chunk.find(magic, MAGIC_AT)
        while position >= 0:
            if at + position - MAGIC_AT < stop:
                found.append(at + position - MAGIC_AT)
            position = chunk.find(magic, position + 1)
    return sorted(found)
