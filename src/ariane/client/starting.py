"""Where a group begins that has not told yet how far it got, by RocketMQ's rules.

What the group committed always counts first. And a broker answers 0 by itself while a queue still
has its first message, so a new group reads a young topic from its start whatever it asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from ariane.client.offset_stores import OffsetStore
from ariane.client.pulling import Puller
from ariane.client.times import milliseconds_of
from ariane.protocol.bodies import MessageQueue
from ariane.topics import RETRY_PREFIX

FIRST: Final = "CONSUME_FROM_FIRST_OFFSET"
LAST: Final = "CONSUME_FROM_LAST_OFFSET"
TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: `Start.LAST` (only new messages), `Start.FIRST`, or `Start.at(moment)`."""

    where: str
    moment_ms: int = 0

    FIRST: ClassVar[Start]
    LAST: ClassVar[Start]

    @staticmethod
    def at(moment: datetime) -> Start:
        """With the first message stored at this moment."""
        return Start(TIMESTAMP, milliseconds_of(moment))


Start.FIRST = Start(FIRST)
Start.LAST = Start(LAST)


async def first_position(
    start: Start, queue: MessageQueue, store: OffsetStore, puller: Puller
) -> int:
    """The offset to begin at; raises ClientError while nobody can tell."""
    stored = await store.read(queue)
    if stored is not None and stored >= 0:
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start.where == FIRST:
        return await puller.min_offset(queue)
    if start.where == TIMESTAMP:
        # What failed before that moment is not wanted either; when it failed nobody knows.
        if is_retry:
            return await puller.max_offset(queue)
        return await puller.offset_at(queue, start.moment_ms)
    if is_retry:
        return 0  # what failed is not old news: it is taken from the start
    end = await puller.max_offset(queue)
    if end == 0:
        return 0
    # What was empty when we asked may have got its first message since, which is not old either.
    stored = await store.read(queue)
    return end if stored is None or stored < 0 else stored
