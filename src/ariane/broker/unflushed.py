"""Answers that wait for the disk: each leaves when the flushed watermark passes its log offset.

Appends are in order, so the answers wait in order too, and group commit needs nothing more: one
flush releases every answer it covers. A flush that comes too late is told as such (the message is
stored, not yet safe); a flush that failed is never told as success.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ariane.broker.requests import Reply, Request
from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.store.store import Store

CHECK_INTERVAL_S: Final = 0.1  # how exactly a late flush is noticed


class _Waiting(NamedTuple):
    after: int
    deadline_s: float
    request: Request[Any]
    reply: Reply


class Unflushed:
    """The answers not yet safe to give, oldest first."""

    def __init__(self, store: Store, timers: Timers, timeout_s: Callable[[], float]) -> None:
        self._store = store
        self._timers = timers
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._check: Timer | None = None
        store.on_advance.append(self.release)

    def __len__(self) -> int:
        return len(self._waiting)

    def is_durable(self, log_offset: int) -> bool:
        """Whether everything before the log offset is on the disk."""
        return self._store.flushed >= log_offset

    def keep(self, request: Request[Any], reply: Reply) -> None:
        """Answer when the log is flushed up to `reply.after`, or say that it was too late."""
        assert reply.after is not None
        deadline_s = self._timers.clock.monotonic_s() + self._timeout_s()
        self._waiting.append(_Waiting(reply.after, deadline_s, request, reply))
        self._arm()

    def release(self) -> None:
        """Give every answer that may now be given."""
        flushed = self._store.flushed
        while self._waiting and self._waiting[0].after <= flushed:
            waiting = self._waiting.popleft()
            waiting.request.answer(waiting.reply)
        if self._store.read_only_reason is not None:
            self._give_up(self._store.read_only_reason)

    def _give_up(self, reason: str) -> None:
        """The store can flush no more: what waits may be lost, so none of it is a success."""
        while self._waiting:
            refusal = Reply.refusal(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
            self._waiting.popleft().request.answer(refusal)

    def _arm(self) -> None:
        if self._check is None:
            self._check = self._timers.after(CHECK_INTERVAL_S, self._answer_late)

    def _answer_late(self) -> None:
        self._check = None
        self.release()
        now_s = self._timers.clock.monotonic_s()
        while self._waiting and self._waiting[0].deadline_s <= now_s:
            waiting = self._waiting.popleft()
            waiting.request.answer(replace(waiting.reply, code=ResponseCode.FLUSH_DISK_TIMEOUT))
        if self._waiting:
            self._arm()
