"""What became of a message in each group: pure conclusions from what its broker says.

The names are RocketMQ's. A broker of ours says more than Apache's, so more is known: what a group
that pops holds and has not acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ariane.protocol.bodies import ConsumerConnections, ConsumeStats, SubscriptionData
from ariane.protocol.bodies.clients import BROADCASTING
from ariane.protocol.bodies.statistics import OffsetProgress
from ariane.protocol.message import StoredMessage

TAG_TYPES: Final = ("", "TAG")


class TrackType(Enum):
    """What became of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"  # passed over: the group does not want it
    PULL = "PULL"  # the group reads where it likes
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"  # every member reads it, and keeps its own place
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Track:
    """What became of a message in one group."""

    group: str
    type: TrackType
    is_passed: bool | None = None  # whether the group is past the message; None when nobody knows
    detail: str = ""


def track_of(
    group: str,
    message: StoredMessage,
    members: ConsumerConnections | None,
    stats: ConsumeStats,
    *,
    is_wanted: bool | None = None,
) -> Track:
    """Conclude from a group's members, if it is online, and its progress on the message's broker.

    `is_wanted` says whether the group's expression lets the message through, where that matters.
    """
    progress = next(
        (
            found
            for queue, found in stats.offsets.items()
            if (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
        ),
        None,
    )
    if members is None:
        return Track(group, TrackType.NOT_ONLINE, _is_passed(message, progress, pops=False))
    if members.consume_type == "CONSUME_ACTIVELY":
        return Track(group, TrackType.PULL, _is_passed(message, progress, pops=False))
    if members.message_model == BROADCASTING:
        return Track(group, TrackType.CONSUME_BROADCASTING)
    is_passed = _is_passed(message, progress, pops=members.consume_type == "CONSUME_POP")
    if is_passed is None:
        return Track(
            group, TrackType.UNKNOWN, detail="popped; the broker does not say whether acknowledged"
        )
    if not is_passed:
        return Track(group, TrackType.NOT_CONSUME_YET, is_passed)
    subscription = members.subscriptions.get(message.topic)
    if subscription is None or _is_wanted(message, subscription, is_wanted):
        return Track(group, TrackType.CONSUMED, is_passed)
    return Track(group, TrackType.CONSUMED_BUT_FILTERED, is_passed)


def filters_by_expression(subscription: SubscriptionData | None) -> bool:
    """Whether only a broker can tell what the subscription lets through."""
    return subscription is not None and subscription.expression_type not in TAG_TYPES


def _is_passed(
    message: StoredMessage, progress: OffsetProgress | None, *, pops: bool
) -> bool | None:
    if progress is None:
        return False
    if progress.lent_offsets is not None:
        has_come = progress.pull_offset > message.queue_offset
        return has_come and message.queue_offset not in progress.lent_offsets
    is_passed = progress.consume_offset > message.queue_offset
    return None if pops and is_passed else is_passed


def _is_wanted(
    message: StoredMessage, subscription: SubscriptionData, is_wanted: bool | None
) -> bool:
    if filters_by_expression(subscription):
        return is_wanted is not False
    tags = set(subscription.tags)
    return not tags or "*" in tags or message.tags in tags
