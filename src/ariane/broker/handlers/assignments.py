"""QUERY_ASSIGNMENT and request modes: the broker says which queues a consumer reads, and how."""

from __future__ import annotations

from ariane.broker.handlers.answers import answer_when_saved
from ariane.broker.pop.assignment import RULES, share_to_pop, share_to_pull
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode
from ariane.config import REQUEST_MODES
from ariane.errors import InvalidParameter, RequestRejected
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.bodies.clients import BROADCASTING
from ariane.protocol.bodies.pop import (
    POP,
    PULL,
    Assignment,
    AssignmentRequest,
    Assignments,
    RequestMode,
)
from ariane.topics import RETRY_PREFIX


def query_assignment(request: Request[None], state: BrokerState) -> None:
    """Answer with the queues of one consumer, once it is known where the topic's queues are."""
    asked = fastjson.decode(request.body, AssignmentRequest)

    def found(queues: list[MessageQueue] | None) -> None:
        mode = mode_of(asked, state)
        share = share_of(asked, mode, queues, state)
        body = Assignments(
            assignments=None
            if share is None
            else [Assignment(queue=queue, mode=mode.mode) for queue in share]
        )
        request.answer(Reply.of(body=fastjson.encode(body)))

    state.pop.routes.find(asked.topic, found)


def mode_of(asked: AssignmentRequest, state: BrokerState) -> RequestMode:
    """How the group reads the topic: as was set, or as groups do; retry topics are pulled."""
    mode = state.pop.modes.get(asked.topic, asked.group)
    if mode is not None:
        return mode
    is_retry = asked.topic.startswith(RETRY_PREFIX)
    default = PULL if is_retry else state.config.request_mode
    share_count = state.config.pop_share_queue_count if default == POP else 0
    return RequestMode(
        group=asked.group, topic=asked.topic, mode=default, share_queue_count=share_count
    )


def share_of(
    asked: AssignmentRequest,
    mode: RequestMode,
    queues: list[MessageQueue] | None,
    state: BrokerState,
) -> list[MessageQueue] | None:
    """The queues of the consumer; None when that is not known, and it is to keep what it has."""
    if queues is None or asked.message_model == BROADCASTING or not state.config.assigns_queues:
        return queues
    group = state.clients.consumer_group(asked.group)
    rule = RULES.get(asked.strategy)
    if group is None or rule is None or not queues:
        return None
    in_order = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    members = group.client_ids()
    if mode.mode == POP:
        return share_to_pop(rule, asked.client_id, in_order, members, mode.share_queue_count)
    return share_to_pull(rule, asked.client_id, in_order, members)


def set_request_mode(request: Request[None], state: BrokerState) -> None:
    """Set how a group reads a topic; its consumers hear of it when they next ask."""
    mode = fastjson.decode(request.body, RequestMode)
    if mode.topic.startswith(RETRY_PREFIX):
        raise RequestRejected("retry topic is not allowed to set mode", ResponseCode.NO_PERMISSION)
    state.topics.existing(mode.topic)
    if mode.mode not in REQUEST_MODES:
        raise InvalidParameter(f"mode {mode.mode!r} is not {' or '.join(REQUEST_MODES)}")
    state.groups.for_consumer(mode.group)
    state.pop.modes.put(mode)
    answer_when_saved(request, state.groups.file, state.pop.modes.file)


def all_request_modes(request: Request[None], state: BrokerState) -> Reply:
    """How every group reads every topic, where it was set."""
    return Reply.of(body=fastjson.encode(state.pop.modes.table()))
