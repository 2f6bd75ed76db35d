"""Deleting a topic's queues without holding up the loop: all that syncs happens on a lane.

Everything of the topic is claimed by a checkpoint first: a start after a kill must find no record
to put into a queue that is half gone, nor read the whole log and bring back what was deleted
before. Then the claim gives up the topic's entries and the deletion is noted, and only then the
files go. A topic that grows meanwhile begins anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ariane.errors import StoreError, StoreReadOnly
from ariane.kernel.log import Log
from ariane.store.background import Lane
from ariane.store.deletions import Deletions
from ariane.store.flush import may_try_again
from ariane.store.keeping import Keeper
from ariane.store.making import Making
from ariane.store.queues import Queues

ROUNDS_MAX: Final = 10

Done = Callable[[Exception | None], None]


def raised(fault: Exception | None) -> None:
    """Raise what kept a topic from being deleted: for stores whose lanes run jobs at once."""
    if fault is not None:
        raise fault


class TopicDeletion:
    """Deletes one topic after the other."""

    def __init__(
        self,
        *,
        log: Log,
        queues: Queues,
        deletions: Deletions,
        keeper: Keeper,
        preparing: Lane,
        making: Making,
        checkpoint: Callable[[], None],
        fail: Callable[[str], None],
        refusal: Callable[[], str | None],
    ) -> None:
        self._log = log
        self._queues = queues
        self._deletions = deletions
        self._keeper = keeper
        self._preparing = preparing
        self._making = making
        self._checkpoint = checkpoint
        self._fail = fail
        self._refusal = refusal
        self._waiting: deque[tuple[str, Done]] = deque()
        self._rounds = 0
        self._is_at_work = False
        keeper.on_idle = self._go_on

    def add(self, topic: str, done: Done) -> None:
        """Delete a topic when those before it are gone."""
        self._waiting.append((topic, done))
        self._go_on()

    def failed(self) -> None:
        """The store takes no more checkpoints: whoever waits for one is told."""
        self._go_on()

    def _go_on(self) -> None:
        """Bring the first topic a step further, unless a step is under way."""
        if self._is_at_work or not self._waiting:
            return
        if (reason := self._refusal()) is not None:
            self._end(StoreReadOnly(reason))
        elif self._keeper.is_busy:
            return  # it calls when it is not
        elif not self._is_claimed():
            self._rounds += 1
            if self._rounds > ROUNDS_MAX:
                reason = self._keeper.obstacle or "it is being written to"
                self._end(StoreError(f"topic {self._waiting[0][0]}: {reason}"))
            else:
                self._checkpoint()
        else:
            self._note()

    def _is_claimed(self) -> bool:
        """Whether the newest checkpoint covers all there is of the topic."""
        topic, claimed = self._waiting[0][0], self._keeper.claimed
        for queue_id, end in self._queues.ends_of(topic).items():
            entry = self._queues.obtain(topic, queue_id).entry(end - 1) if end else None
            if entry is not None and entry[0] >= claimed:
                return False
        return claimed >= 0

    def _note(self) -> None:
        topic = self._waiting[0][0]
        ends = self._queues.ends_of(topic)
        log_end, log_start = self._log.end, self._log.first_position
        self._is_at_work = True
        self._keeper.before_deleting_queues(
            topic,
            lambda: self._deletions.note(topic, log_end, log_start),
            lambda error: self._noted(topic, ends, error),
        )

    def _noted(self, topic: str, ends: dict[int, int], error: Exception | None) -> None:
        if error is None and self._queues.ends_of(topic) != ends:
            self._is_at_work = False
            self._go_on()
            return
        if error is None:
            self._preparing.wait()  # it may have a queue's next file in hand
            try:
                self._making.hold(lambda: self._queues.delete_topic(topic))
            except OSError as fault:
                error = fault
        elif isinstance(error, OSError) and may_try_again(error):  # nothing was removed
            error = StoreError(f"topic {topic} cannot be deleted at present: {error}")
        if isinstance(error, OSError):
            self._fail(f"deleting the queues of {topic} failed: {error}")
            refusal = StoreReadOnly(str(self._refusal()))
            refusal.__cause__ = error
            error = refusal
        if error is None:
            self._checkpoint()
        self._end(error)

    def _end(self, fault: Exception | None) -> None:
        _, done = self._waiting.popleft()
        self._rounds = 0
        self._is_at_work = False
        try:
            done(fault)
        finally:
            self._go_on()
