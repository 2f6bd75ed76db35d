"""What kind of messages a topic takes, by its attribute `message.type`.

Clients of RocketMQ 5 and Apache's proxy heed it. Apache's broker takes whatever comes by remoting,
and so does this one unless `enableTopicMessageTypeCheck` is set. A topic that declares nothing
takes every kind, as all topics of RocketMQ 4 do; so does one that declares MIXED. Retry and
dead-letter topics hold messages of any kind, whatever they declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ariane.broker.delay_levels import level_of
from ariane.broker.messages import TIMER_KEYS, MessageIllegal
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.properties import HALF, SHARDING_KEY
from ariane.topics import is_retry_or_dead_letter

ATTRIBUTE: Final = "message.type"
ANY: Final = ("UNSPECIFIED", "MIXED")
PRIORITY_KEY: Final = "_SYS_MSG_PRIORITY_"
PRIORITY: Final = "PRIORITY"


def declared_type(topic: TopicConfig) -> str | None:
    """The one kind of messages a topic takes; None when it takes all."""
    declared = topic.attributes.get(ATTRIBUTE)
    is_open = declared is None or declared in ANY or is_retry_or_dead_letter(topic.name)
    return None if is_open else declared


def type_of(properties: Mapping[str, str]) -> str:
    """What kind of message has such properties."""
    if properties.get(HALF, "").lower() == "true":
        return "TRANSACTION"
    if level_of(properties) > 0 or any(key in properties for key in TIMER_KEYS):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    return PRIORITY if PRIORITY_KEY in properties else "NORMAL"


def is_by_priority(topic: TopicConfig) -> bool:
    """Whether a topic's queues are its priorities, the highest of them popped first."""
    return declared_type(topic) == PRIORITY


def queue_of_priority(topic: TopicConfig, properties: Mapping[str, str]) -> int | None:
    """The queue of a message's priority, the last one for all above; None when it has none."""
    text = properties.get(PRIORITY_KEY, "")
    if not text.isascii() or not text.isdecimal():
        return None
    return max(min(int(text), topic.write_queue_count - 1), 0)


def check_type(topic: TopicConfig, properties: Mapping[str, str]) -> None:
    """Raise MessageIllegal for a message of a kind that the topic does not take."""
    declared = declared_type(topic)
    if declared is not None and (found := type_of(properties)) != declared:
        raise MessageIllegal(
            f"topic {topic.name} takes {declared} messages only ({ATTRIBUTE}), this one is {found}"
        )
