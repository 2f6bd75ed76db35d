"""POP_MESSAGE and its kin: messages lent for a time, and patience when there are none."""

from __future__ import annotations

from typing import Final, TypeVar

from ariane.broker.pop.polling import PopPolling, Waiting
from ariane.broker.pop.taking import Taking, Wanted, filter_of_expression
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import Permission, ResponseCode
from ariane.errors import GroupNotFound, InvalidParameter, RequestRejected
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.headers.pop import (
    NotificationHeader,
    NotificationReply,
    PeekHeader,
    PollingHeader,
    PollingReply,
    PopHeader,
    PopReply,
)
from ariane.topics import is_readable

COUNT_MAX: Final = 32
LATE_MS_MAX: Final = 500  # beyond its own patience, after which a pop is not worth looking at
INVISIBLE_MS_MAX: Final = 3 * 24 * 3600 * 1000  # as far as Apache's timer reaches
WAIT_MS_MAX: Final = 10 * 60_000
EMPTY: Final = "NO_MESSAGE_IN_QUEUE"
FOUND: Final = "FOUND"

H = TypeVar("H", PopHeader, PeekHeader, NotificationHeader, PollingHeader)


def pop(request: Request[PopHeader], state: BrokerState) -> Reply | None:
    """Lend messages, or hold the request until there are some or its time is up."""
    state.flow.admit_pull()
    header = request.header
    now_ms = state.clock.wall_ms()
    born_ms = header.born_ms or now_ms
    if now_ms - born_ms - header.poll_ms > LATE_MS_MAX:
        return Reply.of(
            PopReply(),
            code=ResponseCode.POLLING_TIMEOUT,
            remark=f"the broker[{state.config.name}] pop message is timeout too much",
        )
    taking = try_pop(header, state)
    if taking.count:
        return found_reply(header, taking, state)
    wait_ms = min(born_ms + header.poll_ms - now_ms, WAIT_MS_MAX)
    if header.poll_ms <= 0 or wait_ms <= 0:
        return empty_reply(header, taking, ResponseCode.POLLING_TIMEOUT)
    if is_full(state.pop.pops, header, state):
        return empty_reply(header, taking, ResponseCode.POLLING_FULL)
    # Nothing ran between the attempt and this line, so no message can arrive unseen.
    state.pop.pops.hold(
        Waiting(
            request,
            header.topic,
            header.group,
            header.queue_id,
            until_s=state.clock.monotonic_s() + wait_ms / 1000,
            likeness=(header.queue_id, header.expression, order_of(header)),
            again=lambda: pop_again(header, state),
            expired=lambda: empty_reply(header, taking, ResponseCode.POLLING_TIMEOUT),
        )
    )
    return None


def try_pop(header: PopHeader, state: BrokerState) -> Taking:
    """A pop with all its checks, and what it has found, which may be nothing."""
    wanted = wanted_of(header, state)
    taking = Taking(wanted, state)
    taking.take()
    if taking.count:
        state.pop.lane.popped(wanted, header.expression)
    else:
        look_again_later(header, taking, state)
    return taking


def pop_again(header: PopHeader, state: BrokerState) -> Reply | None:
    """The answer to a pop that waits, when there are messages now."""
    refuse_deleted(header.group, state)
    taking = try_pop(header, state)
    return found_reply(header, taking, state) if taking.count else None


def look_again_later(header: PopHeader, taking: Taking, state: BrokerState) -> None:
    """Have the pop tried again when a queue is free again, or at once when it was not through."""
    if taking.is_unfinished:
        state.pop.pops.look_at(header.topic, 0.0)
    elif taking.blocked_for_ms:
        state.pop.pops.look_at(header.topic, taking.blocked_for_ms / 1000)


def wanted_of(header: PopHeader, state: BrokerState) -> Wanted:
    """Every reason to refuse a pop, in RocketMQ's order; then what it asks for."""
    refuse_unreadable_broker(state, "pop message")
    if not 0 < header.count_max <= COUNT_MAX:
        raise InvalidParameter(
            f"the broker[{state.config.name}] pop message's num is {header.count_max};"
            f" it may be 1 to {COUNT_MAX}"
        )
    check_invisible(header.invisible_ms)
    topic = readable_topic(header, state)
    check_group(header.group, state)
    message_filter = filter_of_expression(header.expression or "*", header.expression_type)
    return Wanted(
        topic,
        header.group,
        max(header.queue_id, -1),
        header.count_max,
        header.invisible_ms,
        starts_last=header.init_mode != 0,
        is_ordered=bool(header.is_ordered),
        attempt_id=header.attempt_id,
        filter=message_filter,
    )


def pop_reply(header: PopHeader, taking: Taking) -> PopReply:
    """What clients make the handles of."""
    return PopReply(
        popped_ms=taking.popped_ms,
        invisible_ms=header.invisible_ms,
        revive_queue_id=taking.revive_queue_id,
        rest_count=taking.rest_count,
        start_offsets=";".join(taking.starts),
        message_offsets=";".join(taking.offsets),
        order_counts=";".join(taking.counts) if header.is_ordered else None,
    )


def found_reply(header: PopHeader, taking: Taking, state: BrokerState) -> Reply:
    """The answer to a pop that has found messages."""
    body = b"".join(taking.bodies)
    state.flow.answered(len(body))
    return Reply.of(pop_reply(header, taking), body=body, remark=FOUND)


