"""Connections to other processes: one per address, made when first needed, made again when lost."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ariane.clock import Timers
from ariane.codes import ResponseCode
from ariane.errors import ConnectionLost
from ariane.protocol.command import (
    SCRATCH_BYTES,
    Command,
    CommandDecoder,
    FrameReader,
    reply,
)
from ariane.protocol.limits import REPLY_HEADER_BYTES_MAX
from ariane.remoting.connection import Connection, ConnectionLimits, DecoderOf, Handler
from ariane.remoting.server import CHECK_S
from ariane.remoting.transport import SocketTransport

CONNECT_TIMEOUT_S: Final = 3.0


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`; raises ConnectionLost when it is neither."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConnectionLost(f"{address!r} is not an address; write it as host:port")
    return host, int(port)


async def connect(
    host: str,
    port: int,
    *,
    timers: Timers,
    handler: Handler | None = None,
    decoder_of: DecoderOf | None = None,
    limits: ConnectionLimits | None = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
    connection_id: int = 0,
    scratch: bytearray | None = None,
) -> Connection:
    """A new connection; raises ConnectionLost when there is none within `timeout_s`."""

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            connected = await _connected_socket(loop, host, port)
    except TimeoutError as error:
        raise ConnectionLost(f"no connection to {host}:{port} within {timeout_s} s") from error
    except OSError as error:
        known = (error.errno or 0) > 0  # not so for a name that cannot be resolved
        reason = os.strerror(error.errno or 0).lower() if known else error.strerror or str(error)
        raise ConnectionLost(f"cannot connect to {host}:{port}: {reason}") from error
    connection = Connection(
        connection_id=connection_id,
        handler=handler or refuse_requests,
        timers=timers,
        limits=replace(limits or ConnectionLimits(), reads_on=True),
        decoder_of=decoder_of or reply_decoder_of,
        scratch=scratch,
    )
    SocketTransport(loop, connected, connection)
    return connection


async def _connected_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A socket connected to the first of the host's addresses that takes it."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in await _addresses(loop, host, port):
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.setblocking(False)
            await loop.sock_connect(connecting, address)
            return connecting
        except OSError as error:
            connecting.close()
            failure = error
        except BaseException:
            connecting.close()
            raise
    raise failure or OSError(f"{host} has no address")


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
    try:
        # Numbers need no resolver, and so no thread.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def reply_decoder_of(connection: Connection) -> FrameReader:
    """A decoder for those who ask: answers may have longer headers than requests."""
    return CommandDecoder(scratch=connection.scratch, header_bytes_max=REPLY_HEADER_BYTES_MAX)


def refuse_requests(connection: Connection, command: Command) -> Command | None:
    """The handler of a client that serves nothing."""
    remark = f"request code {command.code} is not served here"
    return reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


class ConnectionPool:
    """One connection per address, shared by all who ask; belongs to one event loop."""

    def __init__(
        self,
        timers: Timers,
        *,
        handler: Handler | None = None,
        decoder_of: DecoderOf | None = None,
        on_connect: Callable[[str, Connection], None] | None = None,
        limits: ConnectionLimits | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._timers = timers
        self._on_connect = on_connect
        self._handler = handler
        self._decoder_of = decoder_of
        self._limits = limits
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[str, Connection] = {}
        self._attempts: dict[str, asyncio.Task[Connection]] = {}
        self._ids = itertools.count(1)
        self._scratch = bytearray(SCRATCH_BYTES)
        self._is_closed = False
        self._check_timer = timers.every(CHECK_S, self._check)

    def existing(self, address: str) -> Connection | None:
        """The open connection to `address`, if there is one."""
        connection = self._connections.get(address)
        return None if connection is None or connection.is_closed else connection

    def is_busy(self, *, within_s: float) -> bool:
        """Whether it connects, or waits for an answer that was asked for so short a time."""
        return bool(self._attempts) or any(
            connection.awaits_answers(within_s=within_s)
            for connection in self._connections.values()
        )

    def give_time(self, seconds: float) -> None:
        """Let whatever waits for its answer wait so much longer."""
        for connection in self._connections.values():
            connection.give_time(seconds)

    async def get(self, address: str) -> Connection:
        """The connection to `address`, made now if need be; raises ConnectionLost."""
        connection = self.existing(address)
        if connection is not None:
            return connection
        if self._is_closed:
            raise ConnectionLost("the connections of this client have been closed")
        attempt = self._attempts.get(address)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._connect(address))
            self._attempts[address] = attempt
            attempt.add_done_callback(lambda done: self._attempted(address, done))
        return await asyncio.shield(attempt)

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        """The answer of whoever listens at `address`."""
        connection = await self.get(address)
        return await connection.request(command, timeout_s)

    async def send_one_way(self, address: str, command: Command) -> None:
        """Send what needs no answer."""
        connection = await self.get(address)
        connection.send(command)

    async def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        self._check_timer.cancel()
        for attempt in list(self._attempts.values()):
            attempt.cancel()
        if self._attempts:
            await asyncio.wait(list(self._attempts.values()))
        connections = list(self._connections.values())
        for connection in connections:
            connection.close("the client is closing")
        waits = [asyncio.ensure_future(connection.wait_lost()) for connection in connections]
        if waits:
            _, late = await asyncio.wait(waits, timeout=1.0)
            for connection in connections:
                connection.drop("the client has closed")
            if late:
                await asyncio.wait(late)

    async def _connect(self, address: str) -> Connection:
        host, port = split_address(address)
        connection = await connect(
            host,
            port,
            timers=self._timers,
            handler=self._handler,
            decoder_of=self._decoder_of,
            limits=self._limits,
            timeout_s=self._connect_timeout_s,
            connection_id=next(self._ids),
            scratch=self._scratch,
        )
        self._connections[address] = connection
        connection.on_close.append(lambda lost: self._forget(address, lost))
        if self._on_connect is not None:
            self._on_connect(address, connection)
        return connection

    def _attempted(self, address: str, attempt: asyncio.Task[Connection]) -> None:
        self._attempts.pop(address, None)
        if not attempt.cancelled():
            attempt.exception()  # seen, even if whoever waited has gone

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]

    def _check(self) -> None:
        for connection in list(self._connections.values()):
            connection.check()
