from ariane import sync as sync
from ariane.client import Client as Client
from ariane.client import Message as Message
from ariane.client import MessageQueue as MessageQueue
from ariane.client import Producer as Producer
from ariane.client import PullConsumer as PullConsumer
from ariane.client import SendReceipt as SendReceipt
from ariane.client import SendStatus as SendStatus
from ariane.client import TransactionState as TransactionState
from ariane.client import by_hash as by_hash

__all__ = [
    "Client",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "SendReceipt",
    "SendStatus",
    "TransactionState",
    "by_hash",
    "sync",
]
