"""Delay levels: what a message asks for, and how it is stored while it waits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from ariane.broker.messages import TIMER_KEYS, MessageIllegal
from ariane.config import StoreConfig
from ariane.protocol.properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC, amended_properties
from ariane.store.delays import delays_ms_of
from ariane.store.messages import NewMessage
from ariane.topics import SCHEDULE_TOPIC

REPLACED_KEYS: Final = (*TIMER_KEYS, REAL_TOPIC, REAL_QUEUE_ID)  # a level wins over a time


def level_of(properties: Mapping[str, str]) -> int:
    """The delay level a message asks for; 0 or less for none; MessageIllegal if it is no number."""
    text = properties.get(DELAY, "0")
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()):
        raise MessageIllegal(f"DELAY={text!r} is not a delay level")
    return int(text)


def set_aside(
    message: NewMessage, properties: Mapping[str, str], config: StoreConfig
) -> NewMessage:
    """The message as it waits: in its level's queue, with its own topic and queue noted.

    Levels above the highest count as the highest.
    """
    level = min(level_of(properties), _level_count(config.delay_levels))
    text = message.properties
    if properties[DELAY] != str(level) or any(key in properties for key in REPLACED_KEYS):
        changes: dict[str, str | None] = dict.fromkeys(REPLACED_KEYS)
        text = amended_properties(text, changes | {DELAY: str(level)})
    real = f"{REAL_TOPIC}\x01{message.topic}\x02{REAL_QUEUE_ID}\x01{message.queue_id}\x02"
    separator = b"" if text.endswith(b"\x02") else b"\x02"
    return NewMessage(
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        body=message.body,
        properties=text + separator + real.encode(),
        born_host=message.born_host,
        born_at_ms=message.born_at_ms,
        flag=message.flag,
        system_flag=message.system_flag,
        reconsume_times=message.reconsume_times,
    )


@lru_cache(maxsize=8)
def _level_count(levels: str) -> int:
    return len(delays_ms_of(levels))
