"""Finding the way in a log past bytes that cannot be read any more.

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

MAGICS: Final = (struct.pack(">I", 0xDAA320A7), struct.pack(">I", 0xDAA320AB))
MAGIC_AT: Final = 4
CHUNK_BYTES: Final = 1 << 20


def next_sound(log: Log, files: Sequence[MappedFile], damaged: int, limit: int) -> int | None:
    """Where the first sound record behind `damaged` begins, if that is in front of `limit`."""
    at = damaged + 1
    end = min(limit, log.end_position)
    while at < end:
        base = at - (at - log.first_position) % log.file_bytes
        file = files[(base - log.first_position) // log.file_bytes]
        stop = min(at + CHUNK_BYTES, end, base + log.file_bytes)
        chunk = bytes(file.buffer[at - base : stop - base + MAGIC_AT + len(MAGICS[0])])
        for candidate in _candidates(chunk, at, stop):
            if log.check(candidate, log.end_position) > 0:
                return candidate
        at = stop
    return None


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
