"""A listening socket and the connections it has accepted."""

from __future__ import annotations

import asyncio
import itertools
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

from ariane.clock import Timers
from ariane.protocol.command import SCRATCH_BYTES, ByteBudget
from ariane.remoting.connection import Connection, ConnectionLimits, DecoderOf, Handler
from ariane.remoting.poller import Poller, poller_of
from ariane.remoting.transport import SocketTransport

logger = logging.getLogger("ariane.remoting")

CHECK_S: Final = 5.0  # how often idle connections are looked for
BACKLOG: Final = (1 << 31) - 1  # as many as the system allows (net.core.somaxconn)
ACCEPTED_AT_ONCE: Final = 64
ACCEPT_RETRY_S: Final = 1.0
CONNECTIONS_MAX: Final = 16_000
HOST_CONNECTIONS_MAX: Final = 12_000  # the others must get in even when one address floods us
SPARE_DESCRIPTORS: Final = 128  # never given to connections: the store opens files as it goes
UNFINISHED_BYTES_MAX: Final = 256 << 20  # of incomplete frames, all connections together


class Server:
    """Accepts connections until closed. Made by `serve`."""

    def __init__(
        self,
        *,
        handler: Handler,
        timers: Timers,
        decoder_of: DecoderOf | None,
        on_connect: Callable[[Connection], None] | None,
        on_close: Callable[[Connection], None] | None,
        connections_max: int,
        host_connections_max: int,
        unfinished_bytes_max: int,
        limits: ConnectionLimits,
        poller: Poller | None,
    ) -> None:
        self.host = ""
        self.port = 0
        self.connections: set[Connection] = set()
        self.refused_count = 0
        self.connections_max = connections_max
        self._host_connections_max = host_connections_max
        self._hosts: Counter[str] = Counter()
        self._descriptors_max = _descriptors_max()
        self._handler = handler
        self._timers = timers
        self._decoder_of = decoder_of
        self._on_connect = on_connect
        self._on_close = on_close
        self._limits = limits
        self._ids = itertools.count(1)
        self._is_refusing = False
        self._scratch = bytearray(SCRATCH_BYTES)
        self._budget = ByteBudget(unfinished_bytes_max)
        self._listener: socket.socket | None = None
        self._poller = poller
        self._own_poller: Poller | None = None
        self._check_timer = timers.every(CHECK_S, self._check)

    async def listen(self, where: socket.socket | tuple[str, int]) -> None:
        """Bind and accept; port 0 picks a free one."""
        if self._poller is None:
            self._poller = self._own_poller = poller_of(asyncio.get_running_loop())
        self._listener = bind(*where) if isinstance(where, tuple) else where
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        name = self._listener.getsockname()
        self.host, self.port = str(name[0]), int(name[1])
        self._accept_more()

    def _accept_more(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take the connections that wait, a few at a time so that others are served between."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors, mostly: those in use will be given back
                logger.warning("cannot accept connections reason=%s", error)
                loop.remove_reader(listener)
                self._timers.after(ACCEPT_RETRY_S, self._accept_more)
                return
            if connected.fileno() >= self._descriptors_max:  # the lowest that was free
                connected.close()
                self._refused("there are no more descriptors for them; raise ulimit -n")
                continue
            try:
                SocketTransport(loop, connected, self._connection(), self._poller, peer)
            except Exception:
                connected.close()
                logger.exception("connection not taken")

    def hush(self) -> None:
        """Accept no more and read no more, while answers under way still leave."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for connection in self.connections:
            connection.hush()

    async def close(self, *, grace_s: float = 2.0) -> None:
        """Accept no more, let each connection write what it has for `grace_s`, then be gone."""
        self._check_timer.cancel()
        self.hush()
        closing = list(self.connections)
        for connection in closing:
            connection.close("the server is stopping")
        if closing:
            waits = [asyncio.ensure_future(connection.wait_lost()) for connection in closing]
            _, late = await asyncio.wait(waits, timeout=grace_s)
            for connection in list(self.connections):
                connection.drop("the server has stopped")
            if late:
                await asyncio.wait(late)
        if self._own_poller is not None:
            self._own_poller.close()

    def _connection(self) -> Connection:
        return Connection(
            connection_id=next(self._ids),
            handler=self._handler,
            timers=self._timers,
            limits=self._limits,
            decoder_of=self._decoder_of,
            on_made=self._made,
            scratch=self._scratch,
            budget=self._budget,
        )

    def _made(self, connection: Connection) -> None:
        host = connection.peer[0]
        if len(self.connections) >= self.connections_max:
            self._refuse(connection, f"{self.connections_max} are the most allowed")
            return
        if self._hosts[host] >= self._host_connections_max:
            most = self._host_connections_max
            self._refuse(connection, f"{most} are the most allowed from one address, {host}")
            return
        self._is_refusing = False
        self._hosts[host] += 1
        self.connections.add(connection)
        connection.on_close.append(self._lost)
        if self._on_connect is not None:
            self._on_connect(connection)

    def _refuse(self, connection: Connection, reason: str) -> None:
        self._refused(reason)
        connection.close(f"the server takes no more connections: {reason}")

    def _refused(self, reason: str) -> None:
        self.refused_count += 1
        if not self._is_refusing:
            self._is_refusing = True
            logger.warning("connections refused reason=%s", reason)

    def _lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._forget_host(connection.peer[0])
        if self._on_close is not None:
            self._on_close(connection)

    def _forget_host(self, host: str) -> None:
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _check(self) -> None:
        for connection in list(self.connections):
            connection.check()


def _descriptors_max() -> int:
    """Below this a descriptor may be a connection's; those of the whole process are counted."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 31
    return int(soft) - min(SPARE_DESCRIPTORS, int(soft) // 2)


def bind(host: str, port: int) -> socket.socket:
    """Take a port without listening on it yet, for those who must know it before they serve."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


async def serve(
    host: str,
    port: int,
    *,
    bound: socket.socket | None = None,
    handler: Handler,
    timers: Timers,
    decoder_of: DecoderOf | None = None,
    on_connect: Callable[[Connection], None] | None = None,
    on_close: Callable[[Connection], None] | None = None,
    connections_max: int = CONNECTIONS_MAX,
    host_connections_max: int = HOST_CONNECTIONS_MAX,
    unfinished_bytes_max: int = UNFINISHED_BYTES_MAX,
    limits: ConnectionLimits | None = None,
    poller: Poller | None = None,
) -> Server:
    """Listen on `host:port`, or on what is already `bound`; `handler` gets every request.

    The sockets are watched by `poller`, or by one of the server's own.
    """
    server = Server(
        handler=handler,
        timers=timers,
        decoder_of=decoder_of,
        on_connect=on_connect,
        on_close=on_close,
        connections_max=connections_max,
        host_connections_max=host_connections_max,
        unfinished_bytes_max=unfinished_bytes_max,
        limits=limits or ConnectionLimits(),
        poller=poller,
    )
    try:
        await server.listen(bound or (host, port))
    except OSError:
        await server.close()
        raise
    return server
