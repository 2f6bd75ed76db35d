"""Subscription groups: making, changing and deleting them, and how far they have come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ariane.broker.handlers.answers import answer_when_saved
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.errors import GroupNotFound
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumeStats,
    GroupConfigList,
    MessageQueue,
    OffsetProgress,
    SubscriptionGroupConfig,
    TopicList,
)
from ariane.protocol.bodies.statistics import AllConsumeStats, TimeSpan, TimeSpans
from ariane.protocol.headers.groups import (
    AllGroupsHeader,
    AllStatsHeader,
    ConsumeStatsHeader,
    DeleteGroupHeader,
    GroupHeader,
)

CHECKPOINTS_MAX: Final = 100_000  # looked through for one answer
LENT_MAX: Final = 10_000  # of one queue, told in one answer

Lent = dict[tuple[str, str, int], list[int]]  # (topic, group, queue) -> queue offsets


def create_group(request: Request[None], state: BrokerState) -> None:
    """Make a group, or change it to be as asked."""
    state.groups.update([fastjson.decode(request.body, SubscriptionGroupConfig)])
    answer_when_saved(request, state.groups.file)


def create_groups(request: Request[None], state: BrokerState) -> None:
    """Make or change several groups, all of them or none."""
    state.groups.update(fastjson.decode(request.body, GroupConfigList).groups)
    answer_when_saved(request, state.groups.file)


def delete_group(request: Request[DeleteGroupHeader], state: BrokerState) -> None:
    """Delete a group, and its progress too when asked."""
    header = request.header
    state.groups.delete(header.group)
    state.filters.delete_group(header.group)
    if header.clean_offset:
        state.offsets.delete_group(header.group)
    answer_when_saved(request, state.groups.file)


def all_groups(request: Request[AllGroupsHeader], state: BrokerState) -> Reply:
    """Every group's configuration, in one page whatever was asked."""
    return Reply.of(body=fastjson.encode(state.groups.table()))


def group_config(request: Request[GroupHeader], state: BrokerState) -> Reply:
    """One group's configuration."""
    group = state.groups.get(request.header.group)
    if group is None:
        raise GroupNotFound(request.header.group)
    return Reply.of(body=fastjson.encode(group))


def group_topics(request: Request[GroupHeader], state: BrokerState) -> Reply:
    """The topics a group has progress on."""
    topics = sorted(state.offsets.topics_of(request.header.group))
    host, port = state.store_host
    return Reply.of(body=fastjson.encode(TopicList(broker_address=f"{host}:{port}", topics=topics)))


def consume_stats(request: Request[ConsumeStatsHeader], state: BrokerState) -> Reply:
    """How far a group has come in each queue of the topics asked for, or of all it reads."""
    header = request.header
    if header.topics:
        topics: Iterable[str] = [name for name in header.topics.split(";") if name]
    else:
        asked = [header.topic] if header.topic else state.offsets.topics_of(header.group)
        topics = [name for name in asked if is_read_by(header.group, name, state)]
    lent = lent_by(header.group, state)
    return Reply.of(body=fastjson.encode(stats_of(header.group, topics, lent, state)))


def is_read_by(group: str, topic: str, state: BrokerState) -> bool:
    """Whether the group reads the topic, as far as is known of one that is offline."""
    online = state.clients.consumer_group(group)
    return online is None or not online.subscriptions or topic in online.subscriptions


def lent_by(group: str | None, state: BrokerState) -> Lent | None:
    """What groups hold by popping; None when there is so much that looking would take long."""
    checkpoints = state.pop.checkpoints
    return None if len(checkpoints) > CHECKPOINTS_MAX else checkpoints.lent(group)


def stats_of(
    group: str, topics: Iterable[str], lent: Lent | None, state: BrokerState
) -> ConsumeStats:
    """The group's progress in every queue of the topics that exist."""
    offsets = {}
    rate = 0.0
    for name in topics:
        topic = state.topics.get(name)
        if topic is None:
            continue
        for queue_id in range(topic.read_queue_count):
            queue = MessageQueue(broker_name=state.config.name, queue_id=queue_id, topic=name)
            offsets[queue] = progress_of(group, name, queue_id, lent, state)
        minute, _, _ = state.stats.rates(f"{name}@{group}")
        rate += minute.messages_per_s
    return ConsumeStats(consume_rate=rate, offsets=offsets)


