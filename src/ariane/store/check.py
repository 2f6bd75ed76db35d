"""Checking a stopped store without changing it: is everything where the log says it is?

The log is the truth. It is walked from its first record to its last, each checked, and what it says
of queues and index must be what lies on disk. Files are mapped privately, so nothing written here
can reach them, and are let go of a stretch at a time: a store may be larger than the memory. Works
on Apache's stores as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ariane.config import StoreConfig
from ariane.disk import Disk, MappedFile
from ariane.kernel.dispatch import dispatch
from ariane.store import segments
from ariane.store.check_findings import Progress, Report, Subject
from ariane.store.check_index import IndexCheck
from ariane.store.check_queues import QueuesCheck
from ariane.store.damage import next_sound

WINDOW_BYTES: Final = 64 << 20  # of the log are in memory at a time, and the next on their way


def check(disk: Disk, config: StoreConfig, *, progress: Progress | None = None) -> Report:
    """Walk a stopped store; the sizes of segments and queue files are taken from the files."""
    subject = Subject(disk, config)
    positions = subject.positions(segments.DIRECTORY, subject.segment_bytes)
    subject.report.segment_count = len(positions)
    if positions:
        queues, index = QueuesCheck(subject), IndexCheck(subject)
        _LogCheck(subject, queues, index).walk(positions, progress or _tell_nobody)
        queues.compare()
        index.finish()
        _tell_of_a_kill(subject.report, queues, index)
    return subject.report


class _LogCheck:
    """Walks the log, which tells queues and index what they should hold."""

    def __init__(self, subject: Subject, queues: QueuesCheck, index: IndexCheck) -> None:
        self._subject = subject
        self._report = subject.report
        self._log = subject.log
        self._claimed = subject.claim.log_offset if subject.claim else 0
        self._queues = queues
        self._index = index
        self._files: list[MappedFile] = []

    def walk(self, positions: list[int], progress: Progress) -> None:
        """Check every record, one segment after the other."""
        log, report = self._log, self._report
        report.log_first = report.log_end = positions[0]
        total = len(positions) * log.file_bytes
        for position in positions:
            path = f"{segments.DIRECTORY}/{segments.file_name(position)}"
            file = self._subject.disk.mapped(path, log.file_bytes, private=True, read_ahead=True)
            self._files.append(file)
            log.add(position, file.buffer)
            log.begin_at(log.end_position)
            if report.log_end == position:  # else the records ended in a segment before
                self._walk_from(position, lambda walked: progress(walked, total))
            while (sound := self._next_sound(self._claimed)) is not None:
                report.problems.append(
                    f"the log is damaged from {report.log_end} to {sound}; what was there is lost"
                )
                self._walk_from(sound, lambda walked: progress(walked, total))
            progress(log.end_position - log.first_position, total)
        self._look_behind(positions)
        if self._claimed > report.log_end:
            report.problems.append(
                f"the checkpoint covers the log up to {self._claimed}, but its records end at"
                f" {report.log_end}"
            )

    def _walk_from(self, log_offset: int, progress: Callable[[int], None]) -> None:
        """Check the records of the newest segment from here on, a window at a time."""
        log, file = self._log, self._files[-1]
        base, at = log.end_position - log.file_bytes, log_offset
        while at < log.end_position:
            end = min(at - (at - base) % WINDOW_BYTES + WINDOW_BYTES, log.end_position)
            file.read_soon(end - base, end - base + WINDOW_BYTES)
            at, _, count = dispatch(
                log,
                at,
                end,
                check_crc=True,
                queue_of=self._queues.queue_of,
                make_room=self._queues.make_room,
                index_of=self._index.index_of,
                index_from=0,
            )
            self._report.record_count += count
            file.forget(0, end - base)
            if at < end:  # the records end here
                break
            if at < log.end_position:
                progress(at - log.first_position)
        self._report.log_end = at

    def _next_sound(self, limit: int) -> int | None:
        return next_sound(self._log, self._files, self._report.log_end, limit)

    def _look_behind(self, positions: list[int]) -> None:
        """The log must end in zeros, not in something that cannot be read."""
        log, report = self._log, self._report
        for file, base in zip(self._files, positions, strict=True):
            start = max(report.log_end, base)
            if start >= base + log.file_bytes or not any(file.buffer[start - base :][:8]):
                continue
            if self._is_cut_short():
                report.warnings.append(
                    f"the broker was killed while it wrote the record at log offset {start};"
                    " the next start removes it"
                )
                return
            report.problems.append(
                f"the record at log offset {start} is damaged; nothing from there on can be"
                f" read ({log.end_position - start} bytes)"
            )
            return

    def _is_cut_short(self) -> bool:
        """Whether the log ends in what a kill left of the last write, not in damage."""
        return (
            self._subject.was_killed
            and self._report.log_end >= self._claimed
            and self._next_sound(self._log.end_position) is None
        )


def _tell_of_a_kill(report: Report, queues: QueuesCheck, index: IndexCheck) -> None:
    """Of what a kill parted: records without their entries, entries without their records."""
    if queues.late_count or index.late_count:
        report.warnings.append(
            f"the broker was killed: {queues.late_count} queue entries and {index.late_count}"
            " keys of records in the log are not in their files; the next start adds them"
        )
    if queues.early_count:
        report.warnings.append(
            f"the broker was killed: {queues.early_count} queue entries are of records that it"
            " had not written yet; the next start removes them"
        )


def _tell_nobody(_walked_bytes: int, _log_bytes: int) -> None:
    """Nobody watches."""
