"""Appends through memory: records rest in a buffer until they are copied to their segment's file.

For disks where writing a mapped page may stall. What is only in the buffer is written but neither
visible nor safe from a kill: `copied` says how far the files have it. Buffers are given back
page by page as they are copied, so they cost what has not been copied yet.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

from ariane.disk import MappedFile
from ariane.kernel.log import Log


class _Buffer(NamedTuple):
    base: int  # the log offset its segment begins at
    file: MappedFile
    memory: mmap.mmap


class TransientPool:
    """The buffers between the log and its files, oldest first; the last one is written."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._buffers: list[_Buffer] = []
        self.copied = log.end

    def begin(self, file: MappedFile) -> None:
        """Write the newest segment through a fresh buffer."""
        base = self._log.end_position - self._log.file_bytes
        memory = mmap.mmap(-1, self._log.file_bytes)
        self._buffers.append(_Buffer(base, file, memory))
        self._log.stage(memory)

    def copy(self, end: int) -> int:
        """Copy everything below `end` to the files; returns `end`. For one thread at a time."""
        for buffer in list(self._buffers):
            first = max(self.copied - buffer.base, 0)
            stop = min(end - buffer.base, self._log.file_bytes)
            if first < stop:
                _copy(buffer, first, stop)
        return end

    def copied_to(self, end: int) -> None:
        """Note what has been copied, on the loop; buffers copied to their last byte are let go."""
        self.copied = end
        while len(self._buffers) > 1 and self._buffers[0].base + self._log.file_bytes <= end:
            self._buffers.pop(0)


def _copy(buffer: _Buffer, first: int, stop: int) -> None:
    with memoryview(buffer.memory) as memory, memory[first:stop] as data:
        buffer.file.write(first, data)
    begin, end = first - first % mmap.PAGESIZE, stop - stop % mmap.PAGESIZE
    if begin < end:
        buffer.memory.madvise(mmap.MADV_DONTNEED, begin, end - begin)
