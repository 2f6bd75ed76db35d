"""Bugs of consuming, popping and timing, put back into ours for the length of a test, and found.

The numbers are those of Apache RocketMQ's issues and pull requests where the bug was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from ariane.broker.placing import place
from ariane.broker.pop import order, returning
from ariane.broker.pop.checkpoints import Checkpoints
from ariane.broker.pop.records import parts_of
from ariane.broker.pop.returning import Returning
from ariane.broker.state import BrokerState
from ariane.client import holdings
from ariane.client.lending import Lending
from ariane.client.offset_stores import OffsetStore, RemoteOffsets
from ariane.client.process_queue import ProcessQueue
from ariane.client.pulling import Puller
from ariane.client.received import ReceivedMessage
from ariane.client.starting import Start, first_position
from ariane.errors import ClientError, StoreError
from ariane.kernel.pop import Checkpoint
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.identifiers import decode_host
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.messages import NewMessage
from ariane.store.timer_recovery import TimerRecovery
from ariane.store.timer_wheel import TimerWheel, Turn
from tests.planted.finding import told_by
from tests.unit.broker.pop import (
    test_checkpoints,
    test_ordered_pops,
    test_pop,
    test_recovery,
)
from tests.unit.broker.pop.popping import Popping
from tests.unit.client import (
    fake,
    test_offset_stores,
    test_orderly,
    test_process_queue,
    test_push_consumer,
    test_simple_consumer,
)
from tests.unit.store import test_timer_files, test_timer_wheel

Patch = pytest.MonkeyPatch
Scene = Callable[[], None]


# Pops.


def times_of_storing_decide(patch: Patch) -> None:
    """#7914: messages stored before they were popped, as all are, are taken for settled."""
    message_of = Returning._message

    def newer_only(
        self: Returning, checkpoint: Checkpoint, queue_offset: int
    ) -> tuple[StoredMessage, bytes] | None:
        found = message_of(self, checkpoint, queue_offset)
        return found if found and found[0].stored_at_ms > checkpoint.popped_ms else None

    patch.setattr(Returning, "_message", newer_only)


def what_cannot_be_given_back_is_passed_over(patch: Patch) -> None:
    """#10985: the copy fails, its checkpoint is settled all the same."""

    def place_or_not(state: BrokerState, message: NewMessage, *, again: bool) -> None:
        with suppress(StoreError):
            place(state, message, again=again)

    patch.setattr(returning, "place", place_or_not)


def another_message_is_given_back(patch: Patch) -> None:
    """#7724, #8479: whatever lies at the offset now is given back, though nobody popped it."""

    def whatever(
        self: Returning, checkpoint: Checkpoint, queue_offset: int
    ) -> tuple[StoredMessage, bytes] | None:
        store = self._state.store
        entry = store.queue(checkpoint.topic, checkpoint.queue_id).entry(queue_offset)
        record = None if entry is None else store.record_at(entry[0])
        if record is None:
            return None
        return decode_records(record)[0], parts_of(record).properties

    patch.setattr(Returning, "_message", whatever)


def an_acknowledgement_waits_for_ever(patch: Patch) -> None:
    """#5408, #3443: one without a checkpoint keeps the journal from moving on."""
    patch.setattr(Checkpoints, "forget_early", lambda self, now_ms: None)


def a_note_written_anew_forgets_acknowledgements(patch: Patch) -> None:
    """#10736: an acknowledgement while a checkpoint is written once more is lost with the old."""
    add = Checkpoints.add

    def add_as_it_was(self: Checkpoints, checkpoint: Checkpoint) -> None:
        known = self.by_key.pop(checkpoint.key, None)
        if known is not None:
            known.close()
        add(self, checkpoint)

    patch.setattr(Checkpoints, "add", add_as_it_was)


def a_lost_answer_blocks_its_own_queue(patch: Patch) -> None:
    """#10827: the consumer asks again and waits, up to three hours, for itself."""
    patch.setattr(order, "_is_same", lambda attempt_id, other: False)


