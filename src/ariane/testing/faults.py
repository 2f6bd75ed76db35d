"""Faults on order: which requests go wrong, how often, and how.

A fault stands between the sockets and the handlers. Of those that match a request, the one ordered
first is used up first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from ariane.codes import FrameFlag, RequestCode, ResponseCode
from ariane.protocol.command import Command, reply
from ariane.remoting.connection import Connection, Handler

How = Literal["refuse", "ignore", "lose", "disconnect"]

KINDS: Final[dict[str, frozenset[int]]] = {
    "send": frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        }
    ),
    "pull": frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}),
    "pop": frozenset({RequestCode.POP_MESSAGE}),
    "ack": frozenset({RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE}),
    "extend": frozenset({RequestCode.CHANGE_MESSAGE_INVISIBLETIME}),
    "commit": frozenset({RequestCode.UPDATE_CONSUMER_OFFSET}),
    "send back": frozenset({RequestCode.CONSUMER_SEND_MSG_BACK}),
    "end transaction": frozenset({RequestCode.END_TRANSACTION}),
    "reply": frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}),
    "recall": frozenset({RequestCode.RECALL_MESSAGE}),
    "lock": frozenset({RequestCode.LOCK_BATCH_MQ}),
    "heartbeat": frozenset({RequestCode.HEART_BEAT}),
    "members": frozenset({RequestCode.GET_CONSUMER_LIST_BY_GROUP}),
    "route": frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC}),
}


@dataclass(eq=False, slots=True)
class Fault:
    """One order: these requests, this often, this way."""

    codes: frozenset[int]
    topic: str | None
    how: How
    code: int
    remark: str
    left: int | None  # None: until cancelled
    hits: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it will not strike again."""
        return self.left == 0

    def cancel(self) -> None:
        """Strike no more."""
        self.left = 0

    def matches(self, command: Command) -> bool:
        """Whether this request is to go wrong."""
        if self.is_over or command.code not in self.codes:
            return False
        return self.topic is None or self.topic == topic_of(command)

    def strike(self, handler: Handler, connection: Connection, command: Command) -> Command | None:
        """Let the request go wrong."""
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        if self.how == "refuse":
            return reply(command, self.code, remark=self.remark)
        if self.how == "lose":
            command.flag |= FrameFlag.ONE_WAY  # what is sent one way is carried out, not answered
            return handler(connection, command)
        if self.how == "disconnect":
            connection.drop("a test asked for it")
        return None


class FaultSwitches:
    """Every fault that has been ordered, and how many requests there were."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._handled: Counter[int] = Counter()

    def order(
        self,
        request: str | int,
        *,
        times: int | None,
        how: How,
        code: int,
        remark: str,
        topic: str | None,
    ) -> Fault:
        """Let requests of a kind go wrong, from now on and `times` times."""
        fault = Fault(codes_of(request), topic, how, code, remark, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Cancel everything."""
        for fault in self._faults:
            fault.cancel()
        self._faults.clear()

    def around(self, handler: Handler) -> Handler:
        """The handler, with faults before it."""

        def handle(connection: Connection, command: Command) -> Command | None:
            try:
                for fault in self._faults:
                    if fault.matches(command):
                        return fault.strike(handler, connection, command)
                return handler(connection, command)
            finally:
                self._handled[command.code] += 1

        return handle

    def handled(self, request: str | int) -> int:
        """How many requests of a kind have been dealt with, well or badly."""
        return sum(self._handled[code] for code in codes_of(request))


def codes_of(request: str | int) -> frozenset[int]:
    """The request codes meant by a kind, by RocketMQ's name of a request, or by its number."""
    if isinstance(request, int):
        return frozenset({request})
    if request in KINDS:
        return KINDS[request]
    try:
        return frozenset({RequestCode[request]})
    except KeyError:
        raise ValueError(
            f"no request is called {request!r}; there are {_listed(KINDS)}, the names of"
            " ariane.codes.RequestCode, and numbers"
        ) from None


def topic_of(command: Command) -> str | None:
    """The topic a request is about, under the long or the short name of the field."""
    return command.ext.get("topic", command.ext.get("b"))


def _listed(words: Iterable[str]) -> str:
    return ", ".join(repr(word) for word in words)


DEFAULT_CODE: Final = ResponseCode.SYSTEM_ERROR
DEFAULT_REMARK: Final = "a test asked for this failure"
