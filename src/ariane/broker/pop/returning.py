"""Giving back what was not acknowledged in time, by the clock and in slices.

The copy goes into the retry topic, or among the group's dead letters once the message has been
lent as often as the group says (`retryMaxTimes`); then the checkpoint is noted as settled. A kill
between the two leaves the copies as the very last records of the log, where a restart looks for
them, so that nothing is given back twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ariane.broker.placing import place
from ariane.broker.pop.checkpoints import Checkpoints, Key
from ariane.broker.pop.handles import popped_topic_of
from ariane.broker.pop.journal import Journal
from ariane.broker.pop.notes import ack_note
from ariane.broker.pop.records import parts_of
from ariane.broker.pop.revive import (
    Schedule,
    back_off_ms,
    given_up,
    is_copy_of,
    retry_topic_for,
    revived,
)
from ariane.broker.system_topics import READ_WRITE
from ariane.codes import Permission
from ariane.errors import ArianeError, InvalidParameter
from ariane.kernel.pop import Checkpoint
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.messages import NewMessage
from ariane.topics import dead_letter_topic_of

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState

LOGGER: Final = logging.getLogger("ariane.broker")

CHECKPOINTS_AT_ONCE: Final = 32  # given back before the loop gets its turn
TOPIC_WAIT_MS: Final = 100  # until a retry topic just made is on disk


class _DeadLettersNotReady(Exception):
    """Their topic was just made and is not on disk yet."""


class Returning:
    """What is due goes back to where it is popped again."""

    def __init__(
        self, state: BrokerState, journal: Journal, checkpoints: Checkpoints, schedule: Schedule
    ) -> None:
        self._state = state
        self._journal = journal
        self._checkpoints = checkpoints
        self._schedule = schedule

    def give_back_due(self, now_ms: int) -> bool:
        """Give back a slice of what is due; True when there may be more."""
        due = self._schedule.take(now_ms, CHECKPOINTS_AT_ONCE)
        for checkpoint in due:
            try:
                self._give_back(checkpoint, now_ms)
            except Exception:  # one that nobody foresaw holds up no other
                LOGGER.exception("pop revived later key=%s", checkpoint.key)
                self._try_later(checkpoint, now_ms)
        return len(due) == CHECKPOINTS_AT_ONCE

    def find_given_back(self, log_end: int) -> None:
        """Settle what was given back just before a kill, and not noted: its copy ends the log."""
        last: dict[tuple[str, str], list[StoredMessage]] = {}
        for checkpoint in self._checkpoints:
            topics = (self._retry_topic(checkpoint), dead_letter_topic_of(checkpoint.group))
            if topics not in last:
                last[topics] = self._last_copies(topics, log_end)
            for queue_offset in checkpoint.open_offsets() if last[topics] else ():
                message = self._message(checkpoint, queue_offset)
                if message and any(is_copy_of(copy, message[0]) for copy in last[topics]):
                    self._checkpoints.settle(checkpoint, checkpoint.bit_of(queue_offset))

    def drop(self, checkpoint: Checkpoint) -> None:
        """Settle what is open of a checkpoint without giving anything back."""
        self._settle(checkpoint, checkpoint.open_offsets())

    def _give_back(self, checkpoint: Checkpoint, now_ms: int) -> None:
        if not self._has_readers(checkpoint):
            self.drop(checkpoint)
            return
        topic = self._retry_topic(checkpoint)
        try:
            is_ready = self._is_ready(topic, checkpoint)
        except InvalidParameter as error:  # a name too long: nobody could pop it from there
            LOGGER.error("pop not revived checkpoint=%s reason=%s", checkpoint.key, error)
            self.drop(checkpoint)
            return
        if not is_ready:
            self._schedule.add(checkpoint, now_ms + TOPIC_WAIT_MS)
            return
        queue_id = self._retry_queue_id(topic, checkpoint)
        done: list[int] = []
        try:
            for queue_offset in checkpoint.open_offsets():
                message = self._message(checkpoint, queue_offset)
                if message is not None:
                    copy = self._dead_letter(*message, checkpoint)
                    if copy is None:
                        copy = revived(*message, checkpoint, topic, queue_id)
                    place(self._state, copy, again=True)
                done.append(queue_offset)
        except _DeadLettersNotReady:
            self._schedule.add(checkpoint, now_ms + TOPIC_WAIT_MS)
        except ArianeError as error:
            wait_ms = self._try_later(checkpoint, now_ms)
            LOGGER.warning("pop revived later topic=%s ms=%d reason=%s", topic, wait_ms, error)
        finally:
            self._settle(checkpoint, done)

    def _dead_letter(
        self, message: StoredMessage, properties: bytes, checkpoint: Checkpoint
    ) -> NewMessage | None:
        """The message as a dead letter, if it has been lent as often as its group says."""
        topics = self._state.topics
        group = self._state.groups.for_consumer(checkpoint.group)
        if message.reconsume_times < group.retry_times_max:
            return None
        topic = topics.ensure_dead_letter(group)
        if not Permission.WRITE & topic.permission or not topic.write_queue_count:
            return None  # nobody wants them: better lent once more than lost
        if not topics.is_saved(topic.name):
            raise _DeadLettersNotReady
        LOGGER.info(
            "pop given up group=%s topic=%s id=%s",
            checkpoint.group,
            checkpoint.topic,
            message.message_id,
        )
        return given_up(message, properties, checkpoint, topic.name)

    def _try_later(self, checkpoint: Checkpoint, now_ms: int) -> int:
        checkpoint.attempts += 1
        wait_ms = back_off_ms(checkpoint.attempts)
        self._schedule.add(checkpoint, now_ms + wait_ms)
        return wait_ms

    def _settle(self, checkpoint: Checkpoint, offsets: list[int]) -> None:
        if not offsets:
            return
        bits = sum(checkpoint.bit_of(queue_offset) for queue_offset in offsets)
        self._checkpoints.settle(checkpoint, bits)
        name = self._state.config.name
        try:
            note = ack_note(Key(*checkpoint.key), offsets, checkpoint.due_ms, name)
            self._journal.append(note, checkpoint.revive_queue_id)
        except ArianeError as error:  # after a restart it comes again: better twice than never
            LOGGER.warning("pop revived and not noted key=%s reason=%s", checkpoint.key, error)

    def _has_readers(self, checkpoint: Checkpoint) -> bool:
        """Whether the topic and the group are still there."""
        topics, groups = self._state.topics, self._state.groups
        popped_topic = popped_topic_of(checkpoint.topic, checkpoint.group)
        has_topics = all(topics.get(name) for name in (popped_topic, checkpoint.topic))
        return has_topics and checkpoint.group in groups

    def _is_ready(self, topic: str, checkpoint: Checkpoint) -> bool:
        """Make the retry topic, or its queues, if need be; True once they would survive a crash."""
        topics, offsets, group = self._state.topics, self._state.offsets, checkpoint.group
        count = 1
        if self._state.config.separate_retry_queues:
            count = topics.existing(popped_topic_of(checkpoint.topic, group)).write_queue_count
        known = topics.get(topic)
        if known is None or known.write_queue_count < count:
            topics.put(
                TopicConfig(
                    name=topic,
                    read_queue_count=count,
                    write_queue_count=count,
                    permission=READ_WRITE,
                )
            )
        for queue_id in range(count):
            if offsets.get(topic, group, queue_id) is None:
                offsets.commit(topic, group, queue_id, 0)
        return topics.is_saved(topic)

    def _retry_queue_id(self, topic: str, checkpoint: Checkpoint) -> int:
        """Which queue of the retry topic messages come back in: the one they were popped from."""
        if not self._state.config.separate_retry_queues:
            return 0
        count = self._state.topics.existing(topic).write_queue_count
        return checkpoint.queue_id if checkpoint.queue_id < count else 0

    def _retry_topic(self, checkpoint: Checkpoint) -> str:
        return retry_topic_for(checkpoint, is_v2=self._state.config.retry_topics_v2)

    def _message(
        self, checkpoint: Checkpoint, queue_offset: int
    ) -> tuple[StoredMessage, bytes] | None:
        """A popped message and its properties as stored; None when it is gone.

        What lies behind the checkpoint's own note was never popped by it: the topic was deleted
        and made anew since.
        """
        store = self._state.store
        entry = store.queue(checkpoint.topic, checkpoint.queue_id).entry(queue_offset)
        record = None if entry is None else store.record_at(entry[0])
        if record is None:
            return None
        message = decode_records(record)[0]
        if message.queue_offset != queue_offset or message.log_offset >= checkpoint.log_offset:
            return None
        return message, parts_of(record).properties

    def _last_copies(self, topics: Iterable[str], log_end: int) -> list[StoredMessage]:
        """The messages of these topics that lie back to back at the end of the log."""
        store = self._state.store
        queues = [
            store.queue(topic, queue_id)
            for topic in topics
            if (config := self._state.topics.get(topic)) is not None
            for queue_id in range(config.write_queue_count)
        ]
        ends = {queue: queue.end for queue in queues}
        copies: list[StoredMessage] = []
        while True:
            last = [
                (queue, queue.entry(end - 1))
                for queue, end in ends.items()
                if end > queue.min_offset
            ]
            at_the_end = [(queue, entry) for queue, entry in last if _ends_at(entry, log_end)]
            if not at_the_end:
                return copies
            queue, entry = at_the_end[0]
            record = None if entry is None else store.log.record(entry[0], store.log.end)
            if entry is None or record is None:
                return copies
            copies += decode_records(record)
            log_end = entry[0]
            ends[queue] -= 1


def _ends_at(entry: tuple[int, int, int] | None, log_end: int) -> bool:
    return entry is not None and entry[0] + entry[1] == log_end
