"""Request and reply: a message that is answered by whoever consumes it.

The request names this client and a correlation id; the reply goes through a broker, which pushes it
to the client so named. A reply that comes too late, or to a client that is gone, is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol
from uuid import UUID

from ariane.client.routes import MASTER_ID, TopicRoute
from ariane.client.session import Session
from ariane.codes import RequestCode
from ariane.errors import InvalidMessage, RequestTimeout, RouteNotFound
from ariane.kernel.hashing import crc32
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.replies import PushReplyHeader
from ariane.protocol.message import Host, StoredMessage, decode_properties
from ariane.remoting.client import split_address
from ariane.remoting.connection import Connection
from ariane.topics import reply_topic_of

CORRELATION: Final = "CORRELATION_ID"
REPLY_TO: Final = "REPLY_TO_CLIENT"
TIME_TO_LIVE: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
CLUSTER: Final = "CLUSTER"
REPLY: Final = "reply"

log = logging.getLogger("ariane.client")


class Received(Protocol):
    """What a reply needs of the message it answers."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, those of RocketMQ among them."""
        ...


class Requests:
    """Requests of one client that wait for their replies."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}
        session.serve(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._pushed)

    def begin(self, timeout_s: float) -> PendingRequest:
        """A new request, before it is sent."""
        return PendingRequest(self._session, self._waiting, timeout_s)

    async def be_known(self, topic: str) -> None:
        """Have every broker that may get the reply know this client."""
        routes = self._session.routes
        route = await routes.for_writing(topic)
        addresses = set(_masters(route))
        for cluster in route.clusters:
            try:
                addresses |= set(_masters(await routes.for_reading(reply_topic_of(cluster))))
            except RouteNotFound:
                continue  # replies then go nowhere; the request will say that none came
        await self._session.greet_once(addresses)

    def _pushed(self, connection: Connection, command: Command) -> Command:
        header = decode_header(PushReplyHeader, command.ext)
        message = _message_of(header, command.body)
        future = self._waiting.get(message.properties.get(CORRELATION, ""))
        if future is None:
            log.info("a reply came too late message_id=%s", message.message_id)
        elif not future.done():
            future.set_result(message)
        return reply(command)


class PendingRequest:
    """One request: the properties it travels with, and the wait for its reply."""

    def __init__(
        self,
        session: Session,
        waiting: dict[str, asyncio.Future[StoredMessage]],
        timeout_s: float,
    ) -> None:
        self._session = session
        self._waiting = waiting
        self._timeout_s = timeout_s
        self._deadline_s = session.clock.monotonic_s() + timeout_s
        self.correlation_id = str(UUID(int=session.random.getrandbits(128), version=4))

    @property
    def properties(self) -> dict[str, str]:
        """What makes the message a request."""
        return {
            CORRELATION: self.correlation_id,
            REPLY_TO: self._session.client_id,
            TIME_TO_LIVE: str(round(self._timeout_s * 1000)),
        }

    @property
    def remaining_s(self) -> float:
        """How much time is left."""
        return self._deadline_s - self._session.clock.monotonic_s()

    def __enter__(self) -> asyncio.Future[StoredMessage]:
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[self.correlation_id] = future
        self._timer = self._session.timers.after(max(0.0, self.remaining_s), self._expire)
        return future

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        future = self._waiting.pop(self.correlation_id)
        if not future.cancel() and not future.cancelled():
            future.exception()  # seen, even if the send failed before anybody waited for the reply

    def _expire(self) -> None:
        future = self._waiting[self.correlation_id]
        if not future.done():
            future.set_exception(
                RequestTimeout(
                    f"no reply within {self._timeout_s:g} s; does anybody consume the topic,"
                    " and reply to what it gets?"
                )
            )


def reply_properties(request: Received) -> tuple[str, dict[str, str]]:
    """The topic that a reply goes to and the properties that lead it back to who asked."""
    asked = request.properties
    missing = [name for name in (CORRELATION, REPLY_TO, CLUSTER) if not asked.get(name)]
    if missing:
        raise InvalidMessage(
            f"the message is no request: it lacks {', '.join(missing)}; only what was sent with"
            " `request` can be replied to"
        )
    properties = {MESSAGE_TYPE: REPLY, CORRELATION: asked[CORRELATION], REPLY_TO: asked[REPLY_TO]}
    if TIME_TO_LIVE in asked:
        properties[TIME_TO_LIVE] = asked[TIME_TO_LIVE]
    return reply_topic_of(asked[CLUSTER]), properties


def _message_of(header: PushReplyHeader, body: bytes) -> StoredMessage:
    return StoredMessage(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        log_offset=0,
        size=0,
        flag=header.flag,
        system_flag=header.system_flag,
        body_crc32=crc32(body),
        born_at_ms=header.born_at_ms,
        born_host=_host_of(header.born_host),
        stored_at_ms=header.stored_at_ms,
        store_host=_host_of(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_offset=0,
        stored_body=body,
        properties=decode_properties(header.properties or ""),
    )


def _host_of(text: str) -> Host:
    return split_address(text.rpartition("/")[2])  # Java may put a name and a slash in front


def _masters(route: TopicRoute) -> list[str]:
    return [ids[MASTER_ID] for ids in route.addresses.values() if MASTER_ID in ids]
