"""Telling every name server what this broker serves: at once, each 30 seconds, and on change.

Each name server has a link of its own, so one that is slow or gone delays nobody. A link has one
request under way at most; changes meanwhile are told after it. A few changed topics are told one
by one, so that a topic costs the same to make whether there are ten or ten thousand; many, and what
else a name server may have to learn, by registering anew with all topics.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from ariane.broker.state import BrokerState
from ariane.broker.system_topics import READ_WRITE
from ariane.clock import Timer, Timers
from ariane.codes import Permission, RequestCode, ResponseCode
from ariane.errors import ClientError, RequestFailed
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    QueueData,
    RegisterBrokerBody,
    TopicConfigTable,
    TopicRouteData,
)
from ariane.protocol.command import Command, request
from ariane.protocol.headers.nameserver import BrokerHeader, RegisterBrokerHeader
from ariane.protocol.headers.topics import TopicHeader
from ariane.remoting.client import ConnectionPool
from ariane.remoting.connection import Connection

LOGGER: Final = logging.getLogger("ariane.broker")

RETRY_S: Final = 3.0  # after a failure, rather than waiting for the next period
UNREGISTER_TIMEOUT_S: Final = 3.0
TELL_S: Final = 1.0  # how long whoever made a topic waits for name servers to hear of it
FEW_TOPICS: Final = 8  # to be told one by one
DELETED_S: Final = 1.0  # until a deletion is told, with all those that follow it


class Link:
    """The registration with one name server."""

    def __init__(
        self,
        address: str,
        pool: ConnectionPool,
        timers: Timers,
        *,
        registration_of: Callable[[], Command],
        news_of: Callable[[str], Command | None],
        timeout_s: float,
    ) -> None:
        self.address = address
        self.is_registered = False
        self.is_silent = False  # did not answer in time, so nobody waits for it until it does
        self._pool = pool
        self._timers = timers
        self._registration_of = registration_of
        self._news_of = news_of
        self._timeout_s = timeout_s
        self._has_failed = False
        self._must_register = False
        self._untold: dict[str, None] = {}  # topics, in the order in which they changed
        self._takes_news = True  # of single topics; name servers of long ago do not
        self._task: asyncio.Task[None] | None = None
        self._watched: Connection | None = None
        self._is_stopped = False

    def register(self) -> None:
        """Register now, or again once what is under way has ended."""
        self._must_register = True
        self._start()

    def tell(self, topics: Iterable[str]) -> None:
        """Tell of topics that are new or have changed."""
        self._untold |= dict.fromkeys(topics)
        self._start()

    def when_told(self, callback: Callable[[], None]) -> bool:
        """Call back when nothing is left to tell; False when that is not worth waiting for."""
        if not self.is_registered or self.is_silent or self._task is None or self._task.done():
            return False
        self._task.add_done_callback(lambda _: callback())
        return True

    async def settled(self) -> None:
        """Return when nothing is under way."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def unregister(self, command: Command) -> None:
        """Say goodbye; a name server that cannot hear it will notice by itself."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        if self._pool.existing(self.address) is None:
            return
        try:
            await self._pool.request(self.address, command, UNREGISTER_TIMEOUT_S)
        except ClientError as error:
            LOGGER.info("broker not unregistered name_server=%s reason=%s", self.address, error)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while (self._must_register or self._untold) and not self._is_stopped:
            try:
                self._watch(await self._pool.get(self.address))
                if self._must_register or not self.is_registered or not self._takes_few():
                    await self._register()
                else:
                    await self._tell_next()
            except ClientError as error:
                self._failed(error)
                return

    def _takes_few(self) -> bool:
        return self._takes_news and len(self._untold) <= FEW_TOPICS

    async def _register(self) -> None:
        self._must_register = False
        self._untold.clear()
        answer = await self._ask(self._registration_of())
        if answer.code != ResponseCode.SUCCESS:
            raise RequestFailed(answer.code, answer.remark or "")
        if not self.is_registered:
            LOGGER.info("broker registered name_server=%s", self.address)
        self.is_registered, self.is_silent, self._has_failed = True, False, False

    async def _tell_next(self) -> None:
        topic = next(iter(self._untold))
        del self._untold[topic]
        command = self._news_of(topic)
        if command is None:
            return
        answer = await self._ask(command)
        self.is_silent = False
        if answer.code != ResponseCode.SUCCESS:
            self._takes_news = False
            self._must_register = True

    async def _ask(self, command: Command) -> Command:
        return await self._pool.request(self.address, command, self._timeout_s)

    def _failed(self, error: ClientError) -> None:
        if not self._has_failed:  # said once, not at every retry
            LOGGER.warning("broker not registered name_server=%s reason=%s", self.address, error)
        self.is_registered, self._has_failed = False, True
        self._timers.after(RETRY_S, self._retry)

    def _retry(self) -> None:
        if not self._is_stopped and not self.is_registered:
            self.register()

    def _watch(self, connection: Connection) -> None:
        """A name server forgets a broker whose connection closes: register again soon."""
        if connection is not self._watched:
            self._watched = connection
            connection.on_close.append(self._lost)

    def _lost(self, connection: Connection) -> None:
        if connection is self._watched and not self._is_stopped:
            self.is_registered = False
            self._timers.after(1.0, self._retry)


class Registration:
    """This broker's registrations with all its name servers."""

    def __init__(self, state: BrokerState, pool: ConnectionPool, address: tuple[str, int]) -> None:
        self.address = f"{address[0]}:{address[1]}"
        self._ha_address = f"{address[0]}:{address[1] + 1}"
        self._state = state
        self._pool = pool
        self._untold: dict[str, None] = {}  # topics that changed in this turn of the loop
        self._timer: Timer | None = None
        self._deletion_timer: Timer | None = None
        timeout_s = state.config.register_timeout_ms / 1000
        self.links = [
            Link(
                name_server,
                pool,
                state.timers,
                registration_of=self._registration,
                news_of=self._news,
                timeout_s=timeout_s,
            )
            for name_server in addresses_of(state.config.name_servers)
        ]

    def start(self) -> None:
        """Register everywhere, and again whenever that is due."""
        state = self._state
        interval_s = min(max(state.config.register_interval_ms / 1000, 10.0), 60.0)
        self._timer = state.timers.every(interval_s, self._register_all)
        state.topics.on_change.append(self._changed)
        state.updates.on_change.append(self._register_all)  # what the broker permits, for one
        self._register_all()

    async def settled(self) -> None:
        """Return once some name server knows this broker, or none could be told."""
        waits = {asyncio.ensure_future(link.settled()) for link in self.links}
        while waits and not any(link.is_registered for link in self.links):
            _, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def stop(self) -> None:
        """Unregister everywhere, and close the connections to the name servers."""
        for timer in (self._timer, self._deletion_timer):
            if timer is not None:
                timer.cancel()
        config = self._state.config
        header = BrokerHeader(
            broker_name=config.name,
            broker_address=self.address,
            cluster=config.cluster,
            broker_id=config.broker_id,
        )
        goodbyes = [request(RequestCode.UNREGISTER_BROKER, header) for _ in self.links]
        await asyncio.gather(*map(Link.unregister, self.links, goodbyes))
        await self._pool.close()

    async def ask(self, command: Command, timeout_s: float) -> Command:
        """The answer of the first name server that gives one; raises ClientError if none does."""
        fault: ClientError | None = None
        for link in sorted(self.links, key=lambda link: not link.is_registered):
            try:
                return await self._pool.request(link.address, command, timeout_s)
            except ClientError as error:
                fault = error
        raise fault or ClientError("there is no name server to ask")

    def when_told(self, callback: Callable[[], None]) -> None:
        """Call back once the name servers that listen know every change so far, or in a second.

        One that lets that second pass is not waited for again before it has answered.
        """
        self._tell()
        waiting: set[str] = set()

        def told(address: str) -> None:
            if address in waiting:
                waiting.remove(address)
                if not waiting:
                    timer.cancel()
                    callback()

        def too_late() -> None:
            for link in self.links:
                link.is_silent |= link.address in waiting
            waiting.clear()
            callback()

        for link in self.links:
            if link.when_told(partial(told, link.address)):
                waiting.add(link.address)
        if waiting:
            timer = self._state.timers.after(TELL_S, too_late)
        else:
            callback()

    def _changed(self, topic: str) -> None:
        """Have a topic told at the end of this turn of the loop, or soon if it has been deleted.

        Name servers keep a deleted topic until an administrator tells them, or if so configured
        until a registration lacks it: nobody waits for that.
        """
        if self._state.topics.get(topic) is not None:
            if not self._untold:
                asyncio.get_running_loop().call_soon(self._tell)
            self._untold[topic] = None
        elif self._deletion_timer is None:
            self._deletion_timer = self._state.timers.after(DELETED_S, self._register_all)

    def _tell(self) -> None:
        topics, self._untold = self._untold, {}
        if topics:
            for link in self.links:
                link.tell(topics)

    def _register_all(self) -> None:
        if self._deletion_timer is not None:
            self._deletion_timer.cancel()
            self._deletion_timer = None
        for link in self.links:
            link.register()

    def _news(self, name: str) -> Command | None:
        """One topic, as it is offered now; None when it has gone meanwhile."""
        topic = self._state.topics.get(name)
        if topic is None:
            return None
        queues = QueueData(
            broker_name=self._state.config.name,
            read_queue_count=topic.read_queue_count,
            write_queue_count=topic.write_queue_count,
            permission=topic.permission & self._allowed(),
            system_flag=topic.system_flag,
        )
        body = fastjson.encode(TopicRouteData(queues=[queues]))
        return request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicHeader(topic=name), body)

    def _registration(self) -> Command:
        config = self._state.config
        body = fastjson.encode(RegisterBrokerBody(table=self._offered()))
        header = RegisterBrokerHeader(
            broker_name=config.name,
            broker_address=self.address,
            cluster=config.cluster,
            ha_address=self._ha_address,
            broker_id=config.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, header, body)

    def _offered(self) -> TopicConfigTable:
        """All topics, with no right that the broker as a whole does not have."""
        table = self._state.topics.table()
        allowed = self._allowed()
        if allowed & READ_WRITE == READ_WRITE:
            return table
        topics = {
            name: msgspec.structs.replace(topic, permission=topic.permission & allowed)
            for name, topic in table.topics.items()
        }
        return msgspec.structs.replace(table, topics=topics)

    def _allowed(self) -> int:
        return self._state.config.permission | Permission.INHERIT


def addresses_of(name_servers: str) -> list[str]:
    """The addresses in `host:port;host:port`, each once."""
    parts = (part.strip() for part in name_servers.split(";"))
    return list(dict.fromkeys(part for part in parts if part))
