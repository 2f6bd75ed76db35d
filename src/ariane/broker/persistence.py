"""Configuration files written behind the loop: whole, atomically, the newest content winning.

A table marks its `SavedFile` changed; its content is taken on the loop, where it is steady, and
encoded and written wherever `Saver` runs its jobs (a thread in a broker, at once in a test). While
one write of a file is under way further changes only mark it again, so a burst of changes costs two
writes. A write that fails leaves the file marked: it is tried again at the next change or `save`.

A table that may have many thousands of entries has a `JournaledFile`: changes are on disk as lines
of a journal, all those that wait in one write, and the whole table follows with the next `save`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

from ariane.broker.journal import JOURNAL_BYTES, Journal
from ariane.disk import Disk
from ariane.errors import ProtocolError, StoreError
from ariane.protocol import fastjson
from ariane.store import config_files

LOGGER: Final = logging.getLogger("ariane.broker")

Job = Callable[[], None]
WhenSaved = Callable[[Exception | None], None]  # told what went wrong, or None
Content = bytes | Callable[[], bytes]  # or how to encode what was taken, on whatever thread

FILE_BYTES_MAX: Final = 1 << 30
SMALL_BYTES: Final = 64 << 10  # of a file that is written whole in no time

S = TypeVar("S", bound=msgspec.Struct)


def load(disk: Disk, path: str, kind: type[S]) -> S | None:
    """What a configuration file or its backup holds; None when there is neither."""

    def decode(data: bytes) -> S:
        try:
            return fastjson.decode(data, kind, size_max=FILE_BYTES_MAX)
        except ProtocolError as error:
            raise ValueError(str(error)) from error

    return config_files.load(disk, path, decode)


def at_once(job: Job) -> None:
    """Run a job here and now: the saver of tests and of short-lived tools."""
    job()


class Saver:
    """Where files are written: `run` takes the job off the loop, `post` brings its end back.

    With `journal_of`, which is given the path of a table, changes of tables are written by line.
    """

    def __init__(
        self,
        write: Callable[[str, bytes], None],
        *,
        journal_of: Callable[[str], Journal] | None = None,
        run: Callable[[Job], object] = at_once,
        post: Callable[[Job], object] = at_once,
    ) -> None:
        self.write = write
        self.journal_of = journal_of
        self.run = run
        self.post = post

    def close(self) -> None:
        """Wait for what is being written; later jobs run on the caller's thread."""
        self.run = self.post = at_once


class ThreadSaver(Saver):
    """Writes on one thread of its own, and reports through the event loop's `post`."""

    def __init__(
        self,
        write: Callable[[str, bytes], None],
        journal_of: Callable[[str], Journal],
        post: Callable[[Job], object],
    ) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ariane-config")
        super().__init__(write, journal_of=journal_of, run=self._thread.submit, post=post)

    def close(self) -> None:
        """Wait for what is being written; later jobs run on the caller's thread."""
        self._thread.shutdown(wait=True)
        super().close()


