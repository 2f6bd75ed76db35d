"""The door to a cluster: open it with the name servers' addresses, then send, read, administer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from random import Random, SystemRandom  # noqa: TID251 - the client's dice; tests bring their own
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ariane.client.blocking import Forwarded
from ariane.client.consuming import Consuming
from ariane.client.courier import Courier
from ariane.client.messages import Body, Message, MessageFields
from ariane.client.producer import DEFAULT_GROUP, Producer
from ariane.client.pull_consumer import PullConsumer
from ariane.client.queues import Selector
from ariane.client.requests import Requests
from ariane.client.routes import addresses_of
from ariane.client.session import Session
from ariane.client.settings import SendOptions, SendSettings
from ariane.client.subscription import topics_of
from ariane.client.times import Duration
from ariane.client.trace import SETTINGS as TRACE_SETTINGS
from ariane.client.trace import TRACE_GROUP, Tracer
from ariane.client.transactions import Checker, Checkers, Transaction
from ariane.clock import Clock, SystemClock
from ariane.errors import InvalidArgument
from ariane.protocol.bodies import MessageQueue
from ariane.topics import TOOLS_GROUP, group_fault

if TYPE_CHECKING:  # imported when it is asked for
    from ariane.client.admin import Admin
    from ariane.client.middleware import Middleware

C = TypeVar("C", bound=Checker)


class Client(Consuming):
    """One application's connections to a cluster, shared by everything made from it.

    async with Client("127.0.0.1:9876") as client:
        await client.send("orders", b"...", tags="paid", keys="42")

    `topics` are looked for when it opens: one that is not there ends it at once, not some send
    later. Further options are those of `SendSettings`, for all sends: timeout, retries,
    message_bytes_max, compression, linger and its kin, trace.
    """

    def __init__(
        self,
        name_servers: str,  # "host:port;host:port"
        *,
        group: str = DEFAULT_GROUP,  # the producer group of this client's own sends
        topics: Sequence[str] = (),  # that it sends to
        middleware: Sequence[Middleware] = (),  # around sends and handlers, the outermost first
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        self.session = Session(
            addresses_of(name_servers),
            clock=clock or SystemClock(),
            random=random or SystemRandom(),
        )
        self._settings = SendSettings().changed(options)
        self._middleware = tuple(middleware)
        self._requests = Requests(self.session)
        self._checkers = Checkers(self.session)
        self._tracer: Tracer | None = None
        self._producers: dict[tuple[str, SendSettings], Producer] = {}
        self._producer = self.producer(group, topics=topics)
        self.session.on_open.append(self._opened)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin; connects to nobody unless there are topics to look for. `async with` does it."""
        await self.session.open()
        try:
            for producer in list(self._producers.values()):
                await producer.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End what is under way, take leave of the brokers, leave nothing in the background."""
        await self.session.close()

    # Sending. Each is the method of `Producer`, for this client's own group.

    send = Forwarded(Producer.send)
    submit = Forwarded(Producer.submit)
    send_one_way = Forwarded(Producer.send_one_way)
    send_batch = Forwarded(Producer.send_batch)
    request = Forwarded(Producer.request)
    reply = Forwarded(Producer.reply)
    recall = Forwarded(Producer.recall)

    def transaction(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        group: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
        check_after: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> Transaction:
        """A message that consumers see if the block around it succeeds, and only then.

        `group` is whose checker is asked when it stays open whether the block succeeded.
        """
        producer = self._producer if group is None else self.producer(group)
        return producer.transaction(
            topic,
            body,
            queue=queue,
            selector=selector,
            timeout=timeout,
            check_after=check_after,
            **fields,
        )

    def checker(self, group: str) -> Callable[[C], C]:
        """Let the function below answer what became of the group's transactions.

        It is given the message and returns True to commit, False to roll back, None when it cannot
        tell yet; it may be `async`.
        """
        if fault := group_fault(group):
            raise InvalidArgument(fault)

        def register(checker: C) -> C:
            self._checkers.add(group, checker)
            return checker

        return register

    def checked_elsewhere(self, group: str) -> None:
        """Say that other processes have the group's checker; this one may begin transactions."""
        self._checkers.trust(group)

    def producer(
        self,
        group: str = DEFAULT_GROUP,
        *,
        topics: Sequence[str] = (),
        **options: Unpack[SendOptions],
    ) -> Producer:
        """A producer of another group, or with other options than this client has.

        Its `topics` are looked for when the client opens, or by its `start`.
        """
        settings = self._settings.changed(options)
        producer = self._producers.get((group, settings))
        if producer is None:
            tracer = self._own_tracer() if settings.trace else None
            producer = self._new_producer(
                self.session,
                group,
                settings,
                requests=self._requests,
                checkers=self._checkers,
                tracer=tracer,
            )
            self._producers[group, settings] = producer
        producer.topics.update(topics_of(topics))
        if self.session.loop is not None:
            self.session.add_producer(group)
        return producer

    # Reading and administration.

    @cached_property
    def admin(self) -> Admin:
        """Administration of the cluster: topics, groups, messages, dead letters."""
        from ariane.client.admin import Admin  # noqa: PLC0415 - as said above

        return Admin(self.session)

    def pull_consumer(self, group: str = TOOLS_GROUP) -> PullConsumer:
        """A reader of queues; without a group one that only looks."""
        return PullConsumer(self.session, group)

    # Below: how it is done.

    @property
    def _new_producer(self) -> Callable[..., Producer]:
        if not self._middleware:
            return Producer
        from ariane.client.middleware import BracketedProducer  # noqa: PLC0415 - rarely used

        return partial(BracketedProducer, middleware=self._middleware)

    def _traced(
        self, handler: Callable[..., Any], group: str, *, is_batch: bool
    ) -> Callable[..., Any]:
        if self._middleware:
            from ariane.client.middleware import handled  # noqa: PLC0415 - rarely used

            handler = handled(handler, group, self._middleware)
        if not self._settings.trace:
            return handler
        from ariane.client.consume_trace import (  # noqa: PLC0415 - rarely used
            HandlerTrace,
            traced,
            traced_batch,
        )

        trace = HandlerTrace(self.session, self._own_tracer(), group)
        return traced_batch(handler, trace) if is_batch else traced(handler, trace)

    def _own_tracer(self) -> Tracer:
        if self._tracer is None:
            courier = Courier(self.session, TRACE_GROUP, TRACE_SETTINGS)
            self._tracer = Tracer(self.session, courier)
        return self._tracer

    def _opened(self) -> None:
        self.session.before_close.append(self._drain)

    async def _drain(self) -> None:
        """Let what was handed over get through."""
        await asyncio.gather(*(producer.flush() for producer in self._producers.values()))
        if self._tracer is not None:
            await self._tracer.flush()
