from ariane import sync as sync
from ariane.client import Client as Client
from ariane.client import Dedup as Dedup
from ariane.client import MemoryStore as MemoryStore
from ariane.client import Message as Message
from ariane.client import MessageQueue as MessageQueue
from ariane.client import Producer as Producer
from ariane.client import PullConsumer as PullConsumer
from ariane.client import PushConsumer as PushConsumer
from ariane.client import ReceivedMessage as ReceivedMessage
from ariane.client import RedisStore as RedisStore
from ariane.client import Retry as Retry
from ariane.client import RetryLater as RetryLater
from ariane.client import SendReceipt as SendReceipt
from ariane.client import SendStatus as SendStatus
from ariane.client import SqliteStore as SqliteStore
from ariane.client import Start as Start
from ariane.client import TransactionState as TransactionState
from ariane.client import by_hash as by_hash

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