class SavedFile:
    """One file that follows one table."""

    def __init__(self, path: str, encode: Callable[[], Content], saver: Saver) -> None:
        self.path = path
        self.saver = saver
        self.generation = 0  # how often the table has changed
        self.saved_generation = 0  # the last that is on disk
        self._encode = encode
        self._is_writing = False
        self._waiting: list[WhenSaved] = []  # for the next write
        self._in_flight: list[WhenSaved] = []  # for the one under way
        self._written_generation = 0  # of the write under way or just ended
        self.barrier: Callable[[Job], None] = at_once  # runs a write once it may be seen

    def mark(self) -> None:
        """Note that the table has changed; somebody will call `save` in time."""
        self.generation += 1

    def changed(self) -> None:
        """Note that the table has changed, and write it as soon as may be."""
        self.mark()
        self.save()

    def save(self) -> None:
        """Write the table if it has changed since it was last written."""
        if not self._is_writing and self.generation != self.saved_generation:
            self._write_whole()

    def save_now(self) -> None:
        """Write the table whatever was under way: the last save, once the saver is closed."""
        self._is_writing = False
        self.barrier = at_once
        self._waiting = self._in_flight + self._waiting
        self.save()

    def when_saved(self, callback: WhenSaved) -> None:
        """Call back once everything so far is on disk, or could not be put there."""
        if self.generation == self.saved_generation:
            callback(None)
        elif self._is_writing and self._written_generation == self.generation:
            self._in_flight.append(callback)
        else:
            self._waiting.append(callback)
            self._write_next()

    def _write_next(self) -> None:
        """Write what those who wait are waiting for."""
        self.save()

    def _write_whole(self) -> None:
        self._is_writing = True
        try:
            content = self._encode()
        except Exception as error:
            LOGGER.exception("configuration cannot be written down path=%s", self.path)
            self._in_flight, self._waiting = self._waiting, []
            self._written(error, self.generation)  # the next change is tried anew
            return
        self._begin(lambda: self._put_whole(content))

    def _put_whole(self, content: Content) -> None:
        self.saver.write(self.path, content if isinstance(content, bytes) else content())

    def _begin(self, put: Job) -> None:
        """Have something written that brings the disk up to this generation."""
        self._is_writing = True
        self._in_flight, self._waiting = self._waiting, []
        self._written_generation = generation = self.generation
        self.barrier(lambda: self._hand_over(put, generation))

    def _hand_over(self, put: Job, generation: int) -> None:
        self.saver.run(lambda: self._write(put, generation))

    def _write(self, put: Job, generation: int) -> None:
        fault: Exception | None = None
        try:
            put()
        except (OSError, StoreError) as error:
            fault = error
        except Exception as error:
            LOGGER.exception("configuration not saved path=%s", self.path)
            fault = error
        self.saver.post(lambda: self._written(fault, generation))

    def _written(self, fault: Exception | None, generation: int) -> None:
        self._is_writing = False
        if fault is None:
            self.saved_generation = max(generation, self.saved_generation)
        else:
            LOGGER.error("configuration not saved path=%s reason=%s", self.path, fault)
        told, self._in_flight = self._in_flight, []
        for callback in told:
            try:
                callback(fault)
            except Exception:  # the others wait too
                LOGGER.exception("callback of a saved file failed path=%s", self.path)
        if fault is None:
            self._write_next()


class JournaledFile(SavedFile):
    """A file that follows a table of many entries, and the journal of what it lacks.

    Invariant: the file and the lines of the journal together are the table as of the generation
    that counts as saved. A line that could not be written is followed by no other before the table
    has been written whole. Apache's broker knows no journal, so a small table has none: whoever
    takes over from a killed broker finds it as it was.
    """

    def __init__(self, path: str, encode: Callable[[], Content], saver: Saver) -> None:
        super().__init__(path, encode, saver)
        self._journal = None if saver.journal_of is None else saver.journal_of(path)
        self._lines: list[bytes] = []  # to be appended
        self._appended_bytes = 0
        self._is_in_step = True  # the journal may be continued
        self._whole_generation = 0  # the last that is in the file itself
        self._whole_bytes = 0

    def put(self, line: bytes) -> None:
        """Note a change of the table, and have it on disk as soon as may be."""
        self.mark()
        self._lines.append(line)
        self._write_next()

    def found_journal(self) -> None:
        """Note at the start that there are lines, written by somebody else."""
        self.mark()
        self._is_in_step = False

    def save(self) -> None:
        """Write the table whole, if it has changed since that was last done."""
        if not self._is_writing and self.generation != self._whole_generation:
            self._write_whole()

    def _write_next(self) -> None:
        if self._is_writing or self.generation == self.saved_generation:
            return
        lines = b"".join(self._lines)
        has_room = self._appended_bytes + len(lines) <= JOURNAL_BYTES
        is_small = self._whole_bytes <= SMALL_BYTES
        if (journal := self._journal) is None or is_small or not self._is_in_step or not has_room:
            self._write_whole()
            return
        self._lines.clear()
        self._appended_bytes += len(lines)
        self._begin(lambda: self._append(journal, lines))

    def _append(self, journal: Journal, lines: bytes) -> None:
        try:
            journal.append(lines)
        except BaseException:
            self._is_in_step = False
            raise

    def _write_whole(self) -> None:
        self._lines.clear()
        self._appended_bytes = 0
        self._is_in_step = False  # until it has been written
        super()._write_whole()

    def _put_whole(self, content: Content) -> None:
        """Lines that were appended before are all in this content, and those to come are not."""
        data = content if isinstance(content, bytes) else content()
        super()._put_whole(data)
        self._whole_bytes = len(data)
        self._whole_generation = self._written_generation
        if self._journal is not None:
            self._journal.clear()
            self._is_in_step = True
