"""One connection between two peers: commands both ways, requests matched to their answers.

Used by servers and clients alike. A request needs no task: its handler is a plain call, and may
answer later with `send`. What a peer has not read yet is bounded. Beyond `unread_bytes_pause` a
server stops reading from it and carries out nothing more of what it has asked for, until it has
caught up; one that takes nothing for `untaken_s`, or is sent more than `unread_bytes_max` all the
same, is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.errors import (
    ArianeError,
    ConnectionLost,
    ProtocolError,
    RequestRejected,
    RequestTimeout,
)
from ariane.kernel.session import Session
from ariane.kernel.sockets import Channel
from ariane.protocol.command import ByteBudget, Command, CommandDecoder, FrameReader, reply
from ariane.remoting.transport import SocketTransport

logger = logging.getLogger("ariane.remoting")

FLUSH_BYTES: Final = 256 << 10  # answers gathered within one read before they are written anyway
LINGER_S: Final = 5.0  # how long a closing connection may take to write what it still has
OPAQUE_MASK: Final = (1 << 30) - 1  # the other half is for decoders that ask by themselves


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one peer may cost."""

    unread_bytes_pause: int = 256 << 10
    unread_bytes_max: int = 64 << 20
    untaken_s: float = 60.0  # while there is something to take
    idle_s: float = 120.0
    frame_s: float = 60.0  # for a frame to arrive whole
    # A server reads no more from a peer that does not read; a client must, or two that wait for
    # each other to read would wait for ever.
    reads_on: bool = False


class _Waiting(NamedTuple):
    """A request whose answer has not come."""

    future: asyncio.Future[Command]
    deadline_s: float
    code: int
    timeout_s: float


