"""What all producers and consumers of one client share: connections, routes, heartbeats.

Nothing connects before it is needed. Everything that runs in the background is started by `open`
or by a call, and has ended when `close` returns. A session belongs to one event loop of one
process; in a forked child it begins anew when it is next used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Sequence
from random import Random  # noqa: TID251 - the type; the instance is injected
from typing import Any, Final

from ariane.client import forks
from ariane.client.closing import Closing, Step, take_every
from ariane.client.hot_sends import SendLane
from ariane.client.lanes import lane_of
from ariane.client.loop_thread import LoopThread
from ariane.client.routes import MASTER_ID, Address, RouteCache, TopicRoute, route_of
from ariane.clock import Clock, Timers
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ConnectionLost, RequestFailed, RequestTimeout
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ClusterInfo,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    TopicRouteData,
)
from ariane.protocol.command import Command, FrameReader, request
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
CLOSE_TIMEOUT_S: Final = 3.0  # for sends that others still wait for
ACCEPT_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})

log = logging.getLogger("ariane.client")


class Session:
    """One client towards its cluster."""

    def __init__(self, name_servers: Sequence[Address], *, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.name_servers = list(name_servers)
        self.on_open: list[Callable[[], None]] = []  # whenever it opens, also again after a fork
        self.on_change: list[Callable[[], None]] = []  # a route or a connection is not what it was
        self.delivering = 0  # sends that look for their way, or wait for their answer
        self.thread: LoopThread | None = None  # that its loop runs on, for callers that block
        self._handlers: dict[int, Handler] = {}
        self._turn = random.randrange(len(self.name_servers))
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        """Be a client that nobody knows yet."""
        self.timers = Timers(self.clock)
        self.routes = RouteCache(self._look_up)
        self.routes.on_new = self._greet
        self.routes.on_change = self._changed
        self.client_id = f"{socket.gethostname()}@{os.getpid()}#{self.random.getrandbits(48):012x}"
        self.unique_keys = UniqueKeys(
            self.clock, self.random, process_id=os.getpid(), host=_own_address()
        )
        self.before_close: list[Step] = []  # run last first, by `close`
        self.lanes: dict[Address, SendLane] = {}  # of the connections that are open
        self.loop: asyncio.AbstractEventLoop | None = None  # while it is open
        self._pool = ConnectionPool(
            self.timers,
            handler=self._handle,
            decoder_of=self._lane_of,
            on_connect=self._connected,
        )
        self._producers: set[str] = set()
        self._consumers: dict[str, ConsumerData] = {}
        self._greeted: set[Address] = set()
        self._met: set[Address] = set()
        self._acquainted: set[Address] = set()  # have heard of all our groups
        self._is_known_everywhere = False
        self._refreshing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = Closing(
            self._close_users,
            self._take_no_more,
            self._end_tasks,
            self._leave,
            self._stop_clockwork,
            self._pool.close,
        )
        self._was_forked = False
        self._is_spent = False
        self._changed()

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()

    def forked(self) -> None:
        """This is a child process: what is open here belongs to the parent."""
        if self.loop is not None:
            # Kept, so that nothing is closed by being forgotten: the parent still uses it.
            self._left_behind = (self._pool, self._driver, self._tasks, self.loop)
        was_open = self.loop is not None
        self._begin()
        self._was_forked = was_open

    @property
    def is_open(self) -> bool:
        """Whether it has been opened and not closed."""
        return self.loop is not None

    async def open(self) -> None:
        """Start the clockwork; connects to nobody yet."""
        if self.loop is not None:
            return
        if self._is_spent:
            self._begin()
        self._was_forked = False
        self._is_spent = True
        self.loop = asyncio.get_running_loop()
        self._driver = drive(self.timers, self.loop)
        self.timers.every(ROUTE_INTERVAL_S, self._refresh_routes)
        self.timers.every(HEARTBEAT_INTERVAL_S, self._send_heartbeats)
        for callback in self.on_open:
            callback()

    async def close(self) -> None:
        """Take leave of every broker that knows us, then end everything.

        May be called again; goes on to its end when its caller is cancelled, and whatever a step
        raises the others are taken. Then raises the first error.
        """
        if self.loop is not None or self._closing.has_begun:
            await self._closing.end()

    async def _close_users(self) -> None:
        def steps() -> Iterator[Step]:
            while self.before_close:
                yield self.before_close.pop()

        await take_every(steps())

    async def _take_no_more(self) -> None:
        unanswered = [future for lane in self.lanes.values() for future in lane.unanswered()]
        self.loop = None
        self._changed()
        if unanswered:
            await asyncio.wait(unanswered, timeout=CLOSE_TIMEOUT_S)

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave(self) -> None:
        await asyncio.gather(*map(self._take_leave, self._greeted), return_exceptions=True)

    async def _stop_clockwork(self) -> None:
        # After the last request: what is not answered would else be waited for without end.
        self._driver.stop()

    def forget_close(self, step: Step) -> None:
        """Something has closed by itself: `close` need not see to it."""
        if step in self.before_close:
            self.before_close.remove(step)

    def serve(self, code: RequestCode, handler: Handler) -> None:
        """Answer requests with this code that brokers send to us; the last handler given counts."""
        self._handlers[code] = handler

    def add_producer(self, group: str) -> None:
        """Be known to brokers as a member of the producer group."""
        if group not in self._producers:
            self._producers.add(group)
            self._acquainted.clear()
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

    async def greet(self, addresses: Iterable[Address]) -> set[Address]:
        """Have these brokers know us as we are now; returns those that have not heard of us.

        Returns once all have answered, so that whoever asks them next is taken for a member.
        """
        current = list(set(addresses))
        self._greeted.update(current)
        outcomes = await asyncio.gather(*map(self._heartbeat, current), return_exceptions=True)
        missed = set()
        for address, outcome in zip(current, outcomes, strict=True):
            if isinstance(outcome, ClientError):
                log.info("a heartbeat failed: %s", outcome)
                missed.add(address)
            elif isinstance(outcome, BaseException):
                raise outcome
        return missed

    async def greet_once(self, addresses: Iterable[Address]) -> None:
        """Have these brokers know us, asking only those that do not know all of us yet."""
        strangers = set(addresses) - self._acquainted
        if strangers:
            await self.greet(strangers)

    def be_known_everywhere(self) -> None:
        """Have every master of the cluster know us, not only those whose topics we use."""
        self._is_known_everywhere = True
        if self.loop is not None:
            self.spawn(self._greet_cluster(), "greeting the cluster")

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

    def is_busy(self, *, within_s: float) -> bool:
        """Whether it sends, or asks for something with a timeout of that or less."""
        is_sending = self.delivering > 0 or any(lane.unanswered() for lane in self.lanes.values())
        return is_sending or self._pool.is_busy(within_s=within_s)

    def give_time(self, seconds: float) -> None:
        """Let whatever waits for its answer, but for sends, wait so much longer."""
        self._pool.give_time(seconds)

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
            self.spawn(self._refresh(topic), f"refreshing the route of {topic}")

    def _handle(self, connection: Connection, command: Command) -> Command | None:
        return self._handlers.get(command.code, refuse_requests)(connection, command)

    async def lane(self, address: Address, timeout_s: float) -> SendLane:
        """The way sends to this address take; a connection is made if need be."""
        connection = await self._connection(address, timeout_s)
        if connection.is_closed:
            raise connection.lost()
        return self.lanes[address]

    async def _connection(self, address: Address, timeout_s: float) -> Connection:
        if self.loop is not asyncio.get_running_loop():
            await self._open_here()
        connection = self._pool.existing(address)
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(timeout_s):
                return await self._pool.get(address)
        except TimeoutError as error:
            raise ConnectionLost(f"no connection to {address} within {timeout_s:.1f} s") from error

    async def _open_here(self) -> None:
        if self._was_forked:
            log.info("opened again after a fork process=%d", os.getpid())
            await self.open()
        elif self.loop is None:
            raise ClientError("the client is not open; use `async with Client(...)`")
        else:
            raise ClientError(
                "the client was opened on another event loop; open one client on each loop"
            )

    def _connected(self, address: Address, connection: Connection) -> None:
        lane = self.lanes[address] = connection.attachments["lane"]
        connection.on_close.append(lambda lost: self._disconnected(address, lane))
        if address in self._met and address in self._greeted:
            # The broker forgot us with the connection before.
            self.spawn(self._heartbeat(address), f"a heartbeat to {address}")
        self._met.add(address)

    def _disconnected(self, address: Address, lane: SendLane) -> None:
        if self.lanes.get(address) is lane:
            del self.lanes[address]
            self._acquainted.discard(address)
            self._changed()

    def _lane_of(self, connection: Connection) -> FrameReader:
        lane = connection.attachments["lane"] = lane_of(connection, self.timers)
        return lane

    async def _look_up(self, topic: str) -> TopicRoute | None:
        answer = await self.ask(
            request(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=topic)),
            accept={ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST},
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or not answer.body:
            return None
        return route_of(topic, fastjson.decode(answer.body, TopicRouteData))

    def _refresh_routes(self) -> None:
        if self.loop is not None:
            for route in self.routes:
                self.refresh_route(route.topic)

    def _greet(self, route: TopicRoute) -> None:
        """Introduce ourselves to brokers that we meet for the first time."""
        for address in self._contacts(route):
            if address not in self._greeted and (self._producers or self._consumers):
                self._greeted.add(address)
                self.spawn(self._heartbeat(address), f"the first heartbeat to {address}")

    def _send_heartbeats(self) -> None:
        if self.loop is None or not (self._producers or self._consumers):
            return
        current = {address for route in self.routes for address in self._contacts(route)}
        self._greeted |= current
        for address in current:
            self.spawn(self._heartbeat(address), f"a heartbeat to {address}")
        if self._is_known_everywhere:
            self.spawn(self._greet_cluster(current), "greeting the cluster")

    async def _greet_cluster(self, greeted: Container[Address] = ()) -> None:
        answer = await self.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        info = fastjson.decode(answer.body, ClusterInfo)
        masters = (broker.addresses.get(MASTER_ID) for broker in info.brokers.values())
        await self.greet(address for address in masters if address and address not in greeted)

    async def _heartbeat(self, address: Address) -> None:
        body = HeartbeatData(
            client_id=self.client_id,
            producers=[ProducerData(group=group) for group in sorted(self._producers)],
            consumers=list(self._consumers.values()),
        )
        known = frozenset(self._producers)
        await self.call(address, request(RequestCode.HEART_BEAT, body=fastjson.encode(body)))
        if known == self._producers:
            self._acquainted.add(address)

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

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Run in the background until it ends or the session does; a failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, what))
        return task

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


def _own_address() -> str:
    """The address this machine would be reached by; no packet is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # an address for documentation, routed like any other
            return str(asking.getsockname()[0])
        except OSError:
            return "127.0.0.1"
