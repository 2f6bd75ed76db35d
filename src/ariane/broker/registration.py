"""Telling every name server what this broker serves: at once, each 30 seconds, and on change.

Each name server has a link of its own, so one that is slow or gone delays nobody. A link has one
registration under way at most; changes meanwhile ask for one more after it. Changes within one turn
of the event loop are told together.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ariane.broker.state import BrokerState
from ariane.broker.system_topics import READ_WRITE
from ariane.clock import Timer, Timers
from ariane.codes import Permission, RequestCode, ResponseCode
from ariane.errors import ClientError, RequestFailed
from ariane.protocol import fastjson
from ariane.protocol.bodies import RegisterBrokerBody, TopicConfigTable
from ariane.protocol.command import Command, request
from ariane.protocol.headers.nameserver import BrokerHeader, RegisterBrokerHeader
from ariane.remoting.client import ConnectionPool
from ariane.remoting.connection import Connection

LOGGER: Final = logging.getLogger("ariane.broker")

RETRY_S: Final = 3.0  # after a failure, rather than waiting for the next period
UNREGISTER_TIMEOUT_S: Final = 3.0
TELL_S: Final = 1.0  # how long whoever made a topic waits for name servers to hear of it


class Link:
    """The registration with one name server."""

    def __init__(
        self,
        address: str,
        pool: ConnectionPool,
        timers: Timers,
        command_of: Callable[[], Command],
        timeout_s: float,
    ) -> None:
        self.address = address
        self.is_registered = False
        self.is_silent = False  # did not answer in time, so nobody waits for it until it does
        self._pool = pool
        self._timers = timers
        self._command_of = command_of
        self._timeout_s = timeout_s
        self._is_wanted = False
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None
        self._watched: Connection | None = None
        self._is_stopped = False

    def register(self) -> None:
        """Register now, or again once the registration under way has ended."""
        self._is_wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._register())

    def when_told(self, callback: Callable[[], None]) -> bool:
        """Call back when the registration under way has ended; False when that is not worth it."""
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

    async def _register(self) -> None:
        while self._is_wanted and not self._is_stopped:
            self._is_wanted = False
            try:
                await self._register_once()
            except ClientError as error:
                self._failed(error)
                return
            if not self.is_registered:
                LOGGER.info("broker registered name_server=%s", self.address)
            self.is_registered, self.is_silent, self._has_failed = True, False, False

    async def _register_once(self) -> None:
        self._watch(await self._pool.get(self.address))
        answer = await self._pool.request(self.address, self._command_of(), self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestFailed(answer.code, answer.remark or "")

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
        self._is_due = False
        self._timer: Timer | None = None
        timeout_s = state.config.register_timeout_ms / 1000
        self.links = [
            Link(name_server, pool, state.timers, self._registration, timeout_s)
            for name_server in addresses_of(state.config.name_servers)
        ]

    def start(self) -> None:
        """Register everywhere, and again whenever that is due."""
        state = self._state
        interval_s = min(max(state.config.register_interval_ms / 1000, 10.0), 60.0)
        self._timer = state.timers.every(interval_s, self._register_all)
        state.topics.on_change.append(lambda _: self.changed())
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
        if self._timer is not None:
            self._timer.cancel()
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

    def changed(self) -> None:
        """Register everywhere at the end of this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._register_all)

    def when_told(self, callback: Callable[[], None]) -> None:
        """Call back once the name servers that listen know every change so far, or in a second.

        One that lets that second pass is not waited for again before it has answered.
        """
        if self._is_due:
            self._register_all()
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

    def _register_all(self) -> None:
        self._is_due = False
        for link in self.links:
            link.register()

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
        allowed = self._state.config.permission
        if allowed & READ_WRITE == READ_WRITE:
            return table
        kept = allowed | Permission.INHERIT
        topics = {
            name: msgspec.structs.replace(topic, permission=topic.permission & kept)
            for name, topic in table.topics.items()
        }
        return msgspec.structs.replace(table, topics=topics)


def addresses_of(name_servers: str) -> list[str]:
    """The addresses in `host:port;host:port`, each once."""
    parts = (part.strip() for part in name_servers.split(";"))
    return list(dict.fromkeys(part for part in parts if part))
