"""Blocking sends on sockets of their own: the caller's thread writes, waits and reads.

Handing a send to the loop's thread and being woken by it costs more than the send. So a first
attempt is made here; whatever is not plain about it is the courier's to go on with.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Final

from ariane.client import forks
from ariane.client.hot_sends import Receipts, Target
from ariane.client.messages import SendReceipt, SendStatus
from ariane.client.parcels import Parcel
from ariane.client.receipts import receipts_of
from ariane.clock import Clock
from ariane.errors import ConnectionLost, RequestTimeout
from ariane.protocol.command import LENGTHS, command_of
from ariane.protocol.limits import FRAME_BYTES_MAX
from ariane.remoting.client import CONNECT_TIMEOUT_S, split_address

BUFFER_BYTES: Final = 16 << 10
IDLE_S: Final = 60.0  # brokers close what is silent for 120 s
IDLE_COUNT_MAX: Final = 64  # sockets kept for each address
SHORTEST_S: Final = 0.001  # to wait; the kernel takes 0 for no bound at all
OPAQUE_MAX: Final = 0x7FFF_FFFF
_TIME: Final = struct.Struct("@ll")  # what the kernel takes as a time to wait


class Line:
    """One connected socket, used by one thread at a time."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.used_s = 0.0
        self._opaques = itertools.count(1)
        self._buffer = bytearray(BUFFER_BYTES)
        self._timeout_s = 0.0
        try:
            self._socket = socket.create_connection(split_address(address), timeout_s)
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {error}") from error

    def close(self) -> None:
        """Use it no more."""
        self._socket.close()

    def send(
        self, receipts: Receipts, target: Target, parcel: Parcel, timeout_s: float
    ) -> SendReceipt:
        """One request and its answer; after an error the line must be closed."""
        assert isinstance(parcel.message_ids, str)
        self._limit(timeout_s)
        opaque = next(self._opaques) & OPAQUE_MAX
        try:
            self._socket.sendall(
                target.frame(
                    opaque,
                    parcel.properties,
                    parcel.body,
                    parcel.system_flag,
                    parcel.flag,
                    parcel.born_ms,
                )
            )
            frame = self._frame(target.address)
        except ConnectionLost:
            raise
        except BlockingIOError as error:  # the kernel's word for a time that is up
            raise RequestTimeout(f"no answer from {target.address} in time") from error
        except OSError as error:
            raise ConnectionLost(f"the connection to {target.address} broke: {error}") from error
        receipt = receipts.read(frame, opaque, target, parcel.message_ids)
        if receipt is not None:
            return receipt  # type: ignore[no-any-return]  # made by SendReceipt
        answer = command_of(frame)
        if answer.opaque != opaque or not answer.is_response:
            raise ConnectionLost(f"{target.address} answered something else")
        found = receipts_of(answer, target, parcel.message_ids)
        assert isinstance(found, SendReceipt)
        return found

    def _limit(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            seconds = max(timeout_s, SHORTEST_S)
            time = _TIME.pack(int(seconds), int(seconds % 1 * 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)
            self._timeout_s = timeout_s

    def _frame(self, address: str) -> bytes:
        """The next frame, whole."""
        view = memoryview(self._buffer)
        have = 0
        need = LENGTHS.size
        while have < need:
            count = self._socket.recv_into(view[have:])
            if not count:
                raise ConnectionLost(f"the connection to {address} was closed by the broker")
            have += count
            if need == LENGTHS.size and have >= need:
                need = 4 + LENGTHS.unpack_from(self._buffer)[0]
                if not LENGTHS.size <= need <= FRAME_BYTES_MAX:
                    raise ConnectionLost(f"{address} sent a frame of {need} bytes")
                if need > len(self._buffer):
                    self._buffer = self._buffer[:have] + bytes(need - have)
                    view = memoryview(self._buffer)
        if have > need:
            raise ConnectionLost(f"{address} answered more than it was asked")
        return bytes(view[:need])


class DirectLines:
    """Lines to brokers, taken and given back by any thread."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._receipts = Receipts(SendReceipt, SendStatus.OK)
        self._idle: dict[str, list[Line]] = {}
        self._is_closed = False
        forks.watch(self)

    def send(self, target: Target, parcel: Parcel, timeout_s: float) -> SendReceipt:
        """Make one attempt; raises what the courier knows how to go on from."""
        line = self._taken(target.address)
        if line is None:
            line = Line(target.address, min(max(timeout_s, SHORTEST_S), CONNECT_TIMEOUT_S))
        try:
            receipt = line.send(self._receipts, target, parcel, timeout_s)
        except BaseException:
            line.close()
            raise
        line.used_s = self.clock.monotonic_s()
        idle = self._idle.setdefault(target.address, [])
        if len(idle) < IDLE_COUNT_MAX:
            idle.append(line)
        else:
            line.close()
        if self._is_closed:  # looked at after giving the line back: one of the two closes it
            self._close_idle()
        return receipt

    def close(self) -> None:
        """Close every line: now, or when it is given back."""
        self._is_closed = True
        self._close_idle()

    def forked(self) -> None:
        """This is a child process: answers on these sockets are the parent's."""
        self._close_idle()

    def _close_idle(self) -> None:
        for lines in list(self._idle.values()):
            while lines:
                try:
                    lines.pop().close()
                except IndexError:
                    break  # another thread took it

    def _taken(self, address: str) -> Line | None:
        """A line that was used not long ago; lists are shared by threads, and pop one at a time."""
        lines = self._idle.get(address)
        while lines:
            try:
                line = lines.pop()
            except IndexError:
                return None
            if self.clock.monotonic_s() - line.used_s < IDLE_S:
                return line
            line.close()
        return None
