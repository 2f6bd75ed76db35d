"""PULL_MESSAGE and its lite twin: messages when there are some, patience when there are none."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ariane.broker.filters import TAG_TYPES, MessageFilter
from ariane.broker.requests import RejectedWith, Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import Permission, PullFlag, ResponseCode
from ariane.errors import GroupNotFound, InvalidParameter, RequestRejected
from ariane.kernel.held import Held
from ariane.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from ariane.protocol.headers.pull import PullForbidden, PullHeader, PullReply
from ariane.store.messages import FoundStatus
from ariane.topics import is_readable

PullRequest = Request[PullHeader]

SUSPEND_MS_MAX: Final = 28_000  # clients give up, and close the connection, at 30 s

CODES: Final = {
    FoundStatus.FOUND: ResponseCode.SUCCESS,
    FoundStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FoundStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FoundStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    FoundStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    FoundStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    FoundStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FoundStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FoundStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
RESET: Final = "OFFSET_RESET"
NEVER_WRITTEN: Final = (FoundStatus.NO_MATCHED_LOGIC_QUEUE, FoundStatus.NO_MESSAGE_IN_QUEUE)


class Forbidder(IntEnum):
    """Who can forbid a pull."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCAST = 4
    SUBSCRIPTION = 5


class Forbidden(RejectedWith):
    """Somebody said that this group may not read here."""

    code = ResponseCode.NO_PERMISSION

    def __init__(self, forbidder: Forbidder, message: str) -> None:
        super().__init__(message)
        self.header = PullForbidden(forbidden_type=forbidder)


class Access(NamedTuple):
    """What the checks found: the pull may go on, with this filter."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    filter: MessageFilter

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """The tags to let through; None for all."""
        return self.filter.tag_codes


def pull(request: PullRequest, state: BrokerState) -> Reply | Held:
    """Answer with messages, or hold the request until some arrive or its time is up."""
    state.flow.admit_pull()
    header = request.header
    reply = carry_out(header, header.queue_offset, state)
    if header.system_flag & PullFlag.COMMIT_OFFSET and reply.remark != RESET:
        state.offsets.commit(header.topic, header.group, header.queue_id, header.commit_offset)
    if reply.code is not ResponseCode.PULL_NOT_FOUND or not header.system_flag & PullFlag.SUSPEND:
        return reply
    # Nothing ran between the read and this line, so no message can arrive unseen.
    return Held(
        request,
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=header.queue_offset,
        until_s=state.clock.monotonic_s() + suspend_s(header.suspend_ms, state),
        again=lambda first: carry_out_again(header, first, state),
        shortcut=state.lane.shortcut_of(header, request.command),
    )


def suspend_s(asked_ms: int, state: BrokerState) -> float:
    """How long a pull may be held that asks for so much."""
    asked_ms = asked_ms if state.config.long_polling else state.config.short_polling_ms
    return min(max(asked_ms, 0), SUSPEND_MS_MAX) / 1000


def carry_out(header: PullHeader, first: int, state: BrokerState) -> Reply:
    """Everything about a pull but the waiting, from a queue offset at or past the header's."""
    access = check_access(header, state)
    moved_to = state.offsets.take_reset(header.topic, header.group, header.queue_id)
    if moved_to is not None:
        return moved_reply(header, access, moved_to, state)
    return read(header, access, first, state)


def carry_out_again(header: PullHeader, first: int, state: BrokerState) -> Reply:
    """The same for one that waited: a group that was deleted meanwhile is not made again by it."""
    if state.groups.get(header.group) is None:
        raise GroupNotFound(header.group)
    return carry_out(header, first, state)


def read(header: PullHeader, access: Access, first: int, state: BrokerState) -> Reply:
    """Read the queue from `first` on; the outcome is the answer."""
    found = state.store.read(
        header.topic,
        header.queue_id,
        first,
        count_max=max(header.count_max, 1),
        tag_codes=access.tag_codes,
        expression=access.filter.expression,
    )
    if found.message_count:
        state.stats.got_by(header.topic, header.group).add(found.message_count, len(found.body))
        state.flow.answered(len(found.body))
        if access.filter.expression is None:  # the lane knows tags only
            state.lane.granted(header, access)
    state.offsets.pulled_of(header.topic, header.group)[header.queue_id] = found.next_offset
    code = CODES[found.status]
    if found.status in NEVER_WRITTEN and first != 0:
        code = ResponseCode.PULL_OFFSET_MOVED
    return Reply.of(
        pull_reply(access, found.next_offset, found.min_offset, found.max_offset),
        body=found.body,
        code=code,
        remark=found.status.name,
    )