def progress_of(
    group: str, topic: str, queue_id: int, lent: Lent | None, state: BrokerState
) -> OffsetProgress:
    """The group's progress in one queue, and when the last message it consumed was stored.

    What was popped and is not acknowledged is not consumed.
    """
    committed = max(state.offsets.get(topic, group, queue_id) or 0, 0)
    held = sorted((lent or {}).get((topic, group, queue_id), ()))
    consume_offset = min([committed, *held[:1]])
    is_told = lent is not None and (held or pops(group, state)) and len(held) <= LENT_MAX
    last_ms = state.store.store_ms_at(topic, queue_id, consume_offset - 1) if consume_offset else 0
    return OffsetProgress(
        broker_offset=max(state.store.max_offset(topic, queue_id), 0),
        consume_offset=consume_offset,
        last_ms=max(last_ms, 0),
        lent_offsets=held if is_told else None,
        pull_offset=max(committed, state.offsets.pulled(topic, group, queue_id) or 0),
    )


def pops(group: str, state: BrokerState) -> bool:
    """Whether the group's members pop, as far as they say so."""
    online = state.clients.consumer_group(group)
    return online is not None and online.consume_type == "CONSUME_POP"


def consume_times(request: Request[GroupHeader], state: BrokerState) -> Reply:
    """How far behind a group is in each queue of a topic, in time."""
    group = request.header.group
    topic = state.topics.existing(request.header.topic or "")
    spans = [
        time_span(group, topic.name, queue_id, state) for queue_id in range(topic.write_queue_count)
    ]
    return Reply.of(body=fastjson.encode(TimeSpans(spans=spans)))


def time_span(group: str, topic: str, queue_id: int, state: BrokerState) -> TimeSpan:
    """The times of a queue's first, last and last consumed message."""
    store = state.store
    end = store.max_offset(topic, queue_id)
    consume_offset = max(state.offsets.get(topic, group, queue_id) or 0, 0)
    first_ms = store.earliest_store_ms(topic, queue_id)
    delay_ms = 0
    if consume_offset < end:
        next_ms = store.store_ms_at(topic, queue_id, consume_offset)
        delay_ms = state.clock.wall_ms() - next_ms if next_ms > 0 else 0
    return TimeSpan(
        consume_ms=store.store_ms_at(topic, queue_id, consume_offset - 1)
        if consume_offset
        else first_ms,
        delay_ms=delay_ms,
        last_ms=store.store_ms_at(topic, queue_id, end - 1) if end else -1,
        queue=MessageQueue(broker_name=state.config.name, queue_id=queue_id, topic=topic),
        first_ms=first_ms,
    )


def all_consume_stats(request: Request[AllStatsHeader], state: BrokerState) -> Reply:
    """How far every group has come, and by how much they are behind in all."""
    total_behind = total_in_flight = 0
    lent = lent_by(None, state)
    listed: list[dict[str, list[ConsumeStats]]] = []
    for group in state.groups:
        found = []
        for name in state.offsets.topics_of(group.name):
            topic = state.topics.get(name)
            if topic is None or (request.header.is_order and not topic.is_ordered):
                continue
            if not is_read_by(group.name, name, state):
                continue
            stats = stats_of(group.name, [name], lent, state)
            total_behind += sum(p.broker_offset - p.consume_offset for p in stats.offsets.values())
            total_in_flight += sum(p.pull_offset - p.consume_offset for p in stats.offsets.values())
            found.append(stats)
        listed.append({group.name: found})
    host, port = state.store_host
    body = AllConsumeStats(
        broker_address=f"{host}:{port}",
        groups=listed,
        total_behind=total_behind,
        total_in_flight=total_in_flight,
    )
    return Reply.of(body=fastjson.encode(body))
