"""Giving back what was not acknowledged in time: when it is due, and how it is sent again. Pure.

Checkpoints lie in slots by the time they are due, so that a pop adds to a list and nothing else. A
slot is taken when all of it is due: never early, late by a slot at most. What was settled meanwhile
is thrown out by a sweep that looks at a bounded number at a time. Times here are of a clock that
nobody sets; by the wall clock messages would come early or late when it is.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Final

from ariane.broker.pop.handles import RETRY_V1, RETRY_V2, popped_topic_of, retry_topic_of
from ariane.broker.pop.records import PROPERTIES_BYTES_MAX
from ariane.kernel.pop import Checkpoint
from ariane.protocol.message import StoredMessage
from ariane.protocol.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, amended_properties
from ariane.store.messages import NewMessage
from ariane.topics import RETRY_PREFIX

SLOT_MS: Final = 100
FIRST_POP_KEY: Final = "1ST_POP_TIME"
GROUP_KEY: Final = "ORIGIN_GROUP"  # of which group the consumer was that did not acknowledge
# How long to wait before trying again what could not be given back, by the number of failures.
BACK_OFF_S: Final = (
    10,
    20,
    30,
    60,
    120,
    180,
    240,
    300,
    360,
    420,
    480,
    540,
    600,
    1200,
    1800,
    3600,
    7200,
)


class Schedule:
    """Checkpoints by when they are due."""

    def __init__(self) -> None:
        self._slots: dict[int, list[Checkpoint]] = {}
        self._order: list[int] = []  # a heap of the slots there are
        self._unswept: list[int] = []

    def __len__(self) -> int:
        """How many are looked after, settled ones among them."""
        return sum(map(len, self._slots.values()))

    def add(self, checkpoint: Checkpoint, due_ms: int) -> None:
        """Have a checkpoint looked at when it is due."""
        slot = due_ms // SLOT_MS
        held = self._slots.get(slot)
        if held is None:
            held = self._slots[slot] = []
            heapq.heappush(self._order, slot)
        held.append(checkpoint)

    def take(self, now_ms: int, count_max: int) -> list[Checkpoint]:
        """Open checkpoints that are due, at most so many; they are not here any more."""
        due: list[Checkpoint] = []
        while self._order and (self._order[0] + 1) * SLOT_MS <= now_ms and len(due) < count_max:
            held = self._slots[self._order[0]]
            while held and len(due) < count_max:
                checkpoint = held.pop()
                if not checkpoint.is_closed:
                    due.append(checkpoint)
            if not held:
                del self._slots[heapq.heappop(self._order)]
        return due

    def sweep(self, count_max: int) -> None:
        """Throw out settled checkpoints, looking at about so many; the next call goes on there."""
        if not self._unswept:
            self._unswept = sorted(self._slots, reverse=True)
        while self._unswept and count_max > 0:
            held = self._slots.get(self._unswept.pop())
            if held is not None:
                count_max -= len(held)
                held[:] = [checkpoint for checkpoint in held if not checkpoint.is_closed]


def back_off_ms(attempts: int) -> int:
    """How long after so many failures to try again."""
    return BACK_OFF_S[min(attempts, len(BACK_OFF_S)) - 1] * 1000


def retry_topic_for(checkpoint: Checkpoint, *, is_v2: bool) -> str:
    """Where the messages of a checkpoint come back; those of a retry topic where they were."""
    if checkpoint.topic.startswith(RETRY_PREFIX):
        return checkpoint.topic
    return retry_topic_of(checkpoint.topic, checkpoint.group, RETRY_V2 if is_v2 else RETRY_V1)


def revived(
    message: StoredMessage, properties: bytes, checkpoint: Checkpoint, topic: str, queue_id: int
) -> NewMessage:
    """A message as it is sent again: the same but for its place and one more delivery counted."""
    changes = {}
    if message.reconsume_times == 0 or FIRST_POP_KEY not in message.properties:
        changes[FIRST_POP_KEY] = str(checkpoint.popped_ms)
    if message.properties.get(GROUP_KEY) != checkpoint.group:
        changes[GROUP_KEY] = checkpoint.group
    if changes:
        longer = amended_properties(properties, changes)
        properties = longer if len(longer) <= PROPERTIES_BYTES_MAX else properties
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.stored_body,
        properties=properties,
        flag=message.flag,
        system_flag=message.system_flag,
        born_at_ms=message.born_at_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times + 1,
    )


def given_up(
    message: StoredMessage, properties: bytes, checkpoint: Checkpoint, topic: str
) -> NewMessage:
    """A message as a dead letter of its group: it names its origin as every dead letter does."""
    copy = revived(message, properties, checkpoint, topic, 0)
    changes: dict[str, str | None] = {
        RETRY_TOPIC: popped_topic_of(checkpoint.topic, checkpoint.group)
    }
    if not message.properties.get(ORIGIN_MESSAGE_ID, "").strip():
        changes[ORIGIN_MESSAGE_ID] = message.offset_message_id
    longer = amended_properties(copy.properties, changes)
    return replace(copy, properties=longer) if len(longer) <= PROPERTIES_BYTES_MAX else copy


def is_copy_of(copy: StoredMessage, message: StoredMessage) -> bool:
    """Whether a message is the one that was made of another by giving it back once."""
    return (
        copy.reconsume_times == message.reconsume_times + 1
        and copy.born_at_ms == message.born_at_ms
        and copy.message_id == message.message_id
        and copy.stored_body == message.stored_body
    )
