"""The blocking client, under the name it is looked for: `from ariane.sync import Client`."""

from ariane.client.sync import Admin, Client, Producer, PullConsumer

__all__ = ["Admin", "Client", "Producer", "PullConsumer"]
