"""Transactions: half messages, how they end, and who is asked when they do not.

`Ledger` knows which half messages are open, and `check_round` what is due for them; here are the
store they lie in, and the clock. A transaction that ends is noted in the operation queue, with
others, after a while; until then the committed message in the log is the only trace of it, and
recovery looks for that.

Progress is kept among the consume offsets. Those are written only once the log, as it was then, is
on the platter: progress ahead of the log would forget the half messages whose copies were lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from ariane.broker import half_messages, placing
from ariane.broker.check_backs import CheckBacks
from ariane.broker.half_messages import TRANSACTION_FLAGS, Identity, as_plain, is_half
from ariane.broker.state import BrokerState
from ariane.broker.transaction_checks import Fate, Ledger, Rules, check_round
from ariane.broker.transaction_notes import Notes
from ariane.broker.transaction_recovery import open_offset_of, record_of, recover
from ariane.clock import Timer
from ariane.codes import ResponseCode
from ariane.errors import RequestRejected, StoreError
from ariane.protocol.message import StoredMessage
from ariane.store.messages import NewMessage, Placed
from ariane.topics import DISCARD_TOPIC, HALF_TOPIC, OPERATION_TOPIC, TRANSACTION_GROUP

__all__ = ["TRANSACTION_FLAGS", "Transactions", "as_half", "as_plain", "is_half"]

LOGGER: Final = logging.getLogger("ariane.broker")

SLICE_S: Final = 0.003  # how long a round of checks holds the loop at a time
REFUSED_SILENT_S: Final = 10.0
HOUR_MS: Final = 3_600_000


def as_half(
    state: BrokerState, message: NewMessage, properties: Mapping[str, str], group: str
) -> NewMessage:
    """A message that begins a transaction, as it is stored; raises RequestRejected."""
    if state.config.rejects_transactions:
        raise RequestRejected(
            f"the broker[{state.store_host[0]}] sending transaction message is forbidden",
            ResponseCode.NO_PERMISSION,
        )
    placing.route(state, message)  # what could not be placed once committed is refused now
    return half_messages.half_of(message, properties, group)


class Transactions:
    """Everything about the half messages of one broker."""

    def __init__(self, state: BrokerState) -> None:
        self.ledger = Ledger()
        self._state = state
        self._adopted: dict[Identity, int] = {}  # copies of unknown origin, made by Apache's broker
        self._unnoted: list[int] = []  # found by recovery
        self._resumed: set[int] = set()  # log offsets of discarded messages
        self._notes = Notes(state, self._noted)
        self._round: Iterator[None] | None = None
        self._in_the_way: dict[int, str] = {}  # half messages the last round had to look past
        self._timers: dict[str, Timer] = {}
        self._refused_count = 0
        self._refused_silent_s = 0.0

    def load(self) -> None:
        """Take over what the store and the saved progress tell; the offsets must be loaded."""
        found = recover(self._state.store, *self._saved())
        self.ledger, self._unnoted, self._adopted = found

    def start(self) -> None:
        """Check from now on, until `stop`."""
        self._notes.add(self._unnoted)
        self._unnoted = []
        self._arm_round()

    def stop(self) -> None:
        """Write down everything there is to know; nothing may end after this."""
        for timer in self._timers.values():
            timer.cancel()
        self._round = None
        self._notes.stop()
        self.ledger.advance(self._end)
        self._show_progress()

    def check(self) -> None:
        """Begin a round of checks, unless the last one has so much to do that it is still at it."""
        if self._round is None:
            self._round = self._checks()
            self._continue_round()

    def half_at(self, log_offset: int, queue_offset: int) -> StoredMessage | None:
        """The half message that lies at both offsets, if one does."""
        queue = self._state.store.queue(HALF_TOPIC, 0)
        entry = queue.entry(queue_offset) if 0 <= queue_offset < queue.end else None
        if entry is None or entry[0] != log_offset:
            return None
        return record_of(self._state.store, queue, queue_offset)

    def fate_of(self, half: StoredMessage) -> Fate:
        """What became of the half message's transaction; OPEN as long as it has not ended."""
        if self._open_offset(half) is not None:
            return Fate.OPEN
        fate = self.ledger.fate_of(half.queue_offset)
        if fate is Fate.MOVED:
            fate = self.ledger.fate_of(self.ledger.first_of(half.queue_offset))
        return Fate.ENDED if fate in (Fate.MOVED, Fate.PAST) else fate

    def commit(self, half: StoredMessage) -> Placed:
        """Give an open half message to its consumers; or a StoreError, and it stays open."""
        self._state.topics.existing(half_messages.real_topic_of(half))
        placed = placing.put(self._state, half_messages.committed_of(half), again=True)
        self._end_by(half, Fate.COMMITTED)
        return placed

    def roll_back(self, half: StoredMessage) -> None:
        """Forget an open half message."""
        self._end_by(half, Fate.ROLLED_BACK)

    def may_resume(self, discarded: StoredMessage) -> bool:
        """Whether this is a discarded message that was not begun anew since the broker started."""
        queue = self._state.store.queue(DISCARD_TOPIC, 0)
        at = discarded.queue_offset
        entry = queue.entry(at) if 0 <= at < queue.end else None
        is_there = entry is not None and entry[0] == discarded.log_offset
        return is_there and discarded.log_offset not in self._resumed

    def resume(self, discarded: StoredMessage) -> Placed:
        """Begin a discarded transaction anew."""
        placed = placing.place(self._state, half_messages.resumed_of(discarded), again=True)
        self._resumed.add(discarded.log_offset)
        return placed

    def refused(self, reason: str) -> None:
        """Let the operator know of one-way requests in vain, but not of each."""
        self._refused_count += 1
        now_s = self._state.clock.monotonic_s()
        if now_s >= self._refused_silent_s:
            LOGGER.warning("transactions not ended count=%d last=%s", self._refused_count, reason)
            self._refused_count, self._refused_silent_s = 0, now_s + REFUSED_SILENT_S

    @property
    def _end(self) -> int:
        return self._state.store.max_offset(HALF_TOPIC, 0)

    def _open_offset(self, half: StoredMessage) -> int | None:
        return open_offset_of(half, self.ledger, self._adopted)

    def _end_by(self, half: StoredMessage, fate: Fate) -> None:
        at = self._open_offset(half)
        assert at is not None, "the transaction has ended already"
        self.ledger.end(at, fate)
        self._notes.add([at])

    def _noted(self, operation_offset: int, half_offsets: list[int]) -> None:
        self.ledger.noted(operation_offset, half_offsets)

    def _arm_round(self) -> None:
        interval_s = self._state.config.transaction_check_interval_ms / 1000
        self._timers["round"] = self._state.timers.after(interval_s, self._by_the_clock)

    def _by_the_clock(self) -> None:
        self._arm_round()
        self.check()

    def _checks(self) -> Iterator[None]:
        """One round, a step at a time."""
        state = self._state
        rules = Rules(
            timeout_ms=state.config.transaction_timeout_ms,
            check_max=state.config.transaction_check_max,
            age_max_ms=max(state.store_config.retention_hours, 1) * HOUR_MS,
        )
        actions = CheckBacks(state, self.ledger, lambda half_offset: self._notes.add([half_offset]))
        try:
            yield from check_round(
                self.ledger, actions, rules, now_ms=state.clock.wall_ms(), end=self._end
            )
        except StoreError as error:
            LOGGER.warning("transactions not checked, to be tried again reason=%s", error)
        if actions.in_the_way and actions.in_the_way != self._in_the_way:
            LOGGER.warning(
                "half messages that cannot be copied looked past count=%d first=%d reason=%s",
                len(actions.in_the_way),
                min(actions.in_the_way),
                actions.in_the_way[min(actions.in_the_way)],
            )
        self._in_the_way = actions.in_the_way
        self._notes.write()
        if actions.asked or actions.without_producer or actions.discarded:
            LOGGER.info(
                "transactions checked asked=%d without_producer=%d discarded=%d",
                actions.asked,
                actions.without_producer,
                actions.discarded,
            )

    def _continue_round(self) -> None:
        """Go on with the round for a few milliseconds; then others have their turn."""
        assert self._round is not None
        clock = self._state.clock
        until_s = clock.monotonic_s() + SLICE_S
        is_under_way = False
        try:
            for _ in self._round:
                if clock.monotonic_s() >= until_s:
                    self._timers["slice"] = self._state.timers.after(0.0, self._continue_round)
                    is_under_way = True
                    break
        finally:
            if not is_under_way:
                self._round = None  # whatever ended it, there will be another
        if self._show_progress() and self._round is None:
            # Not seconds later: from less progress, Apache's broker asks about every copy.
            self._state.offsets.save()

    def _show_progress(self) -> bool:
        """Let progress be saved with the consume offsets; whether there was any."""
        progress = (self.ledger.progress, self.ledger.operation_progress)
        if progress == self._saved():
            return False
        offsets = self._state.offsets
        for topic, queue_offset in zip((HALF_TOPIC, OPERATION_TOPIC), progress, strict=True):
            offsets.commit(topic, TRANSACTION_GROUP, 0, queue_offset)
        return True

    def _saved(self) -> tuple[int | None, int | None]:
        offsets = self._state.offsets
        return (
            offsets.get(HALF_TOPIC, TRANSACTION_GROUP, 0),
            offsets.get(OPERATION_TOPIC, TRANSACTION_GROUP, 0),
        )
