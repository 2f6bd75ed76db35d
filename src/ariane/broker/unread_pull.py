"""A pull that waits though no handler has read it: the lane saw that it is at its queue's end.

Most of them are answered by the lane too, so nobody ever decodes them. One that is not, because its
time is up or a check must be made again, is read by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ariane.broker.handlers.pull import carry_out_again
from ariane.broker.requests import Reply
from ariane.protocol.command import Command, command_of
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.pull import PullHeader

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState
    from ariane.remoting.connection import Connection


class UnreadPull:
    """What a `Request` is to others, made of the frame when asked for."""

    __slots__ = ("connection", "frame")

    def __init__(self, connection: Connection, frame: bytes) -> None:
        self.connection = connection
        self.frame = frame

    @property
    def command(self) -> Command:
        """The command, decoded now."""
        return command_of(self.frame)

    def again(self, state: BrokerState, first: int) -> Reply:
        """Carry it out as a handler does, from a queue offset on."""
        return carry_out_again(decode_header(PullHeader, self.command.ext), first, state)

    def answer(self, answer: Reply) -> None:
        """Send the answer, unless nobody is there to read it."""
        if not self.connection.is_closed:
            self.connection.send(answer.command_for(self.command))
