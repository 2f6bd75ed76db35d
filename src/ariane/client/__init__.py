"""Clients: send, consume and administer over the remoting protocol.

`Client` is asyncio's; `ariane.client.sync` has its blocking twin.

What is named here is imported when it is first asked for: a process that only sends, as each
micro-batch of Spark starts some, does not pay for consumers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ariane.client.admin import (
        Admin,
        GroupLag,
        Member,
        MessageType,
        QueueLag,
        QueueMove,
        QueueStats,
    )
    from ariane.client.client import Client
    from ariane.client.dead_letters import Reject
    from ariane.client.dedup import Dedup, MemoryStore, RedisStore, SqliteStore
    from ariane.client.lite_pull_consumer import LitePullConsumer
    from ariane.client.looping import Subscription
    from ariane.client.messages import Message, SendReceipt, SendStatus
    from ariane.client.middleware import Middleware, Outgoing
    from ariane.client.pop_consumer import PopConsumer
    from ariane.client.process_queue import Limits
    from ariane.client.producer import Producer
    from ariane.client.pull_consumer import PullConsumer, Pulled, PullStatus
    from ariane.client.push_consumer import PushConsumer
    from ariane.client.queues import Selector, by_hash
    from ariane.client.rebalance import Strategy
    from ariane.client.received import PolledMessage, ReceivedMessage
    from ariane.client.retrying import Retry, RetryLater
    from ariane.client.routes import TopicRoute
    from ariane.client.simple_consumer import SimpleConsumer
    from ariane.client.starting import Start
    from ariane.client.tracking import Track, TrackType
    from ariane.client.transactions import Transaction, TransactionState
    from ariane.errors import (
        AccessDenied,
        ArianeError,
        BrokerBusy,
        BrokerUnavailable,
        ClientError,
        ConnectionLost,
        InvalidArgument,
        InvalidMessage,
        MessageRefused,
        RequestFailed,
        RequestTimeout,
        RouteNotFound,
        UnknownGroup,
        UnknownTopic,
        UnreadableBody,
    )
    from ariane.protocol.bodies import MessageQueue
    from ariane.protocol.message import StoredMessage
    from ariane.protocol.readable import Readable

__all__ = [
    "AccessDenied",
    "Admin",
    "ArianeError",
    "BrokerBusy",
    "BrokerUnavailable",
    "Client",
    "ClientError",
    "ConnectionLost",
    "Dedup",
    "GroupLag",
    "InvalidArgument",
    "InvalidMessage",
    "Limits",
    "LitePullConsumer",
    "Member",
    "MemoryStore",
    "Message",
    "MessageQueue",
    "MessageRefused",
    "MessageType",
    "Middleware",
    "Outgoing",
    "PolledMessage",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PullStatus",
    "Pulled",
    "PushConsumer",
    "QueueLag",
    "QueueMove",
    "QueueStats",
    "Readable",
    "ReceivedMessage",
    "RedisStore",
    "Reject",
    "RequestFailed",
    "RequestTimeout",
    "Retry",
    "RetryLater",
    "RouteNotFound",
    "Selector",
    "SendReceipt",
    "SendStatus",
    "SimpleConsumer",
    "SqliteStore",
    "Start",
    "StoredMessage",
    "Strategy",
    "Subscription",
    "TopicRoute",
    "Track",
    "TrackType",
    "Transaction",
    "TransactionState",
    "UnknownGroup",
    "UnknownTopic",
    "UnreadableBody",
    "by_hash",
]

_MODULES: Final = {
    "AccessDenied": "ariane.errors",
    "Admin": "ariane.client.admin",
    "ArianeError": "ariane.errors",
    "BrokerBusy": "ariane.errors",
    "BrokerUnavailable": "ariane.errors",
    "Client": "ariane.client.client",
    "ClientError": "ariane.errors",
    "ConnectionLost": "ariane.errors",
    "Dedup": "ariane.client.dedup",
    "GroupLag": "ariane.client.admin",
    "InvalidArgument": "ariane.errors",
    "InvalidMessage": "ariane.errors",
    "Limits": "ariane.client.process_queue",
    "LitePullConsumer": "ariane.client.lite_pull_consumer",
    "Member": "ariane.client.admin",
    "MemoryStore": "ariane.client.dedup",
    "Message": "ariane.client.messages",
    "MessageQueue": "ariane.protocol.bodies",
    "MessageRefused": "ariane.errors",
    "MessageType": "ariane.client.admin",
    "Middleware": "ariane.client.middleware",
    "Outgoing": "ariane.client.middleware",
    "PolledMessage": "ariane.client.received",
    "PopConsumer": "ariane.client.pop_consumer",
    "Producer": "ariane.client.producer",
    "PullConsumer": "ariane.client.pull_consumer",
    "PullStatus": "ariane.client.pull_consumer",
    "Pulled": "ariane.client.pull_consumer",
    "PushConsumer": "ariane.client.push_consumer",
    "QueueLag": "ariane.client.admin",
    "QueueMove": "ariane.client.admin",
    "QueueStats": "ariane.client.admin",
    "Readable": "ariane.protocol.readable",
    "ReceivedMessage": "ariane.client.received",
    "RedisStore": "ariane.client.dedup",
    "Reject": "ariane.client.dead_letters",
    "RequestFailed": "ariane.errors",
    "RequestTimeout": "ariane.errors",
    "Retry": "ariane.client.retrying",
    "RetryLater": "ariane.client.retrying",
    "RouteNotFound": "ariane.errors",
    "Selector": "ariane.client.queues",
    "SendReceipt": "ariane.client.messages",
    "SendStatus": "ariane.client.messages",
    "SimpleConsumer": "ariane.client.simple_consumer",
    "SqliteStore": "ariane.client.dedup",
    "Start": "ariane.client.starting",
    "StoredMessage": "ariane.protocol.message",
    "Strategy": "ariane.client.rebalance",
    "Subscription": "ariane.client.looping",
    "TopicRoute": "ariane.client.routes",
    "Track": "ariane.client.tracking",
    "TrackType": "ariane.client.tracking",
    "Transaction": "ariane.client.transactions",
    "TransactionState": "ariane.client.transactions",
    "UnknownGroup": "ariane.errors",
    "UnknownTopic": "ariane.errors",
    "UnreadableBody": "ariane.errors",
    "by_hash": "ariane.client.queues",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'ariane.client' has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
