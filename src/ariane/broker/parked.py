"""Answers that wait: each leaves when what it waits for, a watermark, passes its log offset.

Appends are in order, so the answers wait in order too, and group commit needs nothing more: one
flush releases every answer it covers. What comes too late is told as such (the message is stored,
not yet safe), under the code of what it waited for; what can come no more is never told as success.

What waits is bounded, for a connection and in all: an answer beyond that is told as late at once,
which is true. A connection that closes takes its answers along; one whose peer only sends no more
is closed when it has had them (`Connection.ended`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.protocol.command import CommandDecoder
from ariane.protocol.limits import REPLY_HEADER_BYTES_MAX
from ariane.remoting.connection import Connection
from ariane.store.store import Store
from ariane.store.watermarks import Mark

CHECK_INTERVAL_S: Final = 0.1  # how exactly lateness is noticed
PARKED_BYTES_MAX: Final = 256 << 20
CONNECTION_BYTES_MAX: Final = 16 << 20
LATE_CODES: Final = {
    Mark.FLUSHED: ResponseCode.FLUSH_DISK_TIMEOUT,
    Mark.REPLICATED: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    Mark.COMMITTED: ResponseCode.SYSTEM_ERROR,  # clients take the two above for a success
}


class _Own:
    """What waits for one connection, oldest first; emptied when it closes."""

    __slots__ = ("byte_count", "connection", "frames")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: deque[bytes] = deque()
        self.byte_count = 0


_Waiting = tuple[int, float, _Own]  # the log offset it waits for, until when, whose it is


class Parked:
    """The answers not yet safe to give, oldest first."""

    def __init__(
        self,
        store: Store,
        timers: Timers,
        timeout_s: Callable[[], float],
        *,
        marks: tuple[Mark, ...] = (),  # what the answers wait for; what the mode calls safe
        bytes_max: int = PARKED_BYTES_MAX,
        connection_bytes_max: int = CONNECTION_BYTES_MAX,
    ) -> None:
        self._store = store
        self._timers = timers
        self._timeout_s = timeout_s
        self._marks = marks
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._monotonic_s = timers.clock.monotonic_s
        self._waiting: deque[_Waiting] = deque()
        self._owns: dict[Connection, _Own] = {}
        self._byte_count = 0
        self._check: Timer | None = None
        self._on_empty: list[Callable[[], None]] = []
        store.on_advance.append(self.release)

    def __len__(self) -> int:
        return sum(len(own.frames) for own in self._owns.values())

    def is_safe(self, log_offset: int) -> bool:
        """Whether what ends there in the log may be answered."""
        return self._reached() >= log_offset

    def park(self, connection: Connection, frames: bytes, after: int) -> None:
        """Send these answers when the log is safe up to `after`, or say that it was too late."""
        own = self._owns.get(connection)
        if own is None:
            if connection.is_closed:
                return
            own = self._owns[connection] = _Own(connection)
            connection.on_close.append(self._closed)
        own.byte_count += len(frames)
        self._byte_count += len(frames)
        connection.parked_bytes += len(frames)
        is_over = own.byte_count > self._connection_bytes_max or self._byte_count > self._bytes_max
        if is_over and not self.is_safe(after):
            own.byte_count -= len(frames)
            self._byte_count -= len(frames)
            connection.parked_bytes -= len(frames)
            _tell(connection, frames, self._late_code(after), "too many answers wait")
            return
        self._waiting.append((after, self._monotonic_s() + self._timeout_s(), own))
        own.frames.append(frames)
        if self._store.read_only_reason is not None:  # it failed already
            self.release()
        elif self._check is None:
            self._check = self._timers.after(CHECK_INTERVAL_S, self._answer_late)

    def release(self) -> None:
        """Give every answer that may now be given."""
        safe = self._reached()
        while self._waiting and self._waiting[0][0] <= safe:
            own = self._waiting.popleft()[2]
            if (frames := self._take(own)) is not None:
                own.connection.write(frames)
                own.connection.close_if_ended()
        reason = self._store.read_only_reason
        while self._waiting and reason is not None:  # nothing more will be safe
            own = self._waiting.popleft()[2]
            if (frames := self._take(own)) is not None:
                _tell(own.connection, frames, ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        self._tell_if_empty()

    def when_empty(self, callback: Callable[[], None]) -> None:
        """Call back once every answer has been given, whatever it was."""
        self._on_empty.append(callback)
        self._tell_if_empty()

    def _reached(self) -> int:
        marks = self._store.marks
        return marks.reached(self._marks) if self._marks else marks.safe

    def _late_code(self, after: int) -> ResponseCode:
        marks = self._store.marks
        return LATE_CODES[marks.late(self._marks or marks.policy.safe, after)]

    def _take(self, own: _Own) -> bytes | None:
        """The oldest answers of a connection, which wait no more; None when it has closed."""
        if not own.frames:
            return None
        frames = own.frames.popleft()
        own.byte_count -= len(frames)
        self._byte_count -= len(frames)
        own.connection.parked_bytes -= len(frames)
        return frames

    def _closed(self, connection: Connection) -> None:
        own = self._owns.pop(connection)
        while self._take(own) is not None:
            pass
        self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        if self._on_empty and not self._byte_count:
            callbacks, self._on_empty = self._on_empty, []
            for callback in callbacks:
                callback()

    def _answer_late(self) -> None:
        self._check = None
        self.release()
        now_s = self._monotonic_s()
        while self._waiting and self._waiting[0][1] <= now_s:
            after, _, own = self._waiting.popleft()
            if (frames := self._take(own)) is not None:
                _tell(own.connection, frames, self._late_code(after), None)
        if self._waiting:
            self._check = self._timers.after(CHECK_INTERVAL_S, self._answer_late)
        self._tell_if_empty()


def _tell(connection: Connection, frames: bytes, code: ResponseCode, remark: str | None) -> None:
    """Send the answers under another code."""
    decoder = CommandDecoder(scratch=bytearray(), header_bytes_max=REPLY_HEADER_BYTES_MAX)
    for answer in decoder.feed(frames):
        answer.code = code
        answer.remark = remark
        connection.send(answer)
    connection.close_if_ended()
