"""A connection for readers that block: asks ahead, and takes the answers when it wants them.

An executor's worker has one thread and wants bytes, many of them: there is no event loop here, and
a large body goes from the socket straight into the memory that columns are read from. Links are
kept by address while the worker lives; a forked child makes its own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from ariane.client import forks
from ariane.codes import RequestCode
from ariane.errors import ConnectionLost, FrameError, RequestTimeout
from ariane.protocol import binary_header, json_header
from ariane.protocol.command import LENGTHS, Serializer, request
from ariane.protocol.headers import Header
from ariane.protocol.json_header import HeaderFields
from ariane.protocol.limits import REPLY_HEADER_BYTES_MAX
from ariane.remoting.client import split_address

LANGUAGE: Final = "PYTHON"
CONNECT_TIMEOUT_S: Final = 3.0
SCRATCH_BYTES: Final = 256 << 10
RECEIVE_BYTES: Final = 4 << 20  # what the system may take in while we do something else
FRAME_BYTES_MAX: Final = 96 << 20  # three times what a bulk read may ask for


class Answer(NamedTuple):
    """What a peer said: the header's parts, and the body's bytes."""

    code: int
    remark: str
    ext: dict[str, str]
    body: Any  # a buffer


OnHead = Callable[[Answer], None]


class Connected(Protocol):
    """What a link needs of a socket."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Take what is there, and wait for something if nothing is."""
        ...

    def recv(self, size: int, flags: int, /) -> bytes:
        """The same, with flags."""
        ...

    def gettimeout(self) -> float | None:
        """How long it waits."""
        ...

    def settimeout(self, value: float | None, /) -> None:
        """Wait so long, or not at all."""
        ...

    def close(self) -> None:
        """Be gone."""
        ...


class Link:
    """One connection. Requests may be asked ahead; what comes in between is kept."""

    def __init__(self, address: str, connected: Connected) -> None:
        self.address = address
        self.is_usable = True
        self._socket = connected
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._first = self._end = 0  # of the scratch, what was received and not used
        self._opaque = 0
        self._pending: set[int] = set()
        self._early: dict[int, Answer] = {}

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is asked that was not taken."""
        return self.is_usable and not self._pending

    def is_alive(self) -> bool:
        """Whether the peer is still there, after a time in which nothing was asked."""
        patience_s = self._socket.gettimeout()
        self._socket.settimeout(0)  # with one, Python waits for it even if told not to by a flag
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            self._socket.settimeout(patience_s)
            return True
        except OSError:
            pass
        self.close()  # gone, or it speaks without being asked
        return False

    def wait_for(self, timeout_s: float) -> None:
        """How long the peer may say nothing while an answer is due."""
        self._socket.settimeout(timeout_s)

    def ask(self, code: RequestCode, header: Header, body: bytes = b"") -> int:
        """Send a request; the number to take its answer by."""
        number = self.new_number()
        self.send(encode(code, header, body, number))
        return number

    def new_number(self) -> int:
        """The number of a request that is sent next."""
        self._opaque += 1
        self._pending.add(self._opaque)
        return self._opaque

    def send(self, frames: bytes) -> None:
        """Send requests that were written elsewhere, each with a number of its own."""
        try:
            self._socket.sendall(frames)
        except OSError as error:
            raise self._broken(error) from error

    def take(self, opaque: int, on_head: OnHead | None = None) -> Answer:
        """The answer to a request; `on_head` sees it while its body is still on the way."""
        while opaque not in self._early:
            found, answer = self._receive(opaque, on_head)
            if found in self._pending:
                self._pending.discard(found)
                self._early[found] = answer
        return self._early.pop(opaque)

    def call(self, code: RequestCode, header: Header, body: bytes = b"") -> Answer:
        """Ask, and wait for the answer."""
        return self.take(self.ask(code, header, body))

    def close(self) -> None:
        """Let go of the connection."""
        self.is_usable = False
        self._socket.close()

    def _receive(self, awaited: int, on_head: OnHead | None) -> tuple[int, Answer]:
        size, word = LENGTHS.unpack(self._small(LENGTHS.size))
        header_size = word & 0xFFFFFF
        body_size = size - 4 - header_size
        if body_size < 0 or size > FRAME_BYTES_MAX or header_size > REPLY_HEADER_BYTES_MAX:
            self.close()
            raise FrameError(
                f"{self.address} sent a frame of {size} bytes, {header_size} of header"
            )
        head = _fields(self._large(header_size), word >> 24)
        if on_head is not None and head.opaque == awaited:
            on_head(Answer(head.code, head.remark or "", head.ext, b""))
        body = self._large(body_size)
        return head.opaque, Answer(head.code, head.remark or "", head.ext, body)

    def _small(self, size: int) -> bytes:
        """So many bytes, fewer than the scratch has."""
        while self._end - self._first < size:
            if len(self._scratch) - self._first < size:
                held = bytes(self._scratch[self._first : self._end])
                self._scratch[: len(held)] = held
                self._first, self._end = 0, len(held)
            self._end += self._read(self._scratch[self._end :])
        self._first += size
        return bytes(self._scratch[self._first - size : self._first])

    def _large(self, size: int) -> Any:
        """So many bytes; what is not here yet goes straight to where it belongs."""
        here = self._end - self._first
        if size <= here or size <= len(self._scratch) // 4:
            return self._small(size)
        buffer = pa.allocate_buffer(size)
        view = memoryview(buffer).cast("B")
        view[:here] = self._scratch[self._first : self._end]
        self._first = self._end = 0
        while here < size:
            here += self._read(view[here:])
        return buffer

    def _read(self, room: memoryview) -> int:
        try:
            count = self._socket.recv_into(room)
        except OSError as error:
            raise self._broken(error) from error
        if count == 0:
            self.close()
            raise ConnectionLost(f"{self.address} closed the connection")
        return count

    def _broken(self, error: OSError) -> ConnectionLost | RequestTimeout:
        self.close()
        if isinstance(error, TimeoutError):
            return RequestTimeout(f"{self.address} has not answered in time")
        return ConnectionLost(f"the connection to {self.address} broke: {error}")


def encode(code: RequestCode, header: Header, body: bytes, number: int) -> bytes:
    """A request as it is sent."""
    command = request(code, header, body, opaque=number)
    command.language = LANGUAGE
    return command.encode()


class Links:
    """Connections that wait for their next use, by address."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Link]] = {}
        forks.watch(self)

    def forked(self) -> None:
        """This is a child: what is open belongs to the parent, and closing our end harms nobody."""
        self._idle.clear()

    def get(self, address: str, timeout_s: float) -> Link:
        """A connection for the caller alone; raises ConnectionLost."""
        idle = self._idle.get(address)
        while idle:
            link = idle.pop()
            if link.is_alive():
                link.wait_for(timeout_s)
                return link
        return Link(address, _connect(address, timeout_s))

    def put_back(self, link: Link) -> None:
        """Keep it for the next, unless it is broken or answers are still to come."""
        if link.is_quiet:
            self._idle.setdefault(link.address, []).append(link)
        else:
            link.close()


def _connect(address: str, timeout_s: float) -> socket.socket:
    host, port = split_address(address)
    try:
        connected = socket.create_connection((host, port), min(CONNECT_TIMEOUT_S, timeout_s))
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {address}: {error}") from error
    connected.settimeout(timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return connected


def _fields(header: Any, serializer: int) -> HeaderFields:
    decode = binary_header.decode if serializer == Serializer.ROCKETMQ else json_header.decode
    return decode(bytes(header))
