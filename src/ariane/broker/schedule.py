"""Messages delayed by level: each waits in the schedule topic, in the queue of its level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ariane.broker.messages import TIMER_KEYS, MessageIllegal
from ariane.config import StoreConfig
from ariane.protocol.properties import amended_properties
from ariane.store.delays import delays_ms_of
from ariane.store.messages import NewMessage
from ariane.topics import SCHEDULE_TOPIC

DELAY_KEY: Final = "DELAY"
REAL_TOPIC_KEY: Final = "REAL_TOPIC"
REAL_QUEUE_KEY: Final = "REAL_QID"


def level_of(properties: Mapping[str, str]) -> int:
    """The delay level a message asks for; 0 or less for none; MessageIllegal if it is no number."""
    text = properties.get(DELAY_KEY, "0")
    try:
        return int(text)
    except ValueError:
        raise MessageIllegal(f"DELAY={text!r} is not a delay level") from None


def set_aside(message: NewMessage, level: int, config: StoreConfig) -> NewMessage:
    """The message as it waits: in its level's queue, with its own topic and queue noted."""
    level = min(level, len(delays_ms_of(config.delay_levels)))
    changes = dict.fromkeys(TIMER_KEYS) | {  # a level wins over a time
        DELAY_KEY: str(level),
        REAL_TOPIC_KEY: message.topic,
        REAL_QUEUE_KEY: str(message.queue_id),
    }
    return replace(
        message,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=amended_properties(message.properties, changes),
    )
