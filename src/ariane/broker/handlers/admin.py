"""The broker as a whole: its condition, settings, counts, queue entries, and cleaning up."""

from __future__ import annotations

from typing import Final

from ariane.broker.clients import Subscription
from ariane.broker.filters import TAG_TYPES
from ariane.broker.handlers.answers import answer_when_saved
from ariane.broker.handlers.topics import delete_queues
from ariane.broker.requests import Reply, Request
from ariane.broker.runtime_info import runtime_info
from ariane.broker.state import BrokerState
from ariane.broker.stats import BACK, GOT_TOTAL, PUT_TOTAL, Rate
from ariane.config import parse_properties, properties_of
from ariane.errors import InvalidParameter, RequestRejected
from ariane.protocol import fastjson
from ariane.protocol.bodies import KeyValueTable
from ariane.protocol.bodies.statistics import QueueEntries, QueueEntry, Sample, Samples
from ariane.protocol.headers.query import ConfigReply, ConsumeQueueHeader, StatisticsHeader
from ariane.protocol.message import properties_text_of

ENTRIES_MAX: Final = 10_000  # in one answer to a look at a queue
JUDGED_ENTRIES_MAX: Final = 1_000  # when each message is looked at for a group


def broker_info(request: Request[None], state: BrokerState) -> Reply:
    """The broker's condition."""
    return Reply.of(body=fastjson.encode(KeyValueTable(table=runtime_info(state))))


def broker_config(request: Request[None], state: BrokerState) -> Reply:
    """Every setting as properties text."""
    settings = properties_of(state.config) | properties_of(state.store_config)
    settings |= state.updates.without_effect()
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
    if name == "SNDBCK_PUT_NUMS" and BACK + key in state.stats.back:
        return BACK + key
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
    count_max = ENTRIES_MAX if header.group is None else JUDGED_ENTRIES_MAX
    wanted = range(
        max(header.queue_offset, first),
        min(header.queue_offset + min(header.count_max, count_max), end),
    )
    found = None if header.group is None else state.clients.subscription(header.group, header.topic)
    body = QueueEntries(
        filter_data=filter_data(header, found, state),
        max_offset=end,
        min_offset=first,
        entries=[entry_at(header, queue_offset, found, state) for queue_offset in wanted],
        subscription=found and found.data,
    )
    return Reply.of(body=fastjson.encode(body))


def filter_data(
    header: ConsumeQueueHeader, found: Subscription | None, state: BrokerState
) -> str | None:
    """The filter of the group asked about, as it is saved; or that it is not here."""
    if header.group is None:
        return None
    if found is None:
        return f"{header.group}@{header.topic} is not online!"
    registered = state.filters.get(header.topic, header.group)
    if registered is None or registered.fault:
        return "null"
    return fastjson.dumps_pretty(registered.data()).decode()


def clean_store(request: Request[None], state: BrokerState) -> Reply:
    """Remove segments past their time now, whatever the hour, and what points into them."""
    state.store.clean(is_asked=True)
    return Reply.of()


def clean_unused_topics(request: Request[None], state: BrokerState) -> None:
    """Remove the queues of topics that are no more."""
    unused = [
        topic
        for topic in state.store.topics()
        if state.topics.get(topic) is None and not state.topics.is_system(topic)
    ]
    delete_queues(unused, state, lambda: request.answer(Reply.of()), request.answer)


def entry_at(
    header: ConsumeQueueHeader, queue_offset: int, found: Subscription | None, state: BrokerState
) -> QueueEntry:
    """One entry of a queue, and whether the group asked about wants its message."""
    queue = state.store.queue(header.topic, header.queue_id)
    log_offset, size, tags_code = queue.entry(queue_offset) or (0, 0, 0)
    return QueueEntry(
        is_match=found is not None and is_wanted(header, found, log_offset, tags_code, state),
        log_offset=log_offset,
        size=size,
        tags_code=tags_code,
    )


def is_wanted(
    header: ConsumeQueueHeader,
    found: Subscription,
    log_offset: int,
    tags_code: int,
    state: BrokerState,
) -> bool:
    """Whether a group's filter lets a message through."""
    if found.expression_type in TAG_TYPES:
        return found.tag_codes is None or tags_code in found.tag_codes
    record = state.store.record_at(log_offset)
    try:
        accepts = state.filters.of_group(header.topic, header.group or "", 0).accepts
    except RequestRejected:
        return False
    return record is not None and accepts is not None and accepts(properties_text_of(record))
