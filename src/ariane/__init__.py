"""RocketMQ, whole, in Python.

The client's names are found here; each is imported when it is first used, so that servers and
tools which need none of them start no slower. Type checkers read `__init__.pyi`.
"""

from __future__ import annotations

from importlib import import_module

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
    "strategies",
    "sync",
]

_MODULES = {"strategies": "ariane.client.rebalance", "sync": "ariane.sync"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'ariane' has no attribute {name!r}")
    value: object = (
        import_module(_MODULES[name])
        if name in _MODULES
        else getattr(import_module("ariane.client"), name)
    )
    globals()[name] = value
    return value
