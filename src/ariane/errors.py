"""Every error Ariane raises, in one tree.

ArianeError
├── ProtocolError        bytes that are not what the protocol says
│   ├── FrameError       lengths that lie; the connection is closed
│   └── BadHeader        a header field missing or unreadable
├── StoreError           the disk or its files
│   ├── CorruptRecord
│   ├── CorruptFile
│   ├── DiskFull
│   ├── MessageTooLarge
│   ├── StoreLocked
│   ├── StoreReadOnly
│   └── UnsupportedStore
├── RequestRejected      the broker or name server says no, with a response code
├── ClientError          what a caller of the client meets; `retriable` or not
│   ├── RequestTimeout   also a TimeoutError
│   ├── ConnectionLost   also a ConnectionError
│   ├── RouteNotFound
│   ├── RequestFailed    the answer was an error; carries the peer's code
│   │   ├── BrokerBusy         flow control: slow down
│   │   ├── BrokerUnavailable  it cannot write now, or is going away
│   │   ├── AccessDenied       the topic, the group or the feature is closed to us
│   │   ├── UnknownTopic
│   │   ├── UnknownGroup
│   │   └── MessageRefused     no broker will take this message as it is
│   ├── InvalidArgument  a value that cannot be used; also a ValueError
│   │   └── InvalidMessage     refused before it was sent
│   └── UnreadableBody   a message is not what it was read as; also a ValueError
├── DataLoss             a reader of ranges wants messages that are gone
├── AccessImpossible     a way to the bytes that was asked for cannot be had
└── ConfigError

A message says what was found, what was expected, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ariane.codes import ResponseCode


class ArianeError(Exception):
    """Root of everything Ariane raises on purpose."""


class ProtocolError(ArianeError):
    """The peer sent bytes that the protocol does not allow."""


class FrameError(ProtocolError):
    """A frame whose lengths cannot be true; nothing after it can be trusted."""


class BadHeader(ProtocolError):
    """A frame header that cannot be read, or lacks a field it needs."""


class StoreError(ArianeError):
    """The disk, or a file on it, is not as it must be."""


class CorruptRecord(StoreError):
    """A commit-log record that fails its checks."""


class CorruptFile(StoreError):
    """A store or configuration file that cannot be read and has no usable backup."""


class DiskFull(StoreError):
    """No room on the disk; writes are refused until there is."""


class MessageTooLarge(StoreError):
    """A message that no segment, or no setting, has room for."""


class StoreLocked(StoreError):
    """Another process holds the store directory."""


class StoreReadOnly(StoreError):
    """The store refuses writes; the message says why."""


class UnsupportedStore(StoreError):
    """A store directory in a layout this version does not read."""


class RequestRejected(ArianeError):
    """A request answered with an error code instead of its result."""

    code: ResponseCode = ResponseCode.SYSTEM_ERROR
    retriable = False

    def __init__(self, message: str, code: ResponseCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class TopicNotFound(RequestRejected):
    """The topic does not exist here."""

    code = ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} does not exist; create it, or set autoCreateTopicEnable=true"
        )
        self.topic = topic


class GroupNotFound(RequestRejected):
    """The subscription group does not exist here."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def __init__(self, group: str) -> None:
        super().__init__(
            f"subscription group {group!r} does not exist; "
            "create it, or set autoCreateSubscriptionGroup=true"
        )
        self.group = group


class InvalidParameter(RequestRejected):
    """A value in the request that cannot be used; the message names it and what it takes."""

    code = ResponseCode.INVALID_PARAMETER


