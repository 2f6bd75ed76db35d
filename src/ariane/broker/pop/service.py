"""Popping, with its journal: what is lent is noted in the revive topic before anybody hears of it.

The revive topic is where pops and acknowledgements are kept; memory holds what is open. `Pop`
appends the notes, gives back what is due, and after a restart reads the notes again from the oldest
one still needed. Where that is, is saved with the consume offsets as Apache does it: the last note
that is done with. With it is saved how far the journal reached then: a note behind that moves its
group's consume offset, which a kill has taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ariane.broker.persistence import SavedFile, Saver
from ariane.broker.pop import order_file
from ariane.broker.pop.checkpoints import Checkpoints, Key, Noted
from ariane.broker.pop.flushed import Flushed
from ariane.broker.pop.journal import GROUP, SEEN_GROUP, Journal
from ariane.broker.pop.lane import PopGrants
from ariane.broker.pop.modes import RequestModeTable
from ariane.broker.pop.notes import (
    AcksFound,
    CheckpointFound,
    Found,
    Note,
    OrderFound,
    ack_note,
    checkpoint_note,
    order_note,
    read_note,
)
from ariane.broker.pop.order import OrderInfo, Orders, Place, Settled, Verdict
from ariane.broker.pop.polling import PopPolling
from ariane.broker.pop.returning import Returning
from ariane.broker.pop.revive import Schedule
from ariane.broker.pop.routes import TopicRoutes
from ariane.clock import Timer, Timers
from ariane.disk import Disk
from ariane.errors import StoreError
from ariane.kernel.pop import Checkpoint
from ariane.topics import revive_topic_of

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState

LOGGER: Final = logging.getLogger("ariane.broker")

TICK_S: Final = 0.1
TIDY_S: Final = 1.0
SWEPT_AT_ONCE: Final = 20_000
FOREIGN_AT_ONCE: Final = 1_000  # notes of others read before the loop gets its turn
LATE_MS: Final = 60_000  # how long after its time an acknowledgement may still matter
DUE_MS_MAX: Final = 7 * 24 * 3600 * 1000  # from now, for acknowledgements of what is not known
# A restart reads everything behind the oldest note needed; one that lags so far is written anew.
LAG_MAX: Final = 10_000
LAG_MS_MAX: Final = 3600_000
REWRITTEN_AT_ONCE: Final = 200

Moves = dict[Place, tuple[int, int]]  # -> the log offset of a note, and a consume offset


class Pop:
    """Everything about pops that outlives a request."""

    def __init__(self, state: BrokerState, saver: Saver) -> None:
        topic = revive_topic_of(state.config.cluster)
        config = state.topics.get(topic)
        queue_count = 8 if config is None else max(config.write_queue_count, 1)
        self._state = state
        self._name = state.config.name
        self.journal = Journal(state.store, state.clock, topic, queue_count, state.store_host)
        self.checkpoints = Checkpoints()
        self.orders = Orders()
        self.modes = RequestModeTable(saver)
        self.routes = TopicRoutes(state)
        self.pops = PopPolling(state.store, state.timers)
        self.notices = PopPolling(state.store, state.timers)
        self._schedule = Schedule()
        self._returning = Returning(state, self.journal, self.checkpoints, self._schedule)
        self._orders_file = SavedFile(
            order_file.PATH, lambda: order_file.encode(self.orders), saver
        )
        self._orders_saved_at = [0] * queue_count  # notes of orders below are in the file
        self._paces: dict[Place, int] = {}  # from the steady clock to the pop times of a queue
        self._more: Timer | None = None
        self._others_until_ms = 0  # what was popped later, was popped here
        self.lane = PopGrants(state, self.journal, self.checkpoints.by_key, self._lent)
        self._listen(state)

    # What a broker does with it.

    def load(self, disk: Disk) -> None:
        """Take over what a stop or a kill left; the consume offsets have been loaded before."""
        # The note of a pop is stored no earlier than the pop.
        self._others_until_ms = self._state.store.log.last_store_ms
        self.modes.load(disk)
        order_file.load(disk, self.orders)
        offsets = self._state.offsets.progress(self.journal.topic, GROUP)
        moves: Moves = {}
        count = 0
        for queue_id in range(self.journal.queue_count):
            self.journal.start_at(queue_id, offsets.get(queue_id, -1) + 1)
            self._orders_saved_at[queue_id] = self.journal.known_ends[queue_id]
            seen = self._state.offsets.progress(self.journal.topic, SEEN_GROUP).get(queue_id, 0)
            for message in self.journal.unread(queue_id, 1 << 62):
                found = read_note(message)
                count += 1
                if found is not None:
                    self._take(found, message.queue_id, message.queue_offset)
                    if message.queue_offset >= seen:
                        _note_move(moves, found, message.log_offset)
        for place, (_, consume_offset) in moves.items():
            if self._state.topics.get(place.topic) is not None:
                offsets_of = self._state.offsets.offsets_of(place.topic, place.group)
                offsets_of[place.queue_id] = consume_offset
        for place, info in self.orders:
            now_ms = self._state.clock.wall_ms()
            self._paces[place] = max(now_ms, info.popped_ms) - self._steady_ms()
        self._returning.find_given_back(self._state.store.written)
        if count:
            LOGGER.info("pops recovered notes=%d open=%d", count, len(self.checkpoints))

    def start(self, timers: Timers) -> list[Timer]:
        """Give back what is due from now on, until the timers are cancelled."""
        return [timers.every(TICK_S, self.tick), timers.every(TIDY_S, self.tidy)]

    def save(self) -> None:
        """Write what has changed; the consume offsets are to be saved after."""
        self.modes.file.save()
        ends = [self.journal.known_ends[n] for n in range(self.journal.queue_count)]
        self._orders_file.when_saved(lambda fault: self._orders_saved(fault, ends))

    def save_now(self) -> None:
        """The last save before a stop."""
        self.modes.file.save_now()
        self._orders_file.save_now()
        self.save()

    def before_offsets_are_saved(self) -> None:
        """Put into the consume offsets what a restart will need of the journal."""
        done = self._state.offsets.offsets_of(self.journal.topic, GROUP)
        seen = self._state.offsets.offsets_of(self.journal.topic, SEEN_GROUP)
        for queue_id in range(self.journal.queue_count):
            if (end := self.journal.known_ends[queue_id]) == 0:
                continue
            oldest = self.checkpoints.oldest(queue_id)
            needed = end if oldest is None else oldest.journal_offset
            done[queue_id] = min(needed, self._orders_saved_at[queue_id]) - 1
            seen[queue_id] = end

    def release_all(self) -> None:
        """Answer everybody who waits; the broker is stopping."""
        self.pops.release_all()
        self.notices.release_all()

    def tick(self) -> None:
        """Give back a slice of what is due, and more of it soon if there is more."""
        self._more = None
        self._read_foreign()
        if self._state.store.refusal is not None:
            return  # nothing can be given back now
        if self._returning.give_back_due(self._steady_ms()) and self._more is None:
            self._more = self._state.timers.after(0.0, self.tick)

    def tidy(self) -> None:
        """Keep memory and journal short."""
        now_ms = self._state.clock.wall_ms()
        self.checkpoints.forget_early(now_ms)
        self._schedule.sweep(SWEPT_AT_ONCE)
        if self.orders.forget_idle(now_ms):
            self._orders_file.mark()
        if self._state.store.refusal is None:
            for queue_id in range(self.journal.queue_count):
                self._shorten(queue_id, now_ms)

    def arrived(self, topic: str, queue_id: int) -> None:
        """A queue grew."""
        self.pops.arrived(topic, queue_id)
        self.notices.arrived(topic, queue_id)

    def changed(self, topic: str) -> None:
        """A topic was changed or deleted, or a group's offsets on it were reset."""
        if topic and self._state.topics.get(topic) is None:
            self._forget_topic(topic)
        self.pops.changed(topic)
        self.notices.changed(topic)

    def group_changed(self, group: str) -> None:
        """A group was changed or deleted."""
        if group in self._state.groups:
            return
        for place, _ in self.orders:
            if place.group == group:
                self.release_order(place)

    def is_watched(self, topic: str, queue_id: int) -> bool:
        """Whether somebody waits to pop from the queue."""
        return self.pops.is_watched(topic, queue_id) or self.notices.is_watched(topic, queue_id)

    # What handlers do with it.

    def lend(
        self, key: Key, invisible_ms: int, gaps: Sequence[int], next_offset: int, queue_id: int
    ) -> None:
        """Note that messages are given out; raises StoreError, and they must not be."""
        checkpoint = Checkpoint(key, invisible_ms, gaps, revive_queue_id=queue_id)
        self._append(checkpoint, checkpoint_note(checkpoint, self._name, next_offset=next_offset))

    def settle(
        self, key: Key, offsets: Sequence[int], due_ms: int, revive_queue_id: int
    ) -> int | None:
        """Messages of a checkpoint are acknowledged; the end of the note, None if none was needed.

        What was popped here and is not known is done with, and this is said twice. What was not may
        be known later: another broker's checkpoint comes when it is due.
        """
        checkpoint = self.checkpoints.get(key)
        if checkpoint is not None:
            bits = 0
            for queue_offset in offsets:
                bits |= checkpoint.bit_of(queue_offset)
            bits &= ~checkpoint.settled
            if not bits:
                return None
            settled = [offset for offset in offsets if checkpoint.bit_of(offset) & bits]
            note = ack_note(key, settled, checkpoint.due_ms, self._name)
            placed = self.journal.append(note, checkpoint.revive_queue_id)
            self.checkpoints.settle(checkpoint, bits)
            return placed.end_offset
        now_ms = self._state.clock.wall_ms()
        is_plausible = (
            key.popped_ms <= self._others_until_ms
            and now_ms - LATE_MS <= due_ms <= now_ms + DUE_MS_MAX
            and 0 <= revive_queue_id < self.journal.queue_count
        )
        if not is_plausible or self.checkpoints.is_settled_early(key, offsets):
            return None
        placed = self.journal.append(ack_note(key, offsets, due_ms, self._name), revive_queue_id)
        self.checkpoints.settle_early(key, offsets, revive_queue_id, placed.queue_offset, due_ms)
        return placed.end_offset

    def extend(self, key: Key, queue_offset: int, invisible_ms: int) -> Checkpoint | None:
        """Lend a message anew, from now on, under a checkpoint of its own; None when it is not out.

        Not out is what was acknowledged or given back: it is not to come under two checkpoints.
        """
        old = self.checkpoints.get(key)
        bit = 0 if old is None else old.bit_of(queue_offset) & ~old.settled
        if old is None or not bit:
            return None
        popped_ms = max(self._state.clock.wall_ms(), key.popped_ms + 1)
        new_key = key._replace(first=queue_offset, popped_ms=popped_ms)
        while new_key in self.checkpoints:
            new_key = new_key._replace(popped_ms=new_key.popped_ms + 1)
        new = Checkpoint(new_key, invisible_ms, (0,), revive_queue_id=old.revive_queue_id)
        self._append(new, checkpoint_note(new, self._name, replaced=key))
        self.checkpoints.settle(old, bit)
        # Ours said so already; this one is for Apache's broker, should it take over.
        note = ack_note(key, [queue_offset], old.due_ms, self._name)
        self.journal.append(note, old.revive_queue_id)
        return new

    def lend_in_order(
        self,
        place: Place,
        offsets: Sequence[int],
        *,
        attempt_id: str | None,
        popped_ms: int,
        invisible_ms: int,
    ) -> OrderInfo:
        """Note that messages of a queue are given out in order; raises StoreError if it cannot."""
        before = self.orders.get(place)
        info = self.orders.lend(
            place,
            offsets,
            attempt_id=attempt_id,
            popped_ms=popped_ms,
            invisible_ms=invisible_ms,
        )
        self._note_order(place, offsets[0], info, before)
        self._paces[place] = popped_ms - self._steady_ms()
        return info

    def settle_in_order(
        self, place: Place, queue_offset: int, popped_ms: int
    ) -> tuple[Settled, int | None]:
        """A message popped in order is acknowledged: the outcome, and the end of the note."""
        before = self.orders.get(place)
        settled = self.orders.settle(place, queue_offset, popped_ms)
        info = self.orders.get(place)
        if settled.verdict is not Verdict.SETTLED or info is None or info == before:
            return settled, None
        return settled, self._note_order(place, settled.consume_offset, info, before)

    def hide_in_order(
        self, place: Place, queue_offset: int, *, popped_ms: int, visible_ms: int
    ) -> bool:
        """Change until when a message popped in order is invisible; False when it is not out."""
        before = self.orders.get(place)
        is_changed = self.orders.hide(
            place, queue_offset, popped_ms=popped_ms, visible_ms=visible_ms
        )
        info = self.orders.get(place)
        if is_changed and info is not None:
            self._note_order(place, self._state.offsets.get(*place) or 0, info, before)
        return is_changed

    def blocked_for_ms(self, place: Place, attempt_id: str | None = None) -> int:
        """For how long nobody may pop a queue in order; 0 when it is free, or for this attempt."""
        now_ms = self.order_ms(place)
        until_ms = self.orders.blocked_until_ms(place, now_ms, attempt_id)
        return until_ms - now_ms if until_ms else 0

    def order_ms(self, place: Place) -> int:
        """What time it is for a queue popped in order, by the clock it was popped at."""
        pace_ms = self._paces.get(place)
        return self._state.clock.wall_ms() if pace_ms is None else self._steady_ms() + pace_ms

    def release_order(self, place: Place) -> None:
        """Forget what is out of a queue in order: its group was sent elsewhere."""
        self._paces.pop(place, None)
        if self.orders.get(place) is not None:
            self.orders.put(place, None)
            self._orders_file.mark()

    # The inside.

    def _listen(self, state: BrokerState) -> None:
        """Have the other parts of the broker tell what happens, and ask before they go by it."""
        state.topics.on_change.append(self.changed)
        state.groups.on_change.append(self.group_changed)
        state.offsets.on_reset.append(lambda topic, group: self.changed(topic))
        state.offsets.before_save.append(self.before_offsets_are_saved)
        # Offsets on disk ahead of the notes of what was popped would lose it if power fails.
        state.offsets.file.barrier = Flushed(state.store).run
        held = state.held
        held.is_watched_by_others = self.is_watched
        for polling in (self.pops, self.notices):
            polling.queue_count_of = self._queue_count
            polling.is_watched_by_others = lambda topic, queue_id: (
                held.is_watched(topic, queue_id) or self.is_watched(topic, queue_id)
            )

    def _queue_count(self, topic: str) -> int:
        config = self._state.topics.get(topic)
        return 0 if config is None else config.read_queue_count

    def _append(self, checkpoint: Checkpoint, note: Note) -> None:
        self._read_foreign_of(checkpoint.revive_queue_id)
        placed = self.journal.append(note, checkpoint.revive_queue_id)
        checkpoint.journal_offset = placed.queue_offset
        checkpoint.log_offset = placed.log_offset
        self._lent(checkpoint)

    def _lent(self, checkpoint: Checkpoint) -> None:
        """A checkpoint's note is written."""
        self.checkpoints.add(checkpoint)
        self._schedule.add(checkpoint, self._steady_ms() + checkpoint.invisible_ms)

    def _steady_ms(self) -> int:
        """The time by a clock that nobody sets."""
        return int(self._state.clock.monotonic_s() * 1000)

    def _take(self, found: Found, revive_queue_id: int, journal_offset: int) -> None:
        """Take over a note that was read."""
        if isinstance(found, CheckpointFound):
            checkpoint = found.checkpoint
            if found.replaced is not None and found.replaced != checkpoint.key:
                old = self.checkpoints.get(found.replaced)
                if old is not None:
                    self.checkpoints.settle(old, old.bit_of(checkpoint.first))
            self.checkpoints.add(checkpoint)
            if not checkpoint.is_closed:
                left_ms = max(checkpoint.due_ms - self._state.clock.wall_ms(), 0)
                left_ms = min(left_ms, checkpoint.invisible_ms)  # the wall clock was set back
                self._schedule.add(checkpoint, self._steady_ms() + left_ms)
        elif isinstance(found, AcksFound):
            known = self.checkpoints.get(found.key)
            if known is None:
                self.checkpoints.settle_early(
                    found.key, found.offsets, revive_queue_id, journal_offset, found.due_ms
                )
            else:
                bits = 0
                for queue_offset in found.offsets:
                    bits |= known.bit_of(queue_offset)
                self.checkpoints.settle(known, bits)
        else:
            self.orders.restore(found.place, found.info)
            self._orders_file.mark()

    def _read_foreign(self) -> None:
        for queue_id in range(self.journal.queue_count):
            self._read_foreign_of(queue_id)

    def _read_foreign_of(self, queue_id: int) -> None:
        if self.journal.end(queue_id) == self.journal.known_ends[queue_id]:
            return
        for message in self.journal.unread(queue_id, FOREIGN_AT_ONCE):
            found = read_note(message)
            if found is not None:
                self._take(found, message.queue_id, message.queue_offset)

    def _note_order(
        self, place: Place, consume_offset: int, info: OrderInfo, before: OrderInfo | None
    ) -> int:
        """Note what is out of a queue; if that fails, everything is as before."""
        revive_queue_id = place.queue_id % self.journal.queue_count
        try:
            self._read_foreign_of(revive_queue_id)
            note = order_note(place, consume_offset, info)
            placed = self.journal.append(note, revive_queue_id)
        except StoreError:
            self.orders.put(place, before)
            raise
        self._orders_file.mark()
        return placed.end_offset

    def _orders_saved(self, fault: Exception | None, ends: list[int]) -> None:
        if fault is None:
            self._orders_saved_at = ends

    def _shorten(self, queue_id: int, now_ms: int) -> None:
        """Write the oldest notes anew when they lag far behind, unless most there are needed."""
        end = self.journal.known_ends[queue_id]
        for _ in range(REWRITTEN_AT_ONCE):
            oldest = self.checkpoints.oldest(queue_id)
            if oldest is None:
                return
            lag = end - oldest.journal_offset
            is_far = lag > LAG_MAX and self.checkpoints.count_needed(queue_id) < lag // 4
            if not is_far and not self._is_old(oldest, now_ms):
                return
            if isinstance(oldest, Checkpoint):
                note = checkpoint_note(oldest, self._name, replaced=Key(*oldest.key))
            else:
                note = ack_note(oldest.key, sorted(oldest.offsets), oldest.due_ms, self._name)
            placed = self.journal.append(note, queue_id)
            self.checkpoints.moved(oldest, placed.queue_offset)

    def _is_old(self, noted: Noted, now_ms: int) -> bool:
        """Whether retention could take the note while it is needed."""
        if now_ms - noted.popped_ms <= LAG_MS_MAX:
            return False
        noted_ms = self._state.store.store_ms_at(
            self.journal.topic, noted.revive_queue_id, noted.journal_offset
        )
        return now_ms - noted_ms > LAG_MS_MAX

    def _forget_topic(self, topic: str) -> None:
        """What was popped of a topic that is gone is settled: nobody can have it any more."""
        for checkpoint in self.checkpoints:
            if checkpoint.topic == topic:
                self._returning.drop(checkpoint)
        for place, _ in self.orders:
            if place.topic == topic:
                self.release_order(place)


def _note_move(moves: Moves, found: Found, log_offset: int) -> None:
    """Where a group goes on in a queue is said by its last note, in the order of the log."""
    if isinstance(found, CheckpointFound):
        checkpoint, consume_offset = found.checkpoint, found.next_offset
        place = Place(checkpoint.topic, checkpoint.group, checkpoint.queue_id)
    elif isinstance(found, OrderFound):
        place, consume_offset = found.place, found.consume_offset
    else:
        return
    if consume_offset is not None and moves.get(place, (-1, 0))[0] < log_offset:
        moves[place] = (log_offset, consume_offset)