def the_new_handle_is_forgotten(patch: Patch) -> None:
    """#9583: more time is asked for, and the acknowledgement then names the old delivery."""
    change = Lending._change

    async def change_only(self: Lending, message: ReceivedMessage, invisible_s: float) -> None:
        handle = message.handle
        await change(self, message, invisible_s)
        message.handle = handle

    patch.setattr(Lending, "_change", change_only)


# Progress of consumers.


def an_unknown_offset_is_nothing(patch: Patch) -> None:
    """#2708, #2705: no answer is taken for no progress, and days are consumed again."""
    read = RemoteOffsets.read

    async def read_or_none(self: RemoteOffsets, queue: MessageQueue) -> int | None:
        try:
            return await read(self, queue)
        except ClientError:
            return None

    patch.setattr(RemoteOffsets, "read", read_or_none)


def an_offset_that_was_not_told_counts_as_told(patch: Patch) -> None:
    """#2944: a commit is lost on the way and never made good."""
    write = RemoteOffsets.write

    async def write_once(
        self: RemoteOffsets, offsets: Mapping[MessageQueue, int], *, wait: bool = False
    ) -> None:
        await write(self, offsets, wait=wait)
        self._told |= offsets

    patch.setattr(RemoteOffsets, "write", write_once)


def the_beginning_is_worked_out_twice(patch: Patch) -> None:
    """#10955: what arrives between the two is skipped."""

    async def twice(start: Start, queue: MessageQueue, store: OffsetStore, puller: Puller) -> int:
        await first_position(start, queue, store, puller)
        return await first_position(start, queue, store, puller)

    patch.setattr(holdings, "first_position", twice)


def one_message_holds_progress_up_for_ever(patch: Patch) -> None:
    """#7613: a handler that never ends keeps the offset where it is."""
    patch.setattr(ProcessQueue, "stuck", lambda self, *, now_s, timeout_s, waiting=True: [])


def a_queue_is_never_dropped(patch: Patch) -> None:
    """#2732: what was pulled for an earlier life of the queue counts in the next."""
    patch.setattr(ProcessQueue, "drop", lambda self: self.commit_offset)


# Timers.


def units_outlive_their_messages(patch: Patch) -> None:
    """#10668: the log was cut, its timers were not, and wait for records that are not there."""
    kept_units = TimerRecovery._kept_units

    def keep_all(self: TimerRecovery, position: int, taken_end: int) -> Any:
        kept = kept_units(self, position, taken_end)
        if kept is None:
            return None
        units, cut = self.files.log.units, kept.cut
        while units.unit(cut) is not None:
            cut = units.after(cut)
        return kept._replace(cut=min(cut, units.end_position))

    patch.setattr(TimerRecovery, "_kept_units", keep_all)


def a_failure_repeats_its_neighbours(patch: Patch) -> None:
    """#6984: after one that could not be placed, another that was is placed again."""
    deliver_first = TimerWheel._deliver_first
    has_failed = [False]

    def place_again(self: TimerWheel, status: int, turn: Turn) -> None:
        found = self.clockwork.first_message()
        try:
            deliver_first(self, status, turn)
        except StoreError:
            has_failed[0] = True
            raise
        if has_failed[0] and found is not None:
            topic, queue_id, body, properties, born_host, born_ms, *_ = found
            host = decode_host(born_host)
            self._outlet.append(
                NewMessage(
                    topic=topic.decode(),
                    queue_id=queue_id,
                    body=body,
                    properties=properties,
                    born_host=host,
                    born_at_ms=born_ms,
                )
            )

    patch.setattr(TimerWheel, "_deliver_first", place_again)


@dataclass(frozen=True, slots=True)
class Bug:
    """How to plant it, the test that finds it, and the words by which it does."""

    plant: Callable[[Patch], None]
    scene: Scene
    words: str


def popping(test: Callable[[Popping], None]) -> Scene:
    return lambda: test(Popping())