class BadFilter(RequestRejected):
    """A filter expression that cannot be read; the message says where and why."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class ClientError(ArianeError):
    """A client call that did not succeed."""

    retriable = False  # whether the same call, made again later, may succeed


class RequestTimeout(ClientError, TimeoutError):
    """No answer within the time allowed; the request may or may not have been carried out."""

    retriable = True


class ConnectionLost(ClientError, ConnectionError):
    """The connection could not be made, or broke before the answer came."""

    retriable = True


class RouteNotFound(ClientError):
    """No broker is known to serve the topic."""

    retriable = True


class RequestFailed(ClientError):
    """The peer answered with an error code; `hint` says what may help.

    The code is a `ResponseCode`, or a number when it is none that is known.
    """

    hint = ""

    def __init__(self, code: int, remark: str) -> None:
        try:
            code = ResponseCode(code)
            name = code.name
        except ValueError:
            name = "UNKNOWN"
        said = f"{name} ({code}): {remark}" if remark else f"{name} ({code})"
        super().__init__(f"{said}; {self.hint}" if self.hint else said)
        self.code = code
        self.remark = remark
        self.retriable = code in _RETRIABLE

    def __reduce__(self) -> tuple[type[RequestFailed], tuple[int, str]]:
        """How it is copied, and sent to other processes."""
        return type(self), (self.code, self.remark)

    @staticmethod
    def of(code: int, remark: str) -> RequestFailed:
        """The error that names the cause behind the code."""
        return _CAUSES.get(code, RequestFailed)(code, remark)


class BrokerBusy(RequestFailed):
    """The broker has more to do than it can; nothing was stored."""

    hint = "send slower, wait longer (timeout=), or add brokers"


class BrokerUnavailable(RequestFailed):
    """The broker cannot write now: its disk is full, its store read-only, or it is stopping."""

    hint = "look at the broker's log and disk; other brokers may still take it"


class AccessDenied(RequestFailed):
    """The topic, the group, the feature or the whole broker is closed to us."""

    hint = "check the permissions of topic and broker, and whether the feature is switched on"


class UnknownTopic(RequestFailed):
    """The broker does not know the topic."""

    hint = "create it with `ariane topic create`, or set autoCreateTopicEnable=true"


class UnknownGroup(RequestFailed):
    """The broker does not know the consumer group."""

    hint = "create the group, or set autoCreateSubscriptionGroup=true"


class MessageRefused(RequestFailed):
    """The broker will not take this message as it is, however often it is sent."""

    hint = "change the message; sending it again will not help"


# Another try, at another moment, may meet a broker that can.
_RETRIABLE = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)

_CAUSES: dict[int, type[RequestFailed]] = {
    ResponseCode.SYSTEM_BUSY: BrokerBusy,
    ResponseCode.FLOW_CONTROL: BrokerBusy,
    ResponseCode.SERVICE_NOT_AVAILABLE: BrokerUnavailable,
    ResponseCode.GO_AWAY: BrokerUnavailable,
    ResponseCode.NO_PERMISSION: AccessDenied,
    ResponseCode.TOPIC_NOT_EXIST: UnknownTopic,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: UnknownGroup,
    ResponseCode.MESSAGE_ILLEGAL: MessageRefused,
}


class InvalidArgument(ClientError, ValueError):
    """A value that cannot be used; the message says which and what is taken instead."""


class InvalidMessage(InvalidArgument):
    """A message that no broker would take; nothing was sent."""


class UnreadableBody(ClientError, ValueError):
    """A message whose body is not what it was read as; to try again does not help."""

    about: object = None  # the message


class DataLoss(ArianeError):
    """Messages of a planned range are not there; names where, what was wanted and what there is."""

    def __init__(
        self,
        *,
        topic: str,
        broker: str,
        queue_id: int,
        wanted: int,
        available: int,
        reason: str,
    ) -> None:
        super().__init__(
            f"topic {topic}, broker {broker}, queue {queue_id}: wanted offset {wanted}, "
            f"available {available}: {reason}"
        )
        self.topic = topic
        self.broker = broker
        self.queue_id = queue_id
        self.wanted = wanted
        self.available = available
        self.reason = reason

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], DataLoss], tuple[dict[str, Any]]]:
        """How it is copied, and sent to other processes."""
        return _data_loss, (dict(self.__dict__),)


def _data_loss(parts: dict[str, Any]) -> DataLoss:
    return DataLoss(**parts)


class AccessImpossible(ArianeError):
    """The way to the bytes that was asked for cannot be had; the message says why."""


class ConfigError(ArianeError):
    """A setting that cannot be used; the message names the key and what it takes."""
