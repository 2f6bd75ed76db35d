"""RocketMQ, whole, in Python.

The client's names are found here; each is imported when it is first used, so that servers and
tools which need none of them start no slower. Type checkers read `__init__.pyi`.
"""

from __future__ import annotations

from importlib import import_module

__all__ = [
    "Client",
    "Dedup",
    "MemoryStore",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "RedisStore",
    "Retry",
    "RetryLater",
    "SendReceipt",
    "SendStatus",
    "SqliteStore",
    "Start",
    "TransactionState",
    "by_hash",
    "sync",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'ariane' has no attribute {name!r}")
    value: object = (
        import_module("ariane.sync")
        if name == "sync"
        else getattr(import_module("ariane.client"), name)
    )
    globals()[name] = value
    return value