def ordered() -> None:
    broker = Popping(queues=2)
    broker.fill(10, queues=1)
    test_ordered_pops.test_a_repeated_attempt_does_not_wait_for_the_time_to_be_up(broker)


def looping(test: Callable[[], Coroutine[Any, Any, None]]) -> Scene:
    return lambda: asyncio.run(test())


BUGS = {
    "times of storing decide": Bug(
        times_of_storing_decide,
        popping(test_pop.test_what_is_not_acknowledged_comes_back_once_in_time_and_counted),
        "(again,) = broker.pop()",
    ),
    "what cannot be given back is passed over": Bug(
        what_cannot_be_given_back_is_passed_over,
        popping(test_recovery.test_what_cannot_be_given_back_now_is_given_back_later),
        "assert len(broker.stored(RETRY)) == 3",
    ),
    "another message is given back": Bug(
        another_message_is_given_back,
        popping(test_pop.test_a_topic_made_anew_after_a_kill_is_not_given_back_what_it_never_had),
        "assert after.stored(RETRY) == []",
    ),
    "an acknowledgement waits for ever": Bug(
        an_acknowledgement_waits_for_ever,
        test_checkpoints.test_early_acknowledgements_are_not_kept_for_ever,
        "assert oldest_note(checkpoints) is None",
    ),
    "a note written anew forgets acknowledgements": Bug(
        a_note_written_anew_forgets_acknowledgements,
        test_checkpoints.test_a_newer_note_of_the_same_checkpoint_replaces_it_and_keeps_what_was_settled,
        "open_offsets(checkpoints), oldest_note(checkpoints)",
    ),
    "a lost answer blocks its own queue": Bug(
        a_lost_answer_blocks_its_own_queue, ordered, "assert answer is not None"
    ),
    "the new handle is forgotten": Bug(
        the_new_handle_is_forgotten,
        looping(test_simple_consumer.test_more_time_makes_a_new_handle_and_that_one_counts),
        "header.extra_info for header in asked",
    ),
    "an unknown offset is nothing": Bug(
        an_unknown_offset_is_nothing,
        looping(test_push_consumer.test_a_queue_is_not_taken_while_its_offset_is_unknown),
        "assert consumer.queues == []",
    ),
    "an offset that was not told counts as told": Bug(
        an_offset_that_was_not_told_counts_as_told,
        looping(test_offset_stores.test_what_a_broker_did_not_take_is_told_again),
        "await broker.received(UPDATE, 2)",
    ),
    "the beginning is worked out twice": Bug(
        the_beginning_is_worked_out_twice,
        looping(test_orderly.test_the_offset_is_asked_for_once_and_under_the_lock),
        "assert codes == [LOCK, ",
    ),
    "one message holds progress up for ever": Bug(
        one_message_holds_progress_up_for_ever,
        looping(test_push_consumer.test_messages_stuck_for_fifteen_minutes_are_sent_back),
        "await here.server.received(BACK)",
    ),
    "a queue is never dropped": Bug(
        a_queue_is_never_dropped,
        test_process_queue.test_nothing_counts_after_a_drop,
        "assert not queue.finish(five)",
    ),
    "units outlive their messages": Bug(
        units_outlive_their_messages,
        test_timer_files.test_a_log_cut_short_takes_its_units_along,
        "assert world.store.timer.pending == 1",
    ),
    "a failure repeats its neighbours": Bug(
        a_failure_repeats_its_neighbours,
        test_timer_wheel.test_one_that_cannot_be_placed_now_does_not_make_others_come_twice,
        "came twice",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch) -> None:
    bug = BUGS[name]
    bug.scene()
    bug.plant(monkeypatch)
    monkeypatch.setattr(fake, "PATIENCE_S", 1)  # for what will not come
    with pytest.raises((AssertionError, TimeoutError, ValueError)) as found:
        bug.scene()
    assert bug.words in told_by(found)
