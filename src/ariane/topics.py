"""Topic and group names: what is legal, what is the system's own, how retry names are made."""

from __future__ import annotations

import re
from typing import Final

from ariane.codes import Permission

TOPIC_BYTES_MAX: Final = 127
RETRY_TOPIC_BYTES_MAX: Final = 255
GROUP_BYTES_MAX: Final = 120
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATION_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
STAGING_TOPIC: Final = "rmq_sys_ARIANE_STAGING"  # rows on their way, and the journal of batches

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_POP_RETRY_NAME: Final = re.compile(r"%RETRY%[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+")  # group+topic

# Clients may not send to these (RocketMQ's own list).
SEND_FORBIDDEN: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OPERATION_TOPIC,
        DISCARD_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPICS: Final = SEND_FORBIDDEN | {
    AUTO_CREATE_TOPIC,
    "BenchmarkTest",
    TRACE_TOPIC,
    TIMER_TOPIC,
}
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def retry_topic_of(group: str) -> str:
    """The topic that holds a group's messages waiting to be tried again."""
    return RETRY_PREFIX + group


def reply_topic_of(cluster: str) -> str:
    """The topic that a cluster's replies to requests go through."""
    return cluster + "_REPLY_TOPIC"


def dead_letter_topic_of(group: str) -> str:
    """The topic that holds what a group gave up on."""
    return DEAD_LETTER_PREFIX + group


def is_retry_or_dead_letter(topic: str) -> bool:
    """Whether the topic was made for a group rather than by a user."""
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def is_readable(topic: str, permission: int) -> bool:
    """Whether somebody who asks for the topic by name may read it.

    Dead letters are made without the right to read, so that other clients' consumers find no queues
    of theirs. Nobody could look at them then, so here the right to write is enough.
    """
    is_dead_letter = topic.startswith(DEAD_LETTER_PREFIX)
    return bool(permission & (Permission.READ | (Permission.WRITE if is_dead_letter else 0)))


def is_system_topic(topic: str) -> bool:
    """Whether the topic belongs to the broker itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the group belongs to the broker itself."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_internal_topic(topic: str) -> bool:
    """Whether the topic holds what is not, or not yet, meant for anybody."""
    return topic in (SCHEDULE_TOPIC, HALF_TOPIC, OPERATION_TOPIC) or topic.startswith(
        SYSTEM_TOPIC_PREFIX
    )


def topic_fault(topic: str) -> str | None:
    """Why the name cannot be a topic's, or None when it can.

    Names become directories, so this is a safety rule.
    """
    if not topic:
        return "the topic name is empty"
    bytes_max = RETRY_TOPIC_BYTES_MAX if is_retry_or_dead_letter(topic) else TOPIC_BYTES_MAX
    if len(topic) > bytes_max:
        return f"the topic name is longer than {bytes_max} characters"
    if _NAME.fullmatch(topic) is None and _POP_RETRY_NAME.fullmatch(topic) is None:
        return f"the topic name {topic!r} may only hold letters, digits and % | _ -"
    return None


def group_fault(group: str) -> str | None:
    """Why the name cannot be a group's, or None when it can."""
    if not group:
        return "the group name is empty"
    if len(group) > GROUP_BYTES_MAX:
        return f"the group name is longer than {GROUP_BYTES_MAX} characters"
    if _NAME.fullmatch(group) is None:
        return f"the group name {group!r} may only hold letters, digits and % | _ -"
    return None


def revive_topic_of(cluster: str) -> str:
    """The topic that is the journal of pops."""
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"
