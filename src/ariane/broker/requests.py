"""What passes between the dispatch table and a handler: a request, and the ways to answer it.

A handler returns a `Reply` (sent at once, or when the log is flushed up to `after`), a `Held` (kept
until something arrives or its time is up), a `Postponed` (carried out again when something is on
disk), or None (it answers later by itself, or never). It refuses by raising, and `attempt` is the
only place where an error gets a code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ariane.codes import ResponseCode
from ariane.errors import (
    DiskFull,
    MessageTooLarge,
    ProtocolError,
    RequestRejected,
    StoreError,
    StoreReadOnly,
)
from ariane.kernel.held import Held
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import Header
from ariane.remoting.connection import Connection

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Request(Generic[H]):
    """One command, its header already read, and the connection it came by."""

    command: Command
    header: H
    connection: Connection

    @property
    def body(self) -> bytes:
        """The bytes after the header."""
        return self.command.body

    def answer(self, answer: Reply) -> None:
        """Send the answer; a one-way request and a closed connection swallow it."""
        if not self.command.is_one_way and not self.connection.is_closed:
            self.connection.send(answer.command_for(self.command))


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is ready."""

    header: Header | None = None
    body: bytes = b""
    code: ResponseCode = ResponseCode.SUCCESS
    remark: str | None = None
    after: int | None = None  # the log offset that must be flushed before the answer leaves

    @classmethod
    def of(
        cls,
        header: Header | None = None,
        *,
        body: bytes = b"",
        code: ResponseCode = ResponseCode.SUCCESS,
        remark: str | None = None,
        after: int | None = None,
    ) -> Reply:
        """An answer with a header, a body, or both."""
        return cls(header, body, code, remark, after)

    @classmethod
    def refusal(cls, code: ResponseCode, remark: str) -> Reply:
        """An answer that says no, and why."""
        return cls(code=code, remark=remark)

    def command_for(self, request: Command) -> Command:
        """The answer as the command that goes back."""
        return reply(request, self.code, self.header, self.body, self.remark)


class RejectedWith(RequestRejected):
    """A refusal that tells more than its code and its words."""

    header: Header


@dataclass(frozen=True, slots=True)
class Postponed:
    """A request to be carried out from the start once something it needs is on disk."""

    when: Callable[[Callable[[Exception | None], None]], None]  # calls back with what went wrong


Outcome = Reply | Held | Postponed | None
T = TypeVar("T", bound=Outcome)


def attempt(run: Callable[[], T]) -> T | Reply:
    """Carry out a request; what it raises on purpose becomes the answer."""
    try:
        return run()
    except RequestRejected as rejection:
        header = rejection.header if isinstance(rejection, RejectedWith) else None
        return Reply(header, code=rejection.code, remark=str(rejection))
    except ProtocolError as error:  # a header or body that cannot be read
        return Reply.refusal(ResponseCode.SYSTEM_ERROR, str(error))
    except MessageTooLarge as error:
        return Reply.refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))
    except (DiskFull, StoreReadOnly) as error:
        return Reply.refusal(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
    except StoreError as error:
        return Reply.refusal(ResponseCode.SYSTEM_ERROR, str(error))
