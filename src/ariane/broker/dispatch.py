"""The broker's whole surface: request code -> handler, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ariane.broker.handlers.pull import pull
from ariane.broker.handlers.query import (
    earliest_store_time,
    max_offset,
    min_offset,
    query,
    search_offset,
    view_by_id,
)
from ariane.broker.handlers.send import send
from ariane.broker.requests import Held, Outcome, Request, attempt
from ariane.broker.state import BrokerState
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import Header, decode_header
from ariane.protocol.headers.offsets import MaxOffsetHeader, QueueHeader, SearchOffsetHeader
from ariane.protocol.headers.pull import PullHeader
from ariane.protocol.headers.query import QueryHeader, ViewHeader
from ariane.protocol.headers.send import decode_send_header
from ariane.remoting.connection import Connection


class Handler(NamedTuple):
    """A function that carries out one request code, and the header it reads (or how to read it)."""

    run: Callable[[Request[Any], BrokerState], Outcome]
    header: type[Header] | Callable[[Mapping[str, str]], Header] | None = None

    def header_of(self, fields: Mapping[str, str]) -> Header | None:
        """Read the header, or raise BadHeader."""
        if isinstance(self.header, type):
            return decode_header(self.header, fields)
        return None if self.header is None else self.header(fields)


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.SEND_MESSAGE: Handler(send, decode_send_header),
    RequestCode.SEND_MESSAGE_V2: Handler(send, decode_send_header),
    RequestCode.SEND_BATCH_MESSAGE: Handler(send, decode_send_header),
    RequestCode.PULL_MESSAGE: Handler(pull, PullHeader),
    RequestCode.LITE_PULL_MESSAGE: Handler(pull, PullHeader),
    RequestCode.QUERY_MESSAGE: Handler(query, QueryHeader),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Handler(search_offset, SearchOffsetHeader),
    RequestCode.GET_MAX_OFFSET: Handler(max_offset, MaxOffsetHeader),
    RequestCode.GET_MIN_OFFSET: Handler(min_offset, QueueHeader),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Handler(earliest_store_time, QueueHeader),
    RequestCode.VIEW_MESSAGE_BY_ID: Handler(view_by_id, ViewHeader),
}


def dispatch(state: BrokerState, connection: Connection, command: Command) -> Command | None:
    """Carry out one request; None when the answer comes later or never."""
    handler = HANDLERS.get(command.code)
    if handler is None:
        return reply(
            command,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"request type {command.code} not supported",
        )

    def run() -> Outcome:
        request = Request(command, handler.header_of(command.ext), connection)
        return handler.run(request, state)

    outcome = attempt(run)
    if isinstance(outcome, Held):
        state.held.hold(outcome)
        return None
    if outcome is None or command.is_one_way:
        return None
    answer = outcome.command_for(command)
    if outcome.after is None or state.unflushed.is_durable(outcome.after):
        return answer
    state.unflushed.park(connection, answer.encode(), outcome.after)
    return None
