"""The blocking client, under the name it is looked for: `from ariane.sync import Client`."""

from ariane.client.sync import (
    Admin,
    Client,
    LitePullConsumer,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    Subscription,
)

__all__ = [
    "Admin",
    "Client",
    "LitePullConsumer",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "SimpleConsumer",
    "Subscription",
]