def moved_reply(header: PullHeader, access: Access, moved_to: int, state: BrokerState) -> Reply:
    """Send the consumer to the offset an administrator set; said once."""
    min_offset = state.store.min_offset(header.topic, header.queue_id)
    max_offset = state.store.max_offset(header.topic, header.queue_id)
    return Reply.of(
        pull_reply(access, moved_to, min_offset, max_offset),
        code=ResponseCode.PULL_OFFSET_MOVED,
        remark=RESET,
    )


def pull_reply(access: Access, next_offset: int, min_offset: int, max_offset: int) -> PullReply:
    """The header of every answer to a pull that passed its checks."""
    return PullReply(
        suggested_broker_id=0,
        group_system_flag=access.group.system_flag,
        next_offset=next_offset,
        max_offset=max_offset,
        min_offset=min_offset,
        topic_system_flag=access.topic.system_flag,
    )


def check_access(header: PullHeader, state: BrokerState) -> Access:
    """Every reason to refuse a pull, in RocketMQ's order."""
    if not state.config.permission & Permission.READ:
        raise Forbidden(
            Forbidder.BROKER, f"the broker[{state.config.name}] pulling message is forbidden"
        )
    group = state.groups.for_consumer(header.group)
    if not group.consume_enabled:
        raise Forbidden(Forbidder.GROUP, f"subscription group no permission, {header.group}")
    topic = state.topics.existing(header.topic)
    if not is_readable(topic.name, topic.permission):
        raise Forbidden(Forbidder.TOPIC, f"the topic[{header.topic}] pulling message is forbidden")
    if not 0 <= header.queue_id < topic.read_queue_count:
        raise InvalidParameter(
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_count}]"
        )
    if not state.groups.may_read(header.group, header.topic):
        raise Forbidden(
            Forbidder.SUBSCRIPTION,
            f"the consumer group[{header.group}] is forbidden for topic[{header.topic}]",
        )
    return Access(topic, group, filter_of(header, group, state))


def filter_of(
    header: PullHeader, group: SubscriptionGroupConfig, state: BrokerState
) -> MessageFilter:
    """What the pull is for: its own subscription when it says so, else that of the heartbeats."""
    if header.system_flag & PullFlag.SUBSCRIPTION:
        found = state.filters.of_request(header.subscription or "", header.expression_type)
        check_supported(header.expression_type, state)
        return found
    members = state.clients.consumer_group(header.group)
    if members is None:
        raise RequestRejected(
            "the consumer's group info not exist", ResponseCode.SUBSCRIPTION_NOT_EXIST
        )
    if members.is_broadcast and not group.broadcast_enabled:
        raise Forbidden(
            Forbidder.BROADCAST,
            f"the consumer group[{header.group}] can not consume by broadcast way",
        )
    subscription = members.subscription(header.topic)
    if subscription is None:
        raise RequestRejected(
            "the consumer's subscription not exist", ResponseCode.SUBSCRIPTION_NOT_EXIST
        )
    if subscription.version < header.subscription_version:
        raise RequestRejected(
            "the consumer's subscription not latest", ResponseCode.SUBSCRIPTION_NOT_LATEST
        )
    if subscription.expression_type in TAG_TYPES:
        return MessageFilter(subscription.tag_codes)
    found = state.filters.of_group(header.topic, header.group, header.subscription_version)
    check_supported(subscription.expression_type, state)
    return found


def check_supported(expression_type: str | None, state: BrokerState) -> None:
    """Raise RequestRejected when a filter is by expression and those are switched off."""
    if expression_type not in TAG_TYPES and not state.config.property_filters:
        raise RequestRejected(
            f"The broker does not support consumer to filter message by {expression_type}; "
            "set enablePropertyFilter=true"
        )