class Connection(asyncio.BufferedProtocol):
    """Speaks frames with one peer until closed."""

    def __init__(
        self,
        *,
        connection_id: int,
        handler: Handler,
        timers: Timers,
        limits: ConnectionLimits,
        decoder_of: DecoderOf | None = None,
        on_made: Callable[[Connection], None] | None = None,
        scratch: bytearray | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self.id = connection_id
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.is_closed = False
        self.close_reason = ""
        self.attachments: dict[str, Any] = {}  # whatever the owner wants to find again
        self.on_close: list[Callable[[Connection], None]] = []
        self.on_drain: list[Callable[[Connection], None]] = []  # a slow peer has caught up
        self.scratch = scratch  # shared by all connections of a loop; for decoders
        self.budget = budget
        self.parked_bytes = 0  # of answers that wait until they may be given (`broker/parked.py`)
        self.after_round: Callable[[Callable[[], None]], None] | None = None  # see `Poller`
        self.channel: Channel | None = None  # the short way to the socket, where there is one
        self.reader: Session | FrameReader  # what makes sense of the bytes that come
        self._handler = handler
        self._timers = timers
        self._limits = limits
        self._on_made = on_made
        self._decoder_of = decoder_of or default_decoder_of
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.get_running_loop().create_future()
        self._pending: dict[int, _Waiting] = {}
        self._deadline_timer: Timer | None = None
        self._last_opaque = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._undone: list[Command] = []  # read, and to be handled when the peer has caught up
        self._goes_on_soon = False  # the reader has more to do, and the loop will call
        self._has_ended = False  # the peer sends no more, and waits for answers at most
        self._gathering = False  # within a read: answers are written together at its end
        self._flush_is_due = False
        self._peer_is_slow = False
        self._is_hushed = False
        self._was_active = True
        self._active_s = self._checked_s = timers.clock.monotonic_s()
        self._frames_seen = 0
        self._taken_bytes = 0
        self._taken_s = self._active_s

    @property
    def unread_bytes(self) -> int:
        """Bytes given to this connection that the peer's side has not taken."""
        transport = self._transport
        return self._out_bytes + (0 if transport is None else transport.get_write_buffer_size())

    @property
    def is_congested(self) -> bool:
        """Whether the peer takes less than it was given; `on_drain` tells when that is over."""
        return self._peer_is_slow

    def send(self, command: Command) -> None:
        """Write a command; it is dropped when the connection has closed."""
        self.send_bytes(command.encode())

    def send_bytes(self, data: bytes) -> None:
        """Write whole frames; they are dropped when the connection has closed."""
        if self.is_closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._gathering:
            if self._out_bytes >= FLUSH_BYTES:
                self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def write(self, frames: bytes) -> None:
        """Write whole frames at once, ahead of those being gathered; for those that answer."""
        if self.channel is not None:
            self.channel.write(frames)
        elif self._transport is not None:
            self._transport.write(frames)
        if self._peer_is_slow:
            self._drop_if_deaf()

    async def request(self, command: Command, timeout_s: float) -> Command:
        """The peer's answer; raises RequestTimeout or ConnectionLost."""
        return await self.start_request(command, timeout_s)

    def start_request(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Send a request under a new opaque; the future ends with the answer or a ClientError."""
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_exception(self.lost())
            return future
        opaque = self._next_opaque()
        command.opaque = opaque
        deadline_s = self._timers.clock.monotonic_s() + timeout_s
        self._pending[opaque] = _Waiting(future, deadline_s, command.code, timeout_s)
        self._arm_deadline(deadline_s)
        self.send(command)
        return future

    def hush(self) -> None:
        """Read no more requests, while answers under way still leave."""
        self._is_hushed = True
        if self._transport is not None:
            self._transport.pause_reading()

    def close(self, reason: str) -> None:
        """Stop reading, write what is left, and close."""
        if self.is_closed:
            return
        self._flush()
        self.is_closed = True
        self.close_reason = reason
        self._active_s = self._timers.clock.monotonic_s()
        if self._transport is not None:
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close at once, throwing away what the peer has not read."""
        self.is_closed = True
        self.close_reason = self.close_reason or reason
        if self._transport is not None:
            self._transport.abort()

    def drop_deaf(self) -> None:
        """Drop a peer that does not read its answers, and say so."""
        logger.warning(
            "connection dropped peer=%s:%d reason=it does not read its answers", *self.peer
        )
        self.drop("the peer does not read its answers")

    def lost(self) -> ConnectionLost:
        """What to tell those who waited for an answer when the connection closed."""
        return ConnectionLost(f"the connection to {self.peer_text} is closed: {self.close_reason}")

    @property
    def peer_text(self) -> str:
        """The peer's address, as people write it."""
        return f"{self.peer[0]}:{self.peer[1]}"

    async def wait_lost(self) -> None:
        """Return once the socket is gone and `on_close` has been told."""
        await asyncio.shield(self._lost)

    def check(self) -> None:
        """Close when idle, deaf, stuck within a frame, or unable to finish closing; on a timer."""
        now_s = self._timers.clock.monotonic_s()
        if self.is_closed:
            if now_s - self._active_s >= LINGER_S:
                self.drop("closing took too long")
            return
        reader = self.reader
        has_frames = reader.frame_count != self._frames_seen
        self._frames_seen = reader.frame_count
        if self._is_deaf(now_s):
            self.drop_deaf()
            return
        if self._was_active or has_frames:
            self._was_active = False
            self._active_s = now_s
        elif now_s - self._active_s >= self._limits.idle_s:
            self._close_logged(f"idle for {self._limits.idle_s:.0f} s")
            return
        if not reader.partial_bytes or has_frames or self._peer_is_slow:
            self._checked_s = now_s
        elif now_s - self._checked_s >= self._limits.frame_s:
            self._close_logged(f"a frame has not arrived whole in {self._limits.frame_s:.0f} s")

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn the addresses and tell the owner."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        if isinstance(transport, SocketTransport):
            self.channel, self.after_round = transport.channel, transport.after_round
        self.reader = self._decoder_of(self)
        pause = self._limits.unread_bytes_pause
        transport.set_write_buffer_limits(high=pause, low=pause // 4)
        if self._on_made is not None:
            self._on_made(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits for answers and tell whoever asked to know."""
        self.is_closed = True
        if not self.close_reason:
            self.close_reason = "closed by the peer" if error is None else str(error)
        self.reader.close()
        self._undone.clear()
        self._out.clear()
        self._out_bytes = 0
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            if not waiting.future.done():
                waiting.future.set_exception(self.lost())
        for callback in self.on_close:
            try:
                callback(self)
            except Exception:  # each owner must hear of it
                logger.exception("close callback failed peer=%s:%d", *self.peer)
        if not self._lost.done():
            self._lost.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self.reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every command the new bytes complete."""
        self._was_active = True
        try:
            commands = self.reader.received(nbytes)
        except ProtocolError as error:
            self.fail(error)
            return
        except BaseException as error:
            self.close(f"internal error: {type(error).__name__}")  # the stream is out of step
            raise
        if commands:
            self.go_on(commands)

    def go_on(self, commands: list[Command]) -> None:
        """Handle these commands and what the reader has after them; answers leave together.

        When the peer turns out to be slow the rest of them waits until it has caught up.
        """
        self._gathering = True
        try:
            while commands:
                for number, command in enumerate(commands):
                    if self.is_closed:
                        return
                    if self._peer_is_slow and not self._limits.reads_on:
                        self._undone = commands[number:]
                        return
                    self._handle(command)
                commands = self.reader.received(0)
        except ProtocolError as error:
            self.fail(error)
        except BaseException as error:
            self.close(f"internal error: {type(error).__name__}")  # the stream is out of step
            raise
        finally:
            self._gathering = False
            if self._out:
                self._flush()

    def go_on_soon(self) -> None:
        """Let others have their turn before the reader goes on; read no more till then."""
        if self._transport is not None:
            self._transport.pause_reading()
        if not self._goes_on_soon:
            self._goes_on_soon = True
            asyncio.get_running_loop().call_soon(self._go_on_now)

    def fail(self, error: ProtocolError) -> None:
        """Close: what the peer sent cannot be read."""
        self._close_logged(str(error))

    def awaits_answers(self, *, within_s: float) -> bool:
        """Whether something waits for an answer that was asked for so short a time."""
        return any(waiting.timeout_s <= within_s for waiting in self._pending.values())

    def give_time(self, seconds: float) -> None:
        """Let whatever waits for its answer wait so much longer."""
        for opaque, waiting in self._pending.items():
            self._pending[opaque] = waiting._replace(deadline_s=waiting.deadline_s + seconds)

    def pause_writing(self) -> None:
        """The peer reads too slowly: read no more requests from it until it has caught up."""
        self._peer_is_slow = True
        if self._transport is not None and not self._limits.reads_on:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has caught up: go on with what it asked for, and read on if it keeps up."""
        self._peer_is_slow = False
        self._was_active = True
        self._take_up()
        for callback in self.on_drain:
            callback(self)

    def ended(self) -> None:
        """The peer sends no more: close when it has the answers that are under way.

        Those of the round have left by the loop's next turn; those that are parked leave soon, or
        are told to be late. Pulls that wait for messages are given up.
        """
        self._has_ended = True
        if self._transport is not None:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self.close_if_ended)

    def close_if_ended(self) -> None:
        """Close when the peer sends no more and nothing is parked for it."""
        if self._has_ended and not self.parked_bytes and not self.is_closed:
            self.close("closed by the peer")

    # Below: how it is done.

    def _go_on_now(self) -> None:
        self._goes_on_soon = False
        self._take_up()

    def _take_up(self) -> None:
        """Go on with what was read and had to wait; then read again, if the peer keeps up."""
        if self._peer_is_slow or self.is_closed:
            return
        undone, self._undone = self._undone, []
        if undone:
            self.go_on(undone)
        elif self.reader.partial_bytes:
            self.buffer_updated(0)
        if self._transport is not None and not (
            self.is_closed
            or self._is_hushed
            or self._has_ended
            or self._peer_is_slow
            or self._goes_on_soon
        ):
            self._transport.resume_reading()

    def _handle(self, command: Command) -> None:
        if command.is_response:
            waiting = self._pending.pop(command.opaque, None)
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(command)
            return
        answer = self._answer(command)
        if answer is not None and not command.is_one_way:
            self.send(answer)

    def _answer(self, command: Command) -> Command | None:
        """The one place where what a handler raises becomes an answer."""
        try:
            return self._handler(self, command)
        except RequestRejected as rejection:
            return reply(command, rejection.code, remark=str(rejection))
        except ArianeError as error:
            return reply(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        except Exception as error:
            logger.exception("handler failed code=%d peer=%s:%d", command.code, *self.peer)
            remark = f"internal error in request {command.code}: {type(error).__name__}"
            return reply(command, ResponseCode.SYSTEM_ERROR, remark=remark)

    def _flush(self) -> None:
        self._flush_is_due = False
        if not self._out or self._transport is None or self.is_closed:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        self._transport.write(data)
        if not self._peer_is_slow:
            self._was_active = True
        else:
            self._drop_if_deaf()

    def _drop_if_deaf(self) -> None:
        if not self.is_closed and self.unread_bytes > self._limits.unread_bytes_max:
            self.drop_deaf()

    def _is_deaf(self, now_s: float) -> bool:
        """Whether there has been something to take for long, and the peer has taken none of it."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        taken_bytes = -waiting if self.channel is None else self.channel.taken_bytes
        if not waiting or taken_bytes > self._taken_bytes:
            self._was_active |= waiting > 0
            self._taken_bytes, self._taken_s = taken_bytes, now_s
        return now_s - self._taken_s >= self._limits.untaken_s

    def _next_opaque(self) -> int:
        while True:
            self._last_opaque = (self._last_opaque + 1) & OPAQUE_MASK
            if self._last_opaque not in self._pending:
                return self._last_opaque

    def _arm_deadline(self, deadline_s: float) -> None:
        """One timer per connection, for the earliest deadline, rather than one per request."""
        timer = self._deadline_timer
        if timer is not None and not timer.cancelled:
            if timer.due_s <= deadline_s:
                return
            timer.cancel()
        wait_s = max(0.0, deadline_s - self._timers.clock.monotonic_s())
        self._deadline_timer = self._timers.after(wait_s, self._expire)

    def _expire(self) -> None:
        self._deadline_timer = None
        now_s = self._timers.clock.monotonic_s()
        done = [
            opaque
            for opaque, waiting in self._pending.items()
            if waiting.deadline_s <= now_s or waiting.future.done()
        ]
        for opaque in done:
            waiting = self._pending.pop(opaque)
            if not waiting.future.done():
                waiting.future.set_exception(
                    RequestTimeout(
                        f"no answer from {self.peer_text} to request {waiting.code} "
                        f"within {waiting.timeout_s} s"
                    )
                )
        if self._pending:
            self._arm_deadline(min(waiting.deadline_s for waiting in self._pending.values()))

    def _close_logged(self, reason: str) -> None:
        logger.info("connection closed peer=%s:%d reason=%s", *self.peer, reason)
        self.close(reason)


Handler = Callable[[Connection, Command], Command | None]
DecoderOf = Callable[[Connection], Session | FrameReader]


def default_decoder_of(connection: Connection) -> FrameReader:
    """A decoder that turns every frame into a Command."""
    return CommandDecoder(scratch=connection.scratch, budget=connection.budget)


def _address(socket_name: object) -> tuple[str, int]:
    if isinstance(socket_name, tuple) and len(socket_name) >= 2:
        return str(socket_name[0]), int(socket_name[1])
    return "", 0
