"""What a consumer holds of one queue between pulling messages and having consumed them.

Messages come in the order of their offsets and are finished in any order. The invariant: the
offset to commit never passes a message that is not finished, so that nothing is lost when this
consumer dies. A queue that is taken away is dropped: what is still being worked on ends as it
likes, but nothing of it counts any more. Time is told, never asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ariane.client.received import ReceivedMessage
from ariane.protocol.message_queue import MessageQueue

LOCK_VALID_S: Final = 30.0  # brokers keep a lock for 60 s; half of that is safe to count on


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one queue may wait to be consumed before pulling stops."""

    messages_max: int = 1000
    bytes_max: int = 100 << 20
    span_max: int = 2000  # offsets between the oldest unfinished message and the newest


class ProcessQueue:
    """One queue while it is this consumer's, from the offset `position` on."""

    __slots__ = (
        "_last_commit_offset",
        "_noticed_s",
        "_unfinished",
        "byte_count",
        "is_dropped",
        "is_locked",
        "locked_s",
        "message_count",
        "position",
        "progressed_s",
        "pulled_s",
        "queue",
    )

    def __init__(self, queue: MessageQueue, position: int, *, now_s: float) -> None:
        self.queue = queue
        self.position = position  # where the next pull starts
        self.message_count = 0  # not finished
        self.byte_count = 0
        self.is_dropped = False
        self.is_locked = False  # by the broker, for consumers that keep order
        self.locked_s = now_s
        self.pulled_s = now_s
        self.progressed_s = now_s
        self._last_commit_offset = position
        self._unfinished: deque[ReceivedMessage] = deque()  # finished ones behind an unfinished too
        self._noticed_s: dict[int, float] = {}  # offset -> since when a message is watched

    @property
    def commit_offset(self) -> int:
        """The lowest offset that is not finished."""
        return self._unfinished[0].queue_offset if self._unfinished else self.position

    @property
    def span(self) -> int:
        """How many offsets lie between the first unfinished message and the last one held."""
        if not self._unfinished:
            return 0
        return self._unfinished[-1].queue_offset - self._unfinished[0].queue_offset

    @property
    def head(self) -> ReceivedMessage | None:
        """The first message that is not finished."""
        return self._unfinished[0] if self._unfinished else None

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages that are not finished, in their order."""
        return iter([message for message in self._unfinished if not message.is_done])

    def put(
        self, messages: list[ReceivedMessage], next_position: int, *, now_s: float
    ) -> list[ReceivedMessage]:
        """Take what a pull from `position` brought; returns what is new.

        A broker never brings what lies below the position; should it, it would be counted twice.
        """
        self.pulled_s = now_s
        if self.is_dropped:
            return []
        if messages and messages[0].queue_offset < self.position:
            messages = [found for found in messages if found.queue_offset >= self.position]
        for message in messages:
            self.byte_count += message.size
        self.message_count += len(messages)
        self._unfinished.extend(messages)
        self.position = max(self.position, next_position)
        return messages

    def finish(self, message: ReceivedMessage) -> bool:
        """The message needs no more work; False when that was known, or nobody asks any more."""
        if message.is_done or self.is_dropped:
            return False
        message.is_done = True
        self.message_count -= 1
        self.byte_count -= message.size
        unfinished = self._unfinished
        if unfinished[0] is message:
            unfinished.popleft()
            while unfinished and unfinished[0].is_done:
                unfinished.popleft()
        return True

    def drop(self) -> int:
        """Let go of the queue; returns the offset up to which all is finished."""
        commit_offset = self.commit_offset
        self.is_dropped = True
        self.is_locked = False
        self._unfinished.clear()
        self._noticed_s.clear()
        self.message_count = self.byte_count = 0
        self.position = commit_offset
        return commit_offset

    def fullness(self, limits: Limits, *, may_span: bool = False) -> str | None:
        """Why nothing more should be pulled now, or None when there is room."""
        if self.message_count > limits.messages_max:
            return f"{self.message_count} messages wait, more than {limits.messages_max}"
        if self.byte_count > limits.bytes_max:
            return f"{self.byte_count} bytes wait, more than {limits.bytes_max}"
        if not may_span and self.span > limits.span_max:
            return f"the oldest message waits {self.span} offsets back, over {limits.span_max}"
        return None

    def stuck(
        self, *, now_s: float, timeout_s: float, waiting: bool = True
    ) -> list[ReceivedMessage]:
        """Messages that have been seen here for `timeout_s`: at work, or `waiting` for it too.

        A message is watched from the first call that finds it, so that taking and starting one
        costs no look at the clock.
        """
        noticed_s = {
            message.queue_offset: self._noticed_s.get(message.queue_offset, now_s)
            for message in self._unfinished
            if not message.is_done and (waiting or message.is_started)
        }
        self._noticed_s = noticed_s
        return [
            message
            for message in self._unfinished
            if now_s - noticed_s.get(message.queue_offset, now_s) >= timeout_s
        ]

    def extend(self, message: ReceivedMessage, *, now_s: float) -> None:
        """Watch the message as if it had come now."""
        if not message.is_done and not self.is_dropped:
            self._noticed_s[message.queue_offset] = now_s

    def watch(self, *, now_s: float) -> int:
        """The offset to commit, and a note of when it was last seen to have grown."""
        commit_offset = self.commit_offset
        if commit_offset != self._last_commit_offset:
            self._last_commit_offset = commit_offset
            self.progressed_s = now_s
        return commit_offset

    def lock(self, *, now_s: float) -> None:
        """The broker has given or renewed the lock."""
        self.is_locked = True
        self.locked_s = now_s

    def unlock(self) -> None:
        """The lock is somebody else's."""
        self.is_locked = False

    def has_lock(self, *, now_s: float) -> bool:
        """Whether nobody else can be working on the queue."""
        return self.is_locked and now_s - self.locked_s <= LOCK_VALID_S