def empty_reply(header: PopHeader, taking: Taking, code: ResponseCode) -> Reply:
    """The answer to a pop that has found nothing."""
    return Reply.of(pop_reply(header, taking), code=code, remark=EMPTY)


def peek_messages(request: Request[PeekHeader], state: BrokerState) -> Reply:
    """Show what the next pop would give."""
    header = request.header
    refuse_unreadable_broker(state, "peeking message")
    topic = readable_topic(header, state)
    check_group(header.group, state)
    count_max = min(max(header.count_max, 1), COUNT_MAX)
    taking = Taking(Wanted(topic, header.group, max(header.queue_id, -1), count_max), state)
    taking.peek()
    answer = PopReply(rest_count=taking.rest_count)
    if not taking.count:
        return Reply.of(answer, code=ResponseCode.PULL_NOT_FOUND, remark=EMPTY)
    return Reply.of(answer, body=b"".join(taking.bodies), remark=FOUND)


def notification(request: Request[NotificationHeader], state: BrokerState) -> Reply | None:
    """Say that there is something to pop, as soon as there is."""
    header = request.header
    reply = try_notification(header, state)
    if reply is not None:
        return reply
    now_ms = state.clock.wall_ms()
    wait_ms = min((header.born_ms or now_ms) + header.poll_ms - now_ms, WAIT_MS_MAX)
    if header.poll_ms <= 0 or wait_ms <= 0:
        return Reply.of(NotificationReply())
    if is_full(state.pop.notices, header, state):
        return Reply.of(NotificationReply(is_full=True))
    state.pop.notices.hold(
        Waiting(
            request,
            header.topic,
            header.group,
            header.queue_id,
            until_s=state.clock.monotonic_s() + wait_ms / 1000,
            likeness=(header.queue_id, order_of(header)),
            again=lambda: notify_again(header, state),
            expired=lambda: Reply.of(NotificationReply()),
        )
    )
    return None


def try_notification(header: NotificationHeader, state: BrokerState) -> Reply | None:
    """The answer when there is something to pop, with all checks."""
    refuse_unreadable_broker(state, "peeking message")
    topic = readable_topic(header, state)
    check_group(header.group, state)
    wanted = Wanted(
        topic,
        header.group,
        max(header.queue_id, -1),
        count_max=1,
        is_ordered=bool(header.is_ordered),
        attempt_id=header.attempt_id,
    )
    has_message = Taking(wanted, state).has_messages()
    return Reply.of(NotificationReply(has_message=True)) if has_message else None


def notify_again(header: NotificationHeader, state: BrokerState) -> Reply | None:
    """The answer to a notification that waits, when there is something now."""
    refuse_deleted(header.group, state)
    return try_notification(header, state)


def polling_info(request: Request[PollingHeader], state: BrokerState) -> Reply:
    """How many pops wait for a queue."""
    header = request.header
    refuse_unreadable_broker(state, "peeking message")
    readable_topic(header, state)
    check_group(header.group, state)
    count = state.pop.pops.count(header.topic, header.group, header.queue_id)
    return Reply.of(PollingReply(waiting_count=count))


def pop_rollback(request: Request[None], state: BrokerState) -> Reply:
    """Move pop records from RocksDB to the revive topic: they are nowhere else here."""
    return Reply.of()


def is_full(
    polling: PopPolling, header: PopHeader | NotificationHeader, state: BrokerState
) -> bool:
    """Whether too many wait already, in all or for the same."""
    config = state.config
    waiting = polling.count(header.topic, header.group, header.queue_id)
    return len(polling) >= config.waiting_pops_max or waiting >= config.waiting_pops_per_queue_max


def refuse_unreadable_broker(state: BrokerState, what: str) -> None:
    """Raise unless the broker may be read from."""
    if not state.config.permission & Permission.READ:
        raise RequestRejected(
            f"the broker[{state.config.name}] {what} is forbidden", ResponseCode.NO_PERMISSION
        )


def readable_topic(header: H, state: BrokerState) -> TopicConfig:
    """The topic, if it may be read and has the queue asked for."""
    topic = state.topics.existing(header.topic)
    if not is_readable(topic.name, topic.permission):
        raise RequestRejected(
            f"the topic[{header.topic}] peeking message is forbidden", ResponseCode.NO_PERMISSION
        )
    if header.queue_id >= topic.read_queue_count:
        raise InvalidParameter(
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_count}]"
        )
    return topic


def check_group(name: str, state: BrokerState) -> None:
    """Raise unless the group is there, or may be made, and may consume."""
    group = state.groups.for_consumer(name)
    if not group.consume_enabled:
        raise RequestRejected(
            f"subscription group no permission, {name}", ResponseCode.NO_PERMISSION
        )


def refuse_deleted(group: str, state: BrokerState) -> None:
    """Raise when the group is gone: a request that has waited does not make it again."""
    if state.groups.get(group) is None:
        raise GroupNotFound(group)


def order_of(header: PopHeader | NotificationHeader) -> tuple[bool, str | None]:
    """Whether the pop is in order, and the attempt then: it may have again what it was given.

    Any other finds the same whatever its attempt, though proxies give each one.
    """
    return (True, header.attempt_id) if header.is_ordered else (False, None)


def check_invisible(invisible_ms: int) -> None:
    """Raise unless messages may be lent for so long."""
    if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
        raise InvalidParameter(
            f"invisibleTime={invisible_ms} is not between 0 and {INVISIBLE_MS_MAX} (three days)"
        )
