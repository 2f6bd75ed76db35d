"""Topics: making, changing and deleting them; what they are, what they hold, who reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ariane.broker.handlers.answers import answer_when_routed
from ariane.broker.pop.handles import RETRY_V1, RETRY_V2, retry_topic_of
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode
from ariane.errors import InvalidParameter
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigList,
    TopicList,
    TopicOffset,
    TopicStats,
)
from ariane.protocol.headers.topics import AllTopicsHeader, CreateTopicHeader, TopicHeader
from ariane.topics import SYSTEM_TOPICS, is_system_group

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


def create_topic(request: Request[CreateTopicHeader], state: BrokerState) -> None:
    """Make a topic, or change it to be as asked."""
    header = request.header
    if header.filter_type not in FILTER_TYPES:
        raise InvalidParameter(f"topicFilterType {header.filter_type!r} is not SINGLE_TAG")
    topic = TopicConfig(
        name=header.topic,
        read_queue_count=header.read_queue_count,
        write_queue_count=header.write_queue_count,
        permission=header.permission,
        filter_type=header.filter_type,
        system_flag=header.system_flag or 0,
        is_ordered=header.is_ordered,
    )
    state.topics.update(topic, header.attributes or "")
    answer_when_routed(request, state)


def create_topics(request: Request[None], state: BrokerState) -> None:
    """Make or change several topics, all of them or none."""
    topics = fastjson.decode(request.body, TopicConfigList).topics
    state.topics.update_all(topics)
    answer_when_routed(request, state)


def delete_topic(request: Request[TopicHeader], state: BrokerState) -> None:
    """Delete a topic with its queues and everybody's progress on it."""
    name = request.header.topic
    if not name.strip():
        raise InvalidParameter("the topic name is empty")
    if state.topics.is_system(name):
        raise InvalidParameter(f"topic {name!r} is the broker's own and stays")
    doomed: list[str] = []
    for topic in (name, *pop_retry_topics_of(name, state)):
        if state.topics.get(topic) is not None:
            state.topics.delete(topic)
            state.offsets.delete_topic(topic)
            state.filters.delete_topic(topic)
            state.stats.forget_topic(topic)
            doomed.append(topic)
        elif state.store.has_queues(topic):  # they could not be deleted when the topic was
            doomed.append(topic)
    delete_queues(
        doomed,
        state,
        lambda: answer_when_routed(request, state),
        request.answer,
    )


def delete_queues(
    topics: Sequence[str],
    state: BrokerState,
    deleted: Callable[[], None],
    refuse: Callable[[Reply], None],
) -> None:
    """Have the queues of topics removed, which takes syncs off the loop; then call `deleted`."""
    left = list(topics)

    def gone(fault: Exception | None) -> None:
        if fault is not None:
            refuse(Reply.refusal(ResponseCode.SYSTEM_ERROR, f"not deleted: {fault}"))
        elif left:
            state.store.delete_topic(left.pop(0), gone)
        else:
            deleted()

    gone(None)


def pop_retry_topics_of(name: str, state: BrokerState) -> list[str]:
    """The topics through which messages of a topic come back to the groups that pop it."""
    marks = (RETRY_V1, RETRY_V2)
    groups = state.offsets.groups_of(name)
    return [retry_topic_of(name, group, mark) for group in groups for mark in marks]


def all_topics(request: Request[AllTopicsHeader], state: BrokerState) -> Reply:
    """Every topic's configuration, in one page whatever was asked."""
    return Reply.of(body=fastjson.encode(state.topics.table()))


def topic_config(request: Request[TopicHeader], state: BrokerState) -> Reply:
    """One topic's configuration."""
    return Reply.of(body=fastjson.encode(state.topics.existing(request.header.topic)))


def topic_stats(request: Request[TopicHeader], state: BrokerState) -> Reply:
    """What each queue of a topic holds, and how fast the topic grows."""
    topic = state.topics.existing(request.header.topic)
    offsets = {}
    for queue_id in range(max(topic.read_queue_count, topic.write_queue_count)):
        queue = MessageQueue(broker_name=state.config.name, queue_id=queue_id, topic=topic.name)
        offsets[queue] = queue_bounds(topic.name, queue_id, state)
    minute, _, _ = state.stats.rates(topic.name)
    body = TopicStats(offsets=offsets, put_rate=minute.messages_per_s)
    return Reply.of(body=fastjson.encode(body))


def queue_bounds(topic: str, queue_id: int, state: BrokerState) -> TopicOffset:
    """First and next offset of a queue, and when its newest message was stored."""
    end = max(state.store.max_offset(topic, queue_id), 0)
    return TopicOffset(
        min_offset=max(state.store.min_offset(topic, queue_id), 0),
        max_offset=end,
        last_update_ms=state.store.store_ms_at(topic, queue_id, end - 1) if end else 0,
    )


def topic_groups(request: Request[TopicHeader], state: BrokerState) -> Reply:
    """The groups that subscribe to a topic now, have progress on it, or were given some of it.

    Whoever reads without committing shows in the last way only; tools are left out of that.
    """
    topic = request.header.topic
    given = [group for group in state.stats.groups_of(topic) if not is_system_group(group)]
    groups = {*state.clients.groups_on(topic), *state.offsets.groups_of(topic), *given}
    return Reply.of(body=fastjson.encode(GroupList(groups=sorted(groups))))


def system_topics(request: Request[None], state: BrokerState) -> Reply:
    """The names that belong to the broker itself."""
    own = [topic.name for topic in state.topics if state.topics.is_system(topic.name)]
    return Reply.of(body=fastjson.encode(TopicList(topics=sorted({*own, *SYSTEM_TOPICS}))))
