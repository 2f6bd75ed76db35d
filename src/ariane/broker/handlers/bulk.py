"""BULK_READ and READ_LEASE: for readers of whole topics, over the wire or from the files."""

from __future__ import annotations

import zlib
from typing import Final

from ariane.broker.filters import of_tags
from ariane.broker.flow_control import Busy
from ariane.broker.handlers.pull import Forbidden, Forbidder
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import Permission
from ariane.errors import InvalidParameter
from ariane.protocol.headers.bulk import BulkReadHeader, ReadLeaseHeader, ReadLeaseReply
from ariane.topics import is_readable

LEASE_ID_CHARACTERS_MAX: Final = 64
NO_RECORD: Final = -1


def bulk_read(request: Request[BulkReadHeader], state: BrokerState) -> None:
    """Check, and let the records be gathered; the answer leaves when they are."""
    state.flow.admit_pull()
    header = request.header
    if not state.config.permission & Permission.READ:
        raise Forbidden(
            Forbidder.BROKER, f"the broker[{state.config.name}] pulling message is forbidden"
        )
    topic = state.topics.existing(header.topic)
    if not is_readable(topic.name, topic.permission):
        raise Forbidden(Forbidder.TOPIC, f"the topic[{header.topic}] pulling message is forbidden")
    if not 0 <= header.queue_id < topic.read_queue_count:
        raise InvalidParameter(
            f"queueId={header.queue_id}: topic {header.topic} has {topic.read_queue_count} queues"
        )
    if not 0 <= header.queue_offset < header.end_offset:
        raise InvalidParameter(
            f"offset={header.queue_offset}, endOffset={header.end_offset}: at least one message is "
            "read, from 0 on"
        )
    tags = None if header.subscription is None else of_tags(header.subscription).tag_codes
    state.bulk.add(request, tags)


def read_lease(request: Request[ReadLeaseHeader], state: BrokerState) -> Reply:
    """Keep retention from an offset of the log for a while, or no longer."""
    header = request.header
    store = state.store
    if not 0 < len(header.lease_id) <= LEASE_ID_CHARACTERS_MAX:
        raise InvalidParameter(f"leaseId: 1 to {LEASE_ID_CHARACTERS_MAX} characters")
    if header.seconds <= 0:
        store.leases.release(header.lease_id)
        granted_s = 0.0
    else:
        granted_s = store.leases.hold(
            header.lease_id, header.log_offset, header.seconds, state.clock.monotonic_s()
        )
        if granted_s == 0:
            raise Busy(f"{len(store.leases)} leases are held; try again when some have ended")
    record = store.record_at(header.log_offset)
    return Reply.of(
        ReadLeaseReply(
            seconds=int(granted_s),
            store_path=state.store_config.root,
            min_log_offset=store.log.first_position,
            record_crc=NO_RECORD if record is None else zlib.crc32(record),
        )
    )
