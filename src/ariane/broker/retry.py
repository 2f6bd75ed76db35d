"""What becomes of a message that could not be consumed: tried again later, or a dead letter.

Pure: a record and a request in, the message to be placed out. A copy keeps its identity: body,
flags, birth, keys and unique key are the original's, RETRY_TOPIC names the topic it was sent to
and ORIGIN_MESSAGE_ID the record that held it first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ariane.protocol.message import StoredMessage
from ariane.protocol.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    amended_properties,
)
from ariane.store.messages import NewMessage
from ariane.topics import dead_letter_topic_of, retry_topic_of

FIRST_LEVEL: Final = 3  # of the first retry, one more for each that follows: 10 s, 30 s, 1 min ...
RETRY_MAX_VERSION_MIN: Final = 121  # 3.4.9: older clients fill maxReconsumeTimes with anything


@dataclass(frozen=True, slots=True)
class Return:
    """A message given back by a consumer of a group."""

    group: str
    level: int  # 0: by the number of tries so far; below: never again
    retries_max: int

    def gives_up(self, reconsume_times: int) -> bool:
        """Whether a message tried again so often becomes a dead letter."""
        return reconsume_times >= self.retries_max or self.level < 0

    def topic_for(self, reconsume_times: int) -> str:
        """Where a message tried again so often goes."""
        if self.gives_up(reconsume_times):
            return dead_letter_topic_of(self.group)
        return retry_topic_of(self.group)

    def copy_of(self, record: StoredMessage, properties: bytes, queue_id: int) -> NewMessage:
        """The message to be placed, or to be delayed by the level it carries."""
        level = self.level or FIRST_LEVEL + record.reconsume_times
        changes: dict[str, str | None] = {
            DELAY: "0" if self.gives_up(record.reconsume_times) else str(level),
            WAIT: "false",
        }
        if RETRY_TOPIC not in record.properties:
            changes[RETRY_TOPIC] = record.topic
        if not record.properties.get(ORIGIN_MESSAGE_ID, "").strip():
            changes[ORIGIN_MESSAGE_ID] = record.offset_message_id
        return NewMessage(
            topic=self.topic_for(record.reconsume_times),
            queue_id=queue_id,
            body=record.stored_body,
            properties=amended_properties(properties, changes),
            born_host=record.born_host,
            born_at_ms=record.born_at_ms,
            flag=record.flag,
            system_flag=record.system_flag,
            reconsume_times=record.reconsume_times + 1,
        )


def retries_max(asked: int | None, version: int, group_max: int) -> int:
    """How often a message may be tried again: as the client asks, else as the group is set."""
    return group_max if asked is None or version < RETRY_MAX_VERSION_MIN else asked
