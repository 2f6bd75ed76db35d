"""SEND_REPLY_MESSAGE (324, 325): the answer to a request, pushed to the client that waits for it.

A request names the client that sent it; that client is known here by its heartbeats as a producer.
A reply is pushed to it (326) and kept in the reply topic, and whoever sent the reply learns whether
the client took it. Being kept is for looking at later: nobody consumes it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from ariane.broker.handlers.send import choose_queue, reply_header, writable_topic
from ariane.broker.messages import SendRequest, message_of
from ariane.broker.placing import place
from ariane.broker.requests import Postponed, Reply
from ariane.broker.state import BrokerState
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, StoreError
from ariane.protocol.command import Command
from ariane.protocol.command import request as request_of
from ariane.protocol.headers.replies import PushReplyHeader
from ariane.protocol.headers.send import SendReply
from ariane.protocol.message import stored_properties_of
from ariane.store.messages import NewMessage

REPLY_TO_KEY: Final = "REPLY_TO_CLIENT"
PUSHED_AT_KEY: Final = "PUSH_REPLY_TIME"
NOT_KEPT: Final = "0"  # clients want an id, whether there is one or not
PUSH_TIMEOUT_S: Final = 10.0


def send_reply(request: SendRequest, state: BrokerState) -> Reply | Postponed | None:
    """Push a reply to the client it is for; the answer tells whether that worked."""
    state.flow.admit_send()
    topic = writable_topic(request, state)
    if not state.topics.is_saved(topic.name):
        return Postponed(state.topics.file.when_saved)
    queue_id = choose_queue(request.header.queue_id, topic, state)
    message = message_of(request, queue_id, state)
    header = kept(message, state)
    client_id = stored_properties_of(message.properties).get(REPLY_TO_KEY)
    if client_id is None:
        return failed(header, f"reply message properties[{REPLY_TO_KEY}] is null")
    client = state.clients.producer(client_id)
    if client is None:
        return failed(header, f"push reply message fail, channel of <{client_id}> not found.")
    pushed = client.connection.start_request(push_of(request, message, state), PUSH_TIMEOUT_S)
    pushed.add_done_callback(partial(hand_back, request, header, client_id))
    return None


def kept(message: NewMessage, state: BrokerState) -> SendReply:
    """Keep a reply, if replies are kept, and say where; what is full must not hold replies up."""
    queue_offset, message_id = 0, NOT_KEPT
    if state.config.store_replies:
        try:
            placed = place(state, message)
        except StoreError:
            pass
        else:
            queue_offset, message_id = placed.queue_offset, placed.message_id
    return reply_header(state, message.queue_id, queue_offset, message_id, {})


def push_of(request: SendRequest, message: NewMessage, state: BrokerState) -> Command:
    """The reply as the waiting client gets it."""
    sent, now_ms = request.header, state.clock.wall_ms()
    header = PushReplyHeader(
        group=sent.group,
        topic=sent.topic,
        default_topic=sent.default_topic,
        default_queue_count=sent.default_queue_count,
        queue_id=message.queue_id,
        system_flag=sent.system_flag,
        born_at_ms=sent.born_at_ms,
        flag=sent.flag,
        properties=message.properties.decode() + f"{PUSHED_AT_KEY}\x01{now_ms}\x02",
        reconsume_times=sent.reconsume_times,
        unit_mode=sent.unit_mode,
        born_host="{}:{}".format(*message.born_host),
        store_host="{}:{}".format(*state.store_host),
        stored_at_ms=now_ms,
    )
    return request_of(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, message.body)


def hand_back(
    request: SendRequest, header: SendReply, client_id: str, pushed: asyncio.Future[Command]
) -> None:
    """Tell whoever replied whether the waiting client took it."""
    if pushed.cancelled():
        return
    try:
        answer = pushed.result()
    except ClientError as error:
        request.answer(failed(header, f"push reply message to {client_id} fail: {error}"))
        return
    if answer.code == ResponseCode.SUCCESS:
        request.answer(Reply.of(header))
    else:
        reason = answer.remark or f"it answered {answer.code}"
        request.answer(failed(header, f"push reply message to {client_id} fail: {reason}"))


def failed(header: SendReply, remark: str) -> Reply:
    """The answer to a reply that did not reach its client."""
    return Reply.of(header, code=ResponseCode.SYSTEM_ERROR, remark=remark)
