"""Checking the index: every key of the log must be in it, and every entry in its slot's chain.

Keys come from the log while it is walked, in log order, as they lie in the files; the two are
compared some hundred thousand at a time, so that neither is ever in memory whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Final

from ariane.disk import MappedFile
from ariane.kernel.index import Index, index_file_bytes
from ariane.store import indexes
from ariane.store.check_findings import EVERYTHING, PROBLEMS_PER_KIND_MAX, Subject
from ariane.store.comparing import Chains, Keys

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
STRETCH_BYTES: Final = ENTRY_BYTES << 17  # of a file, compared and let go of
GATHERED_MAX: Final = 1 << 18  # keys of the log; no record has as many


class IndexCheck:
    """The index files, read along as the log is walked."""

    def __init__(self, subject: Subject) -> None:
        config = subject.config
        self._subject = subject
        self._file_bytes = index_file_bytes(config.index_slot_count, config.index_entry_count)
        found = subject.disk.names(indexes.DIRECTORY) if config.index_enabled else []
        names = [name for name, size in found if self._is_usable(name, size, found[-1][0])]
        # Where nothing can be read of what is there, there is nothing to compare the keys with.
        self._may_compare = config.index_enabled and bool(names or not found)
        self._keys = Keys(self._stretches(names))
        self._gathered = _Gathered()
        self._missing_count = 0
        self.late_count = 0

    def index_of(self, key_count: int) -> Index | None:
        """What takes the keys of the log: a scratch index, emptied when it is full."""
        if not self._may_compare:
            return None
        if self._gathered.index.next + key_count > GATHERED_MAX:
            self._compare()
        return self._gathered.index

    def finish(self) -> None:
        """Compare what is left, and look at the rest of the files."""
        self._compare()
        self._keys.finish()
        self._subject.report.key_count = self._keys.count
        if self._missing_count > PROBLEMS_PER_KIND_MAX:
            self._subject.report.problems.append(
                f"the index lacks keys of {self._missing_count} records in all"
            )

    def _compare(self) -> None:
        for log_offset, key_count in self._keys.lacking(self._gathered.entries()):
            if log_offset >= self._subject.covered:
                self.late_count += key_count
                continue
            self._missing_count += 1
            if self._missing_count <= PROBLEMS_PER_KIND_MAX:
                self._subject.report.problems.append(
                    f"the index lacks keys of the record at log offset {log_offset}"
                )
        self._gathered.index.cut(1)

    def _is_usable(self, name: str, size: int, last: str) -> bool:
        """Whether a file can be read; why not is told."""
        path = f"{indexes.DIRECTORY}/{name}"
        if self._subject.is_unfinished(path, size, is_last=name == last):
            return False
        if size == self._file_bytes:
            self._subject.report.index_file_count += 1
            return True
        self._subject.report.problems.append(
            f"{path} has {size} bytes and should have {self._file_bytes}, by maxHashSlotNum and"
            " maxIndexNum; its keys were not looked at"
        )
        return False

    def _stretches(self, names: list[str]) -> Iterator[memoryview]:
        """The entries of all files, in order; each file's chains are looked at on the way."""
        for name in names:
            path = f"{indexes.DIRECTORY}/{name}"
            file = self._subject.disk.mapped(path, self._file_bytes, private=True, read_ahead=True)
            yield from self._stretches_of(file, has_slots=self._has_slots(name))

    def _stretches_of(self, file: MappedFile, *, has_slots: bool) -> Iterator[memoryview]:
        config = self._subject.config
        chains = Chains(config.index_slot_count)
        slots_end = HEADER_BYTES + config.index_slot_count * SLOT_BYTES
        index = Index(file.buffer, config.index_slot_count, config.index_entry_count)
        end = slots_end + index.next * ENTRY_BYTES
        astray: int | None = None  # the first byte that leads elsewhere
        for start in range(slots_end + ENTRY_BYTES, end, STRETCH_BYTES):
            stop = min(start + STRETCH_BYTES, end)
            file.read_soon(stop, min(stop + STRETCH_BYTES, end))
            stretch = file.buffer[start:stop]
            if (entry := chains.follow(stretch)) and astray is None:
                astray = slots_end + entry * ENTRY_BYTES
            yield stretch
            file.forget(start, stop)
        if has_slots:
            slot = chains.wrong_slot(file.buffer[HEADER_BYTES:slots_end])
            astray = HEADER_BYTES + slot * SLOT_BYTES if slot >= 0 else astray
        if astray is not None:
            self._subject.report.problems.append(
                f"{file.path}: slots or chains near byte {astray} do not lead to every entry"
            )

    def _has_slots(self, name: str) -> bool:
        """A kill takes the slots of files along that the last checkpoint did not find full."""
        claim = self._subject.claim
        return self._subject.covered == EVERYTHING or (
            claim is not None and name < indexes.file_name(claim.index_name)
        )


class _Gathered:
    """Keys of the log that wait to be compared, as entries of an index in memory."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, index_file_bytes(1, GATHERED_MAX))
        self.index = Index(self._memory, 1, GATHERED_MAX)

    def entries(self) -> memoryview:
        """What was gathered, in order."""
        first = HEADER_BYTES + SLOT_BYTES + ENTRY_BYTES
        return memoryview(self._memory)[first : first + (self.index.next - 1) * ENTRY_BYTES]
