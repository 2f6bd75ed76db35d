"""Telling every name server what this broker serves: at once, each 30 seconds, and on change.

Each name server has a link of its own, so one that is slow or gone delays nobody. A link has one
step under way at most; changes meanwhile are told after it. Changed topics that are few among all
are told by themselves, so that a topic costs the same to make whether there are ten or ten
thousand; many, and what else a name server may have to learn, by registering anew with all topics.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
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
FEW_TOPICS: Final = 8  # to be told by themselves, however few there are in all
NEWS_SHARE: Final = 8  # and as many as a topic costs more by itself than among all
NEWS_AT_ONCE: Final = 32  # on their way to a name server
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
        topic_count: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self.address = address
        self.is_registered = False
        self.is_silent = False  # did not answer in time, so nobody waits for it until it does
        self._pool = pool
        self._timers = timers
        self._registration_of = registration_of
        self._news_of = news_of
        self._topic_count = topic_count
        self._timeout_s = timeout_s
        self._has_failed = False
        self._must_register = False
        self._untold: dict[str, None] = {}  # topics, in the order in which they changed
        self._takes_news = True  # of single topics; name servers of long ago do not
        self._waiting: list[Callable[[], None]] = []  # until what is untold has been told
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
        """Call back when everything so far has been told; False when not worth waiting for."""
        if not self.is_registered or self.is_silent or self._task is None or self._task.done():
            return False
        self._waiting.append(callback)
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
        try:
            while (self._must_register or self._untold) and not self._is_stopped:
                self._watch(await self._pool.get(self.address))
                if self._must_register or not self.is_registered or not self._takes_few():
                    await self._register()
                else:
                    await self._tell_some()
        except ClientError as error:
            self._failed(error)
        finally:
            self._tell_waiting(self._take_waiting())

    def _takes_few(self) -> bool:
        count = len(self._untold)
        is_few = count <= FEW_TOPICS or count * NEWS_SHARE <= self._topic_count()
        return self._takes_news and is_few

    def _take_waiting(self) -> list[Callable[[], None]]:
        """Those who wait for nothing that is still to be told after the next step."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _tell_waiting(self, waiting: list[Callable[[], None]]) -> None:
        loop = asyncio.get_running_loop()
        for callback in waiting:
            loop.call_soon(callback)

    async def _register(self) -> None:
        self._must_register = False
        self._untold.clear()
        waiting = self._take_waiting()
        try:
            answer = await self._ask(self._registration_of())
        finally:
            self._tell_waiting(waiting)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestFailed(answer.code, answer.remark or "")
        if not self.is_registered:
            LOGGER.info("broker registered name_server=%s", self.address)
        self.is_registered, self.is_silent, self._has_failed = True, False, False

    async def _tell_some(self) -> None:
        topics = list(islice(self._untold, NEWS_AT_ONCE))
        for topic in topics:
            del self._untold[topic]
        waiting = [] if self._untold else self._take_waiting()
        commands = [news for topic in topics if (news := self._news_of(topic)) is not None]
        try:
            answers = await asyncio.gather(*map(self._ask, commands))
        finally:
            self._tell_waiting(waiting)
        self.is_silent = False
        if any(answer.code != ResponseCode.SUCCESS for answer in answers):
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
                topic_count=lambda: len(state.topics),
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
            ha_address="",  # nobody would answer there: there are no replicas
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
