from ariane.client import AccessDenied as AccessDenied
from ariane.client import ArianeError as ArianeError
from ariane.client import BrokerBusy as BrokerBusy
from ariane.client import BrokerUnavailable as BrokerUnavailable
from ariane.client import ClientError as ClientError
from ariane.client import ConnectionLost as ConnectionLost
from ariane.client import Dedup as Dedup
from ariane.client import GroupLag as GroupLag
from ariane.client import InvalidArgument as InvalidArgument
from ariane.client import InvalidMessage as InvalidMessage
from ariane.client import Limits as Limits
from ariane.client import Member as Member
from ariane.client import MemoryStore as MemoryStore
from ariane.client import Message as Message
from ariane.client import MessageQueue as MessageQueue
from ariane.client import MessageRefused as MessageRefused
from ariane.client import MessageType as MessageType
from ariane.client import Middleware as Middleware
from ariane.client import Outgoing as Outgoing
from ariane.client import PolledMessage as PolledMessage
from ariane.client import Pulled as Pulled
from ariane.client import PullStatus as PullStatus
from ariane.client import QueueLag as QueueLag
from ariane.client import QueueMove as QueueMove
from ariane.client import QueueStats as QueueStats
from ariane.client import Readable as Readable
from ariane.client import RedisStore as RedisStore
from ariane.client import Reject as Reject
from ariane.client import RequestFailed as RequestFailed
from ariane.client import RequestTimeout as RequestTimeout
from ariane.client import Retry as Retry
from ariane.client import RetryLater as RetryLater
from ariane.client import RouteNotFound as RouteNotFound
from ariane.client import Selector as Selector
from ariane.client import SendReceipt as SendReceipt
from ariane.client import SendStatus as SendStatus
from ariane.client import SqliteStore as SqliteStore
from ariane.client import Start as Start
from ariane.client import StoredMessage as StoredMessage
from ariane.client import Strategy as Strategy
from ariane.client import TopicRoute as TopicRoute
from ariane.client import Track as Track
from ariane.client import TrackType as TrackType
from ariane.client import Transaction as Transaction
from ariane.client import TransactionState as TransactionState
from ariane.client import UnknownGroup as UnknownGroup
from ariane.client import UnknownTopic as UnknownTopic
from ariane.client import UnreadableBody as UnreadableBody
from ariane.client import by_hash as by_hash
from ariane.client import rebalance as strategies
from ariane.client.sync import Client as Client
from ariane.client.sync import LitePullConsumer as LitePullConsumer
from ariane.client.sync import PopConsumer as PopConsumer
from ariane.client.sync import Producer as Producer
from ariane.client.sync import PullConsumer as PullConsumer
from ariane.client.sync import PushConsumer as PushConsumer
from ariane.client.sync import ReceivedMessage as ReceivedMessage
from ariane.client.sync import SimpleConsumer as SimpleConsumer
from ariane.client.sync import Subscription as Subscription
from ariane.client.sync_admin import Admin as Admin

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
]
