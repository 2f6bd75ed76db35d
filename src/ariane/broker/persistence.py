"""Configuration files written behind the loop: whole, atomically, the newest content winning.

A table marks its `SavedFile` changed; the content is encoded on the loop, where it is steady, and
written wherever `Saver` runs its jobs (a thread in a broker, at once in a test). While one write of
a file is under way further changes only mark it again, so a burst of changes costs two writes. A
write that fails leaves the file marked: it is tried again at the next change or `save`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import msgspec

from ariane.disk import Disk
from ariane.errors import ProtocolError, StoreError
from ariane.protocol import fastjson
from ariane.store import config_files

LOGGER: Final = logging.getLogger("ariane.broker")

Job = Callable[[], None]
WhenSaved = Callable[[Exception | None], None]  # told what went wrong, or None


FILE_BYTES_MAX: Final = 1 << 30

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
    """Where files are written: `run` takes the job off the loop, `post` brings its end back."""

    def __init__(
        self,
        write: Callable[[str, bytes], None],
        *,
        run: Callable[[Job], object] = at_once,
        post: Callable[[Job], object] = at_once,
    ) -> None:
        self.write = write
        self.run = run
        self.post = post

    def close(self) -> None:
        """Wait for what is being written; later jobs run on the caller's thread."""
        self.run = self.post = at_once


class ThreadSaver(Saver):
    """Writes on one thread of its own, and reports through the event loop's `post`."""

    def __init__(self, write: Callable[[str, bytes], None], post: Callable[[Job], object]) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ariane-config")
        super().__init__(write, run=self._thread.submit, post=post)

    def close(self) -> None:
        """Wait for what is being written; later jobs run on the caller's thread."""
        self._thread.shutdown(wait=True)
        super().close()


class SavedFile:
    """One file that follows one table."""

    def __init__(self, path: str, encode: Callable[[], bytes], saver: Saver) -> None:
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
        if self._is_writing or self.generation == self.saved_generation:
            return
        self._is_writing = True
        self._in_flight, self._waiting = self._waiting, []
        self._written_generation = generation = self.generation
        content = self._encode()
        self.barrier(partial(self._hand_over, content, generation))

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
            self.save()

    def _hand_over(self, content: bytes, generation: int) -> None:
        self.saver.run(lambda: self._write(content, generation))

    def _write(self, content: bytes, generation: int) -> None:
        fault: Exception | None = None
        try:
            self.saver.write(self.path, content)
        except (OSError, StoreError) as error:
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
            callback(fault)
        if fault is None:
            self.save()
