"""A running name server: the table, the socket in front of it, and the scan that keeps it true."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ariane.clock import Clock, Timer, Timers
from ariane.config import NameServerConfig
from ariane.disk import Disk
from ariane.nameserver.config import checked
from ariane.nameserver.dispatch import dispatch
from ariane.nameserver.handlers import State
from ariane.nameserver.key_values import KeyValues
from ariane.nameserver.routes import RouteTable
from ariane.remoting.connection import Connection, ConnectionLimits, Handler
from ariane.remoting.server import Server, serve

LOGGER: Final = logging.getLogger("ariane.nameserver")


class NameServer:
    """Tells clients which brokers serve a topic. Knows of no other name server.

    `disk` holds the one file there is, at `config.kv_path` below its root. Whoever starts the
    server drives `timers`. With `intercept` every request goes through the handler it makes of
    ours.
    """

    def __init__(
        self,
        config: NameServerConfig,
        *,
        disk: Disk,
        clock: Clock,
        timers: Timers,
        limits: ConnectionLimits | None = None,
        intercept: Callable[[Handler], Handler] | None = None,
    ) -> None:
        self._state = State(checked(config), RouteTable(), KeyValues(disk, config.kv_path), clock)
        self._timers = timers
        self._limits = limits
        self._intercept = intercept
        self._server: Server | None = None
        self._scan: Timer | None = None

    @property
    def config(self) -> NameServerConfig:
        """The settings as they are now."""
        return self._state.config

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return 0 if self._server is None else self._server.port

    async def start(self) -> None:
        """Listen; port 0 picks a free one."""
        handler: Handler = partial(dispatch, self._state)
        self._server = await serve(
            self.config.bind_host,
            self.config.port,
            handler=handler if self._intercept is None else self._intercept(handler),
            timers=self._timers,
            limits=self._limits,
            on_close=self._connection_closed,
        )
        self._state.config = msgspec.structs.replace(self.config, port=self.port)
        self._schedule_scan()
        LOGGER.info("name server listening host=%s port=%d", self.config.bind_host, self.port)

    async def stop(self) -> None:
        """Close every connection and listen no more."""
        if self._scan is not None:
            self._scan.cancel()
        if self._server is not None:
            await self._server.close()
            LOGGER.info("name server stopped port=%d", self.port)

    def _schedule_scan(self) -> None:
        # Set anew each time, since the interval can be changed while running.
        self._scan = self._timers.after(self.config.scan_interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        for address in self._state.routes.expire(self._state.clock.monotonic_s()):
            LOGGER.warning("broker expired address=%s", address)
        self._schedule_scan()

    def _connection_closed(self, connection: Connection) -> None:
        for address in self._state.routes.connection_closed(connection.id):
            LOGGER.info("broker gone address=%s reason=connection closed", address)
