"""Asking whichever member of a broker group is there: the master, else one of its replicas."""

from __future__ import annotations

from collections.abc import Container

from ariane.client.session import ACCEPT_SUCCESS, Session
from ariane.codes import RequestCode
from ariane.errors import ConnectionLost, RequestTimeout
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import Command, request
from ariane.protocol.headers import Header


async def ask_any(
    session: Session,
    queue: MessageQueue,
    code: RequestCode,
    header: Header,
    *,
    timeout_s: float,
    accept: Container[int] = ACCEPT_SUCCESS,
) -> Command:
    """Ask about a queue; a member that cannot be reached is passed over."""
    route = await session.routes.for_reading(queue.topic)
    failures: list[ConnectionLost | RequestTimeout] = []
    for address in route.replicas(queue.broker_name):
        try:
            return await session.call(
                address, request(code, header), timeout_s=timeout_s, accept=accept
            )
        except (ConnectionLost, RequestTimeout) as error:
            failures.append(error)
    raise failures[0]
