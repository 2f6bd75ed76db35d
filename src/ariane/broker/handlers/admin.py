"""The broker as a whole: its condition, settings, counts, queue entries, and cleaning up."""

from __future__ import annotations

from typing import Final

from ariane.broker.handlers.answers import answer_when_saved
from ariane.broker.requests import Reply, Request
from ariane.broker.runtime_info import runtime_info
from ariane.broker.state import BrokerState
from ariane.broker.stats import GOT_TOTAL, PUT_TOTAL, Rate
from ariane.config import parse_properties, properties_of
from ariane.errors import InvalidParameter, RequestRejected
from ariane.protocol import fastjson
from ariane.protocol.bodies import KeyValueTable
from ariane.protocol.bodies.statistics import QueueEntries, QueueEntry, Sample, Samples
from ariane.protocol.headers.query import ConfigReply, ConsumeQueueHeader, StatisticsHeader

ENTRIES_MAX: Final = 10_000  # in one answer to a look at a queue


def broker_info(request: Request[None], state: BrokerState) -> Reply:
    """The broker's condition."""
    return Reply.of(body=fastjson.encode(KeyValueTable(table=runtime_info(state))))


def broker_config(request: Request[None], state: BrokerState) -> Reply:
    """Every setting as properties text."""
    settings = properties_of(state.config) | properties_of(state.store_config)
    text = "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
    version = fastjson.encode(state.updates.version).decode()
    return Reply.of(ConfigReply(version=version), body=text.encode())


def update_config(request: Request[None], state: BrokerState) -> None:
    """Change settings that may be changed while the broker runs."""
    try:
        text = request.body.decode()
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"the settings are not UTF-8 text: {error}") from error
    state.updates.update(state, parse_properties(text))
    answer_when_saved(request, state.updates.file)


def stats_data(request: Request[StatisticsHeader], state: BrokerState) -> Reply:
    """What was counted under a name in the last minute, hour and day."""
    name, key = request.header.name, request.header.key
    windows = state.stats.rates(counted_key(name, key, state))
    minute, hour, day = (sample_of(name, window) for window in windows)
    return Reply.of(body=fastjson.encode(Samples(day=day, hour=hour, minute=minute)))


def counted_key(name: str, key: str, state: BrokerState) -> str:
    """Where a statistic of RocketMQ's is counted here, or RequestRejected when it is not."""
    if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE") and state.topics.get(key) is not None:
        return key
    if name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE") and key in state.stats.got:
        return key
    if name == "BROKER_PUT_NUMS" and key == state.config.cluster:
        return PUT_TOTAL
    if name == "BROKER_GET_NUMS" and key == state.config.cluster:
        return GOT_TOTAL
    raise RequestRejected(f"The stats <{name}> <{key}> not exist")


def sample_of(name: str, window: Rate) -> Sample:
    """A window in messages, or in bytes for statistics of size."""
    if name.endswith("SIZE"):
        average = window.bytes / window.messages if window.messages else 0.0
        return Sample(average=average, sum=window.bytes, per_s=window.bytes_per_s)
    return Sample(
        average=1.0 if window.messages else 0.0, sum=window.messages, per_s=window.messages_per_s
    )


def queue_entries(request: Request[ConsumeQueueHeader], state: BrokerState) -> Reply:
    """Entries of a consume queue, as they are stored."""
    header = request.header
    topic = state.topics.existing(header.topic)
    if not 0 <= header.queue_id < max(topic.read_queue_count, topic.write_queue_count):
        raise RequestRejected(f"{header.queue_id}@{header.topic} is not exist!")
    first = state.store.min_offset(header.topic, header.queue_id)
    end = state.store.max_offset(header.topic, header.queue_id)
    wanted = range(
        max(header.queue_offset, first),
        min(header.queue_offset + min(header.count_max, ENTRIES_MAX), end),
    )
    subscription = filter_data = None
    if header.group is not None:
        found = state.clients.subscription(header.group, header.topic)
        subscription = found and found.data
        filter_data = None if found else f"{header.group}@{header.topic} is not online!"
    body = QueueEntries(
        filter_data=filter_data,
        max_offset=end,
        min_offset=first,
        entries=[entry_at(header, queue_offset, state) for queue_offset in wanted],
        subscription=subscription,
    )
    return Reply.of(body=fastjson.encode(body))


def clean_store(request: Request[None], state: BrokerState) -> Reply:
    """Remove segments past their time now, whatever the hour, and what points into them."""
    state.store.clean(is_asked=True)
    return Reply.of()


def clean_unused_topics(request: Request[None], state: BrokerState) -> Reply:
    """Remove the queues of topics that are no more."""
    for topic in state.store.topics():
        if state.topics.get(topic) is None and not state.topics.is_system(topic):
            state.store.delete_topic(topic)
    return Reply.of()


def entry_at(header: ConsumeQueueHeader, queue_offset: int, state: BrokerState) -> QueueEntry:
    """One entry of a queue."""
    queue = state.store.queue(header.topic, header.queue_id)
    log_offset, size, tags_code = queue.entry(queue_offset) or (0, 0, 0)
    return QueueEntry(log_offset=log_offset, size=size, tags_code=tags_code)
