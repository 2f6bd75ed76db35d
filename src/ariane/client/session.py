"""What all producers and consumers of one client share: connections, routes, heartbeats.

Nothing connects before it is needed. Everything that runs in the background is started by `open`
or by a call, and has ended when `close` returns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Sequence
from random import Random  # noqa: TID251 - the type; the instance is injected
from typing import Any, Final

from ariane.client.routes import MASTER_ID, Address, RouteCache, TopicRoute, route_of
from ariane.clock import Clock, Timers
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ConnectionLost, RequestFailed, RequestTimeout
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    TopicRouteData,
)
from ariane.protocol.command import Command, request
from ariane.protocol.headers.clients import UnregisterHeader
from ariane.protocol.headers.topics import TopicHeader
from ariane.protocol.message import UniqueKeys
from ariane.remoting.client import ConnectionPool, refuse_requests
from ariane.remoting.connection import Connection, Handler
from ariane.remoting.loop_timers import drive

LANGUAGE: Final = "PYTHON"
REQUEST_TIMEOUT_S: Final = 3.0
ROUTE_INTERVAL_S: Final = 30.0
HEARTBEAT_INTERVAL_S: Final = 30.0
UNREGISTER_TIMEOUT_S: Final = 1.0
ACCEPT_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})

log = logging.getLogger("ariane.client")


class Session:
    """One client towards its cluster."""

    def __init__(self, name_servers: Sequence[Address], *, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.timers = Timers(clock)
        self.routes = RouteCache(self._look_up)
        self.routes.on_new = self._greet
        self.client_id = f"{socket.gethostname()}@{os.getpid()}#{random.getrandbits(48):012x}"
        self.unique_keys = UniqueKeys(clock, random, process_id=os.getpid())
        self.name_servers = list(name_servers)
        self._turn = random.randrange(len(self.name_servers))
        self.before_close: list[Callable[[], Awaitable[None]]] = []  # run last first, by `close`
        self._handlers: dict[int, Handler] = {}
        self._pool = ConnectionPool(self.timers, handler=self._handle)
        self._producers: set[str] = set()
        self._consumers: dict[str, ConsumerData] = {}
        self._greeted: set[Address] = set()
        self._refreshing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether it has been opened and not closed."""
        return self._is_open

    async def open(self) -> None:
        """Start the clockwork; connects to nobody yet."""
        self._is_open = True
        self._driver = drive(self.timers, asyncio.get_running_loop())
        self.timers.every(ROUTE_INTERVAL_S, self._refresh_routes)
        self.timers.every(HEARTBEAT_INTERVAL_S, self._send_heartbeats)

    async def close(self) -> None:
        """Take leave of every broker that knows us, then end everything."""
        if not self._is_open:
            return
        while self.before_close:
            await self.before_close.pop()()
        self._is_open = False
        self._driver.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*map(self._take_leave, self._greeted))
        await self._pool.close()

    def serve(self, code: RequestCode, handler: Handler) -> None:
        """Answer requests with this code that brokers send to us; the last handler given counts."""
        self._handlers[code] = handler

    def add_producer(self, group: str) -> None:
        """Be known to brokers as a member of the producer group."""
        if group not in self._producers:
            self._producers.add(group)
            self._send_heartbeats()

    def add_consumer(self, consumer: ConsumerData) -> None:
        """Be known to brokers as a member of the consumer group."""
        self.set_consumer(consumer)
        self._send_heartbeats()

    def set_consumer(self, consumer: ConsumerData) -> None:
        """Be a member of the consumer group from the next heartbeat on."""
        self._consumers[consumer.group] = consumer

    async def remove_consumer(self, group: str) -> None:
        """Be a member of the consumer group no more."""
        if self._consumers.pop(group, None) is not None:
            header = UnregisterHeader(client_id=self.client_id, consumer_group=group)
            await asyncio.gather(*(self._unregister(place, [header]) for place in self._greeted))

    async def greet(self, addresses: Iterable[Address]) -> None:
        """Have these brokers know us as we are now; one that cannot be reached hears of us later.

        Returns once all have answered, so that whoever asks them next is taken for a member.
        """
        current = set(addresses)
        self._greeted |= current
        outcomes = await asyncio.gather(*map(self._heartbeat, current), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, ClientError):
                log.info("a heartbeat failed: %s", outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def sleep(self, delay_s: float) -> None:
        """Let time pass, on the session's clock."""
        over = asyncio.Event()
        timer = self.timers.after(delay_s, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def call(
        self,
        address: Address,
        command: Command,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        accept: Container[int] = ACCEPT_SUCCESS,
    ) -> Command:
        """Ask one server; an answer with a code not in `accept` raises RequestFailed."""
        connection = await self._connection(address, timeout_s)
        command.language = LANGUAGE
        answer = await connection.request(command, timeout_s)
        if answer.code not in accept:
            raise RequestFailed.of(answer.code, f"{answer.remark or ''} [{address}]".strip())
        return answer

    async def post(self, address: Address, command: Command) -> None:
        """Send a one-way request; nobody will ever say whether it arrived."""
        connection = await self._connection(address, REQUEST_TIMEOUT_S)
        command.language = LANGUAGE
        connection.send(command)

    async def ask(
        self,
        command: Command,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        accept: Container[int] = ACCEPT_SUCCESS,
    ) -> Command:
        """Ask a name server: the one that answered last, else the next that can be reached."""
        failures = []
        for _ in self.name_servers:
            address = self.name_servers[self._turn % len(self.name_servers)]
            try:
                return await self.call(address, command, timeout_s=timeout_s, accept=accept)
            except (ConnectionLost, RequestTimeout) as error:
                failures.append(str(error))
                self._turn += 1
        raise ConnectionLost(
            f"no name server answers: {'; '.join(failures)}; is one running? (`ariane up`)"
        )

    def refresh_route(self, topic: str) -> None:
        """Ask anew where the topic is, in the background; once, however many ask."""
        if topic not in self._refreshing:
            self._refreshing.add(topic)
            self._spawn(self._refresh(topic), f"refreshing the route of {topic}")

    def _handle(self, connection: Connection, command: Command) -> Command | None:
        return self._handlers.get(command.code, refuse_requests)(connection, command)

    async def _connection(self, address: Address, timeout_s: float) -> Connection:
        if not self._is_open:
            raise ClientError("the client is not open; use `async with Client(...)`")
        connection = self._pool.existing(address)
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(timeout_s):
                return await self._pool.get(address)
        except TimeoutError as error:
            raise ConnectionLost(f"no connection to {address} within {timeout_s:.1f} s") from error

    async def _look_up(self, topic: str) -> TopicRoute | None:
        answer = await self.ask(
            request(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=topic)),
            accept={ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST},
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or not answer.body:
            return None
        return route_of(topic, fastjson.decode(answer.body, TopicRouteData))

    def _refresh_routes(self) -> None:
        for route in self.routes:
            self.refresh_route(route.topic)

    def _greet(self, route: TopicRoute) -> None:
        """Introduce ourselves to brokers that we meet for the first time."""
        for address in self._contacts(route):
            if address not in self._greeted and (self._producers or self._consumers):
                self._greeted.add(address)
                self._spawn(self._heartbeat(address), f"the first heartbeat to {address}")

    def _send_heartbeats(self) -> None:
        if not self._producers and not self._consumers:
            return
        current = {address for route in self.routes for address in self._contacts(route)}
        self._greeted |= current
        for address in current:
            self._spawn(self._heartbeat(address), f"a heartbeat to {address}")

    async def _heartbeat(self, address: Address) -> None:
        body = HeartbeatData(
            client_id=self.client_id,
            producers=[ProducerData(group=group) for group in sorted(self._producers)],
            consumers=list(self._consumers.values()),
        )
        await self.call(address, request(RequestCode.HEART_BEAT, body=fastjson.encode(body)))

    async def _take_leave(self, address: Address) -> None:
        headers = [
            *(
                UnregisterHeader(client_id=self.client_id, producer_group=group)
                for group in self._producers
            ),
            *(
                UnregisterHeader(client_id=self.client_id, consumer_group=group)
                for group in self._consumers
            ),
        ]
        await self._unregister(address, headers)

    async def _unregister(self, address: Address, headers: Sequence[UnregisterHeader]) -> None:
        connection = self._pool.existing(address)
        if connection is None:
            return  # a closed connection has unregistered us already
        for header in headers:
            try:
                command = request(RequestCode.UNREGISTER_CLIENT, header)
                await connection.request(command, UNREGISTER_TIMEOUT_S)
            except ClientError:
                return  # the broker forgets us when the connection closes

    def _contacts(self, route: TopicRoute) -> list[Address]:
        """Who hears our heartbeats: with a consumer all replicas, since it may read from any."""
        if self._consumers:
            return [address for ids in route.addresses.values() for address in ids.values()]
        return _masters(route)

    async def _refresh(self, topic: str) -> None:
        try:
            await self.routes.refresh(topic)
        finally:
            self._refreshing.discard(topic)

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run in the background until it ends or the session does; a failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, what))

    def _ended(self, task: asyncio.Task[None], what: str) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.log(
                logging.INFO if isinstance(error, ClientError) else logging.ERROR,
                "%s failed: %s",
                what,
                error,
                exc_info=None if isinstance(error, ClientError) else error,
            )


def _masters(route: TopicRoute) -> list[Address]:
    return [ids[MASTER_ID] for ids in route.addresses.values() if MASTER_ID in ids]
