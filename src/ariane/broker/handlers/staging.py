"""Batches of rows: stage a chunk, publish a batch, ask what became of it, discard it."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import msgspec

from ariane.broker.handlers.answers import when_routed
from ariane.broker.handlers.send import choose_queue, writable
from ariane.broker.message_types import check_type, declared_type
from ariane.broker.messages import MessageIllegal, batch_entries
from ariane.broker.requests import Postponed, Reply, Request
from ariane.broker.staging.chunks import staged
from ariane.broker.state import BrokerState
from ariane.broker.timed import deliver_time, is_timed
from ariane.errors import InvalidParameter
from ariane.kernel.hashing import crc32
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.bodies.staging import BatchPlan
from ariane.protocol.headers.staging import BatchHeader, PublishHeader, StageHeader, StageReply
from ariane.protocol.message import stored_properties_of
from ariane.store import chunks
from ariane.store.messages import NewMessage
from ariane.topics import AUTO_CREATE_TOPIC, TOPIC_BYTES_MAX

QUERY_BYTES_MAX: Final = 128
CHUNKS_MAX: Final = 1 << 16  # of one plan
BROKERS_MAX: Final = 1000
KEEP_HOURS_MAX: Final = 24 * 366
QUEUE_COUNT: Final = 4  # of a topic that is made on the way
RECORD_SPARE_BYTES: Final = 2600  # head, topic and hosts of a row's record, and of a note before it
PROPERTIES_BYTES_MAX: Final = 32_767 - 400  # the rest is for marks of rows that wait for a time

_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")
_decoder: Final = msgspec.json.Decoder(BatchPlan)


def stage(request: Request[StageHeader], state: BrokerState) -> Reply | Postponed:
    """Keep a chunk of rows until a plan names it; the log forgets it in time if none does."""
    header = request.header
    state.flow.admit_send()
    check_query(header.query_id, header.batch_id)
    if header.partition < 0 or header.attempt < 0 or header.sequence < 0:
        raise InvalidParameter("partition, attempt and sequence count from 0")
    is_new = state.registration is not None and state.topics.get(header.topic) is None
    topic = writable(header.topic, state, template=AUTO_CREATE_TOPIC, queue_count=QUEUE_COUNT)
    if is_new or not state.topics.is_saved(topic.name):
        return Postponed(partial(when_routed, state))
    if header.queue_id < 0:
        raise InvalidParameter("a chunk names the queue its rows go to")
    choose_queue(header.queue_id, topic, state)
    late_count = look(request, topic, state)
    message = staged(
        header, request.body, late_count, request.connection.peer, state.clock.wall_ms()
    )
    placed = state.store.append(message)
    return Reply.of(
        StageReply(chunk_offset=placed.queue_offset),
        after=state.ack_at(placed.end_offset, waits=True),
    )


def look(request: Request[StageHeader], topic: TopicConfig, state: BrokerState) -> int:
    """Check every row of a chunk; how many of them ask for a time."""
    header, body, log = request.header, request.body, state.store.log
    bytes_max = state.store_config.message_bytes_max
    if not body or len(body) > bytes_max:
        raise MessageIllegal(f"a chunk of {len(body)} bytes; 1 to {bytes_max} are allowed")
    if crc32(body) != header.crc32:
        raise MessageIllegal("the chunk does not have the CRC-32 it was sent with")
    try:
        row_count, late_count = chunks.look(
            body,
            row_bytes_max=min(log.record_bytes_max, log.file_bytes) - RECORD_SPARE_BYTES,
            properties_bytes_max=PROPERTIES_BYTES_MAX,
        )
    except ValueError as fault:
        raise MessageIllegal(f"the chunk cannot be published: {fault}") from fault
    if row_count != header.row_count:
        raise MessageIllegal(f"the chunk has {row_count} rows and says {header.row_count}")
    checks_types = state.config.checks_message_types and declared_type(topic) is not None
    if late_count or checks_types:
        for entry in batch_entries(body):
            properties = stored_properties_of(entry.properties)
            if checks_types:
                check_type(topic, properties)
            check_time(request, entry.body, properties, state)
    return late_count


def check_time(
    request: Request[StageHeader], body: bytes, properties: dict[str, str], state: BrokerState
) -> None:
    """Refuse a row that could not be placed when the batch is published."""
    message = NewMessage(
        topic=request.header.topic,
        queue_id=request.header.queue_id,
        body=body,
        properties=b"",
        born_host=request.connection.peer,
        born_at_ms=0,
    )
    if not is_timed(message, properties):
        return
    config = state.store_config
    if not config.timer_enabled:
        raise MessageIllegal("a row asks for a time, and timerWheelEnable is false here")
    now_ms = state.clock.wall_ms()
    deliver_ms = deliver_time(properties, now_ms)
    if deliver_ms is None or deliver_ms - now_ms > config.timer_delay_max_s * 1000:
        raise MessageIllegal(
            f"a row asks for a time more than {config.timer_delay_max_s} s ahead (timerMaxDelaySec)"
        )


def publish(request: Request[PublishHeader], state: BrokerState) -> None:
    """Make the chunks of a plan visible, once; answered when they are safe on disk."""
    header = request.header
    check_query(header.query_id, header.batch_id)
    check_keep(header.keep_hours)
    try:
        plan = _decoder.decode(request.body)
    except msgspec.DecodeError as error:
        raise InvalidParameter(f"the plan cannot be read: {error}") from error
    check_brokers(list(plan.brokers))
    count = sum(map(len, plan.brokers.values()))
    if count > CHUNKS_MAX:
        raise InvalidParameter(
            f"a plan of {count} chunks; {CHUNKS_MAX} are allowed: write smaller batches"
        )
    state.staging.publish(request, plan)


def published(request: Request[BatchHeader], state: BrokerState) -> Reply:
    """What became of a batch; the brokers named are remembered with its query."""
    check_query(request.header.query_id, request.header.batch_id)
    check_keep(request.header.keep_hours)
    brokers = [name for name in request.header.brokers.split(",") if name]
    check_brokers(brokers)
    return state.staging.enlist(request.header, brokers)


def discard(request: Request[BatchHeader], state: BrokerState) -> Reply:
    """See to it that a batch is never published."""
    check_query(request.header.query_id, request.header.batch_id)
    check_keep(request.header.keep_hours)
    return state.staging.discard(request.header)


def check_query(query_id: str, batch_id: int) -> None:
    """Refuse names that are no query's, and numbers that are no batch's."""
    if len(query_id) > QUERY_BYTES_MAX or _NAME.fullmatch(query_id) is None:
        raise InvalidParameter(
            f"queryId={query_id[:QUERY_BYTES_MAX]!r}: 1 to {QUERY_BYTES_MAX} letters, digits and"
            " . _ : - are allowed"
        )
    if batch_id < 0:
        raise InvalidParameter(f"batchId={batch_id}: batches count from 0")


def check_keep(keep_hours: int) -> None:
    """Refuse to remember for no time, or for ever."""
    if not 1 <= keep_hours <= KEEP_HOURS_MAX:
        raise InvalidParameter(f"keepHours={keep_hours} is not between 1 and {KEEP_HOURS_MAX}")


def check_brokers(names: list[str]) -> None:
    """Refuse names that are no broker's."""
    if len(names) > BROKERS_MAX or any(not 0 < len(name) <= TOPIC_BYTES_MAX for name in names):
        raise InvalidParameter(f"up to {BROKERS_MAX} names of brokers, of 127 characters at most")
