"""Clients: send, consume and administer over the remoting protocol.

`Client` is asyncio's; `ariane.client.sync` has its blocking twin.
"""

from ariane.client.admin import Admin, QueueStats
from ariane.client.client import Client
from ariane.client.dedup import Dedup, MemoryStore, RedisStore, SqliteStore
from ariane.client.messages import Message, SendReceipt, SendStatus
from ariane.client.producer import Producer
from ariane.client.pull_consumer import PullConsumer, Pulled, PullStatus
from ariane.client.push_consumer import PushConsumer
from ariane.client.queues import Selector, by_hash
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry, RetryLater
from ariane.client.routes import TopicRoute
from ariane.client.starting import Start
from ariane.client.tracking import Track, TrackType
from ariane.client.transactions import Transaction, TransactionState
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.message import StoredMessage

__all__ = [
    "Admin",
    "Client",
    "Dedup",
    "MemoryStore",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullStatus",
    "Pulled",
    "PushConsumer",
    "QueueStats",
    "ReceivedMessage",
    "RedisStore",
    "Retry",
    "RetryLater",
    "Selector",
    "SendReceipt",
    "SendStatus",
    "SqliteStore",
    "Start",
    "StoredMessage",
    "TopicRoute",
    "Track",
    "TrackType",
    "Transaction",
    "TransactionState",
    "by_hash",
]
