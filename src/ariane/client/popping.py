"""Handles of popped messages: what they are made of, and where the message they mean lies.

A handle is eight words: where its checkpoint starts, when it was popped, for how long, the revive
queue, a mark that tells retry topics apart, the broker, the queue and the message's offset.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ariane.client.received import ReceivedMessage
from ariane.errors import ProtocolError
from ariane.protocol.bodies.pop import BatchAck
from ariane.protocol.headers.pop import PopReply
from ariane.topics import RETRY_PREFIX

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"


@dataclass(frozen=True, slots=True)
class Handle:
    """One message lent to a consumer."""

    start_offset: int
    popped_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a handle; raises ProtocolError."""
        words = text.split(" ")
        try:
            start, popped, invisible, revive, mark, broker, queue, offset = words
            return cls(
                int(start),
                int(popped),
                int(invisible),
                int(revive),
                mark,
                broker,
                int(queue),
                int(offset),
            )
        except ValueError as error:
            raise ProtocolError(f"{text!r} is not the handle of a popped message") from error

    def __str__(self) -> str:
        return (
            f"{self.start_offset} {self.popped_ms} {self.invisible_ms} {self.revive_queue_id}"
            f" {self.mark} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    def stored_topic(self, topic: str, group: str) -> str:
        """The topic that the message really lies in."""
        if self.mark == RETRY_V1:
            return f"{RETRY_PREFIX}{group}_{topic}"
        if self.mark == RETRY_V2:
            return f"{RETRY_PREFIX}{group}+{topic}"
        return topic

    def renewed(self, *, popped_ms: int, invisible_ms: int, revive_queue_id: int) -> Handle:
        """The handle after the message was lent for another time: a checkpoint of its own."""
        return replace(
            self,
            start_offset=self.queue_offset,
            popped_ms=popped_ms,
            invisible_ms=invisible_ms,
            revive_queue_id=revive_queue_id,
        )


def give_handles(
    messages: Sequence[ReceivedMessage], answer: PopReply, *, topic: str, broker_name: str
) -> None:
    """Work out each message's handle from what the broker says of the whole answer.

    A message from a retry topic brings its own. The others of a queue are matched, in the order of
    their offsets, with those that the answer lists for it.
    """
    starts = {key: int(values[0]) for key, values in _lists(answer.start_offsets).items()}
    listed = {
        key: [int(value) for value in values]
        for key, values in _lists(answer.message_offsets).items()
    }
    counts = {key: int(values[0]) for key, values in _lists(answer.order_counts).items()}
    without: defaultdict[str, list[ReceivedMessage]] = defaultdict(list)
    for message in messages:
        handle = message.find(b"POP_CK")
        if handle is not None:
            message.handle = handle
        else:
            without[f"{_mark(message.stored_topic, topic)} {message.queue_id}"].append(message)
    for key, group in without.items():
        group.sort(key=lambda message: message.queue_offset)
        offsets = listed.get(key) or [message.queue_offset for message in group]
        if len(offsets) < len(group):
            raise ProtocolError(f"an answer to a pop lists {len(offsets)} of {len(group)} messages")
        start = starts.get(key, group[0].queue_offset)
        mark = key.partition(" ")[0]
        for message, offset in zip(group, offsets, strict=False):
            message.handle = str(
                Handle(
                    start,
                    answer.popped_ms,
                    answer.invisible_ms,
                    answer.revive_queue_id,
                    mark,
                    broker_name,
                    message.queue_id,
                    offset,
                )
            )
            one = counts.get(f"{mark} qo{message.queue_id}%{message.queue_offset}")
            tries = counts.get(key, 0) if one is None else one
            message.reconsume_times = max(message.reconsume_times, tries)


def batch_acks(
    messages: Iterable[tuple[str, str]], group: str
) -> dict[tuple[str, str], list[BatchAck]]:
    """One acknowledgement for all messages of each checkpoint, by topic and broker.

    A message is told by the topic it was popped from and its handle.
    """
    bits: defaultdict[tuple[str, Handle], int] = defaultdict(int)
    for topic, text in messages:
        handle = Handle.of(text)
        distance = handle.queue_offset - handle.start_offset
        bits[topic, replace(handle, queue_offset=handle.start_offset)] |= 1 << distance
    acks: defaultdict[tuple[str, str], list[BatchAck]] = defaultdict(list)
    for (topic, handle), number in bits.items():
        data = number.to_bytes((number.bit_length() + 7) // 8, "little")
        acks[topic, handle.broker_name].append(
            BatchAck(
                bits=base64.b64encode(data).decode(),
                group=group,
                invisible_ms=handle.invisible_ms,
                popped_ms=handle.popped_ms,
                queue_id=handle.queue_id,
                mark=handle.mark,
                revive_queue_id=handle.revive_queue_id,
                first=handle.start_offset,
                topic=topic,
            )
        )
    return acks


def _lists(text: str | None) -> dict[str, list[str]]:
    """`mark queue values;...` as values by "mark queue"; raises ProtocolError."""
    lists = {}
    for part in (text or "").split(";"):
        if part:
            mark, _, rest = part.partition(" ")
            queue, _, values = rest.partition(" ")
            if not values:
                raise ProtocolError(f"{part!r} in an answer to a pop is not three words")
            lists[f"{mark} {queue}"] = values.split(",")
    return lists


def _mark(stored_topic: str, topic: str) -> str:
    if stored_topic == topic or not stored_topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in stored_topic else RETRY_V1
