"""RECALL_MESSAGE: a message that waits for its time is deleted before it comes.

A recall is itself a timed message, for the same slot, that names the one to be deleted.
"""

from __future__ import annotations

from typing import Final

from ariane.broker.placing import put
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.broker.timed import DELETE_KEY
from ariane.codes import Permission, ResponseCode
from ariane.errors import ProtocolError, RequestRejected
from ariane.protocol.headers.recall import RecallHeader, RecallReply
from ariane.protocol.message import encode_properties
from ariane.protocol.properties import PRODUCER_GROUP, TAGS, UNIQUE_KEY
from ariane.protocol.recall_handle import RecallHandle, decode_recall_handle
from ariane.store.messages import NewMessage

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"


def recall(request: Request[RecallHeader], state: BrokerState) -> Reply:
    """Delete the message that a handle stands for, if its slot is still to come."""
    header, config = request.header, state.config
    if not config.recall_enabled:
        raise RequestRejected("recall failed, operation is forbidden", ResponseCode.NO_PERMISSION)
    if not config.permission & Permission.WRITE:
        raise RequestRejected(
            "recall failed, broker service not available", ResponseCode.SERVICE_NOT_AVAILABLE
        )
    if state.topics.get(header.topic) is None:
        raise RequestRejected(
            f"recall failed, the topic[{header.topic}] not exist", ResponseCode.TOPIC_NOT_EXIST
        )
    handle = valid_handle(header, state)
    now_ms = state.clock.wall_ms()
    properties = {
        TAGS: RECALL_TAG,
        DELETE_KEY: handle.message_id,
        UNIQUE_KEY: handle.message_id,
        "TIMER_DELIVER_MS": str(handle.deliver_at_ms),
        "BORN_TIMESTAMP": str(now_ms),
        **({PRODUCER_GROUP: header.group} if header.group else {}),
    }
    placed = put(
        state,
        NewMessage(
            topic=handle.topic,
            queue_id=0,
            body=RECALL_BODY,
            properties=encode_properties(properties).encode(),
            born_host=request.connection.peer,
            born_at_ms=now_ms,
        ),
    )
    return Reply.of(
        RecallReply(message_id=handle.message_id, region=config.region),
        after=state.ack_at(placed.end_offset, waits=True),
    )


def valid_handle(header: RecallHeader, state: BrokerState) -> RecallHandle:
    """The handle, if it is for this topic and broker and a time to come; or RequestRejected."""
    try:
        handle = decode_recall_handle(header.recall_handle)
    except ProtocolError:
        raise _illegal("recall handle is invalid") from None
    if handle.topic != header.topic:
        raise _illegal("recall failed, topic not match")
    if handle.broker_name != state.config.name:
        raise _illegal("recall failed, broker service not available")
    left_ms = handle.deliver_at_ms - state.clock.wall_ms()
    if not 0 < left_ms < state.store_config.timer_delay_max_s * 1000:
        raise _illegal("recall failed, timestamp invalid")
    return handle


def _illegal(remark: str) -> RequestRejected:
    return RequestRejected(remark, ResponseCode.ILLEGAL_OPERATION)
