"""A connected socket on the event loop, with as little as possible between the two.

It does what asyncio's own transport does for a `BufferedProtocol`, but a read is one call from the
loop and a write is one system call when the peer keeps up; with one request per read that is a
quarter of what a request costs (docs/decisions/0009). A `Session` reads the socket by itself, for
any other reader it is read here. Servers and clients use it, servers with a poller that watches all
their sockets; whatever asyncio wraps by itself (TLS) keeps asyncio's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ariane.kernel.session import Session
from ariane.kernel.sockets import Channel
from ariane.protocol.command import FrameReader
from ariane.remoting.poller import Poller

if TYPE_CHECKING:
    from ariane.remoting.connection import Connection

READ_AGAIN: Final = (BlockingIOError, InterruptedError)
# What the system may keep for a peer that has no room for it; what is on its way is not counted.
UNSENT_BYTES: Final = 256 << 10


class SocketTransport(asyncio.Transport):
    """Reads into the protocol's buffer, writes at once or when the socket has room again."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        protocol: Connection,
        watcher: Poller | None = None,
        peer: Any = None,
    ) -> None:
        """`peer` is the address that accepting gave: one that is gone again has no other name."""
        super().__init__()
        self._facts: dict[str, Any] = {"socket": connected, "sockname": connected.getsockname()}
        self._facts["peername"] = connected.getpeername() if peer is None else peer
        connected.setblocking(False)
        with suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self._loop = loop
        self._watcher = watcher or loop
        self.after_round = None if watcher is None else watcher.call_soon
        self.channel = Channel(connected.fileno(), self._wait, self._ended)
        self._socket = connected
        self._protocol = protocol
        self._descriptor = connected.fileno()
        self._unsent = bytearray()
        self._high, self._low = 64 << 10, 16 << 10
        self._is_closing = False
        self._is_reading = False
        self._is_paused = False  # the protocol has been asked to write no more
        protocol.connection_made(self)
        self._get_buffer = protocol.reader.get_buffer
        self._buffer_updated = protocol.buffer_updated
        self._receive_into = connected.recv_into
        self._on_readable = self._readable_of(protocol.reader)
        self.resume_reading()

    def _readable_of(self, reader: Session | FrameReader) -> Callable[[], None]:
        """What to call when the socket can be read."""
        return reader.readable if isinstance(reader, Session) else self._readable

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`socket`, `sockname` and, if the peer was there, `peername`."""
        return self._facts.get(name, default)

    def is_closing(self) -> bool:
        """Whether no more is read."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether what arrives is read."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Leave what arrives in the socket."""
        if self._is_reading:
            self._is_reading = False
            self._watcher.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        """Read again."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._watcher.add_reader(self._descriptor, self._on_readable)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Above `high` unsent bytes the protocol is asked to pause, below `low` to go on."""
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes the socket has not taken yet."""
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send now what the socket takes, and the rest when it can."""
        self.channel.write(bytes(data))

    def _wait(self, rest: bytes) -> None:
        """Keep what the socket did not take."""
        if self._is_closing:
            return
        if not self._unsent:
            self.channel.is_direct = False  # others must wait behind this
            self._watcher.add_writer(self._descriptor, self._writable)
        self._unsent += rest
        if len(self._unsent) > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Read no more, send what is left, then be gone."""
        if self._is_closing:
            return
        self.pause_reading()
        self._is_closing = True
        self.channel.is_direct = False
        if not self._unsent:
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Be gone at once, with whatever is unsent."""
        self._fail(None)

    def _readable(self) -> None:
        try:
            count = self._receive_into(self._get_buffer(-1))
        except READ_AGAIN:
            return
        except OSError as error:
            self._fail(error)
            return
        if count:
            self._buffer_updated(count)
        else:
            self._protocol.ended()

    def _ended(self, fault: int) -> None:
        """The channel finds that nothing more can be read."""
        if fault:
            self._fail(OSError(fault, os.strerror(fault)))
        else:
            self._protocol.ended()

    def _writable(self) -> None:
        try:
            sent = self.channel.send(self._unsent)
        except OSError as error:
            self._fail(error)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._watcher.remove_writer(self._descriptor)
            if self._is_closing:
                self._lose(None)
                return
            self.channel.is_direct = True
        if self._is_paused and len(self._unsent) <= self._low:
            self._is_paused = False
            self._protocol.resume_writing()

    def _fail(self, error: OSError | None) -> None:
        """The socket is of no more use; the protocol hears of it from the loop."""
        if self._socket.fileno() < 0:
            return
        self.pause_reading()
        if self._unsent:
            self._watcher.remove_writer(self._descriptor)
            self._unsent.clear()
        elif self._is_closing:
            return  # being gone is already on its way
        self._is_closing = True
        self.channel.is_direct = False
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: OSError | None) -> None:
        if self._socket.fileno() < 0:
            return
        self._socket.close()
        self._protocol.connection_lost(error)
