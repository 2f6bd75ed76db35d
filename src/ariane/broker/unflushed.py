"""Answers that wait for the disk: each leaves when the flushed watermark passes its log offset.

Appends are in order, so the answers wait in order too, and group commit needs nothing more: one
flush releases every answer it covers. A flush that comes too late is told as such (the message is
stored, not yet safe); a flush that failed is never told as success.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.protocol.command import Command, CommandDecoder
from ariane.protocol.limits import REPLY_HEADER_BYTES_MAX
from ariane.remoting.connection import Connection
from ariane.store.store import Store

CHECK_INTERVAL_S: Final = 0.1  # how exactly a late flush is noticed


class _Waiting(NamedTuple):
    after: int
    deadline_s: float
    connection: Connection
    frames: bytes


class Unflushed:
    """The answers not yet safe to give, oldest first."""

    def __init__(self, store: Store, timers: Timers, timeout_s: Callable[[], float]) -> None:
        self._store = store
        self._timers = timers
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._check: Timer | None = None
        self._on_empty: list[Callable[[], None]] = []
        store.on_advance.append(self.release)

    def __len__(self) -> int:
        return len(self._waiting)

    def is_durable(self, log_offset: int) -> bool:
        """Whether everything before the log offset is on the disk."""
        return self._store.flushed >= log_offset

    def park(self, connection: Connection, frames: bytes, after: int) -> None:
        """Send these answers when the log is flushed up to `after`, or say that it was too late."""
        deadline_s = self._timers.clock.monotonic_s() + self._timeout_s()
        self._waiting.append(_Waiting(after, deadline_s, connection, frames))
        if self._store.read_only_reason is not None:  # it failed already
            self.release()
        else:
            self._arm()

    def release(self) -> None:
        """Give every answer that may now be given."""
        flushed = self._store.flushed
        while self._waiting and self._waiting[0].after <= flushed:
            waiting = self._waiting.popleft()
            waiting.connection.write(waiting.frames)
        reason = self._store.read_only_reason
        while self._waiting and reason is not None:  # no flush will come: none of it is a success
            self._tell(self._waiting.popleft(), ResponseCode.SERVICE_NOT_AVAILABLE, reason)

        self._tell_if_empty()

    def when_empty(self, callback: Callable[[], None]) -> None:
        """Call back once every answer has been given, whatever it was."""
        self._on_empty.append(callback)
        self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        if not self._waiting and self._on_empty:
            callbacks, self._on_empty = self._on_empty, []
            for callback in callbacks:
                callback()

    def _arm(self) -> None:
        if self._check is None:
            self._check = self._timers.after(CHECK_INTERVAL_S, self._answer_late)

    def _answer_late(self) -> None:
        self._check = None
        self.release()
        now_s = self._timers.clock.monotonic_s()
        while self._waiting and self._waiting[0].deadline_s <= now_s:
            self._tell(self._waiting.popleft(), ResponseCode.FLUSH_DISK_TIMEOUT, None)
        if self._waiting:
            self._arm()
        self._tell_if_empty()

    def _tell(self, waiting: _Waiting, code: ResponseCode, remark: str | None) -> None:
        """Send the answers under another code."""
        for answer in _answers_in(waiting.frames):
            answer.code = code
            answer.remark = remark
            waiting.connection.send(answer)


def _answers_in(frames: bytes) -> list[Command]:
    decoder = CommandDecoder(scratch=bytearray(), header_bytes_max=REPLY_HEADER_BYTES_MAX)
    return decoder.feed(frames)
