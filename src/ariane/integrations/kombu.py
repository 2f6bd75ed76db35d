"""A transport for kombu, and so for Celery; the extra `celery`.

    import ariane.integrations.kombu  # makes the scheme known

    app = Celery(broker="rocketmq://127.0.0.1:9876")

A queue is a topic, read by pop in a group of the same name: a message is lent to one worker at a
time, and comes back when that neither acknowledged nor gave it back within `visibility_timeout`. A
task with an `eta` or a `countdown` waits at the broker, not in a worker.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cached_property
from queue import Empty
from typing import Any, Final

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

from ariane.client.sync import Client
from ariane.client.sync_consumers import ReceivedMessage, SimpleConsumer
from ariane.errors import ArianeError

NAME: Final = "rocketmq"  # in URLs, once this module is imported
VISIBILITY_TIMEOUT_S: Final = 3600.0
WAIT_S: Final = 1.0  # for a message, of all a channel's queues together
PURGE_COUNT: Final = 32
DELAY_MAX: Final = timedelta(days=3)  # longer, and brokers refuse; the worker waits instead
STRANGE: Final = re.compile(r"[^%|a-zA-Z0-9_-]")  # in the name of a topic

TRANSPORT_ALIASES[NAME] = "ariane.integrations.kombu:Transport"


def topic_of(queue: str) -> str:
    """The topic that a queue is."""
    return STRANGE.sub("-", queue)


def due_of(message: dict[str, Any], now: datetime) -> datetime | None:
    """When a task is to run, if the broker can keep it so long."""
    eta = (message.get("headers") or {}).get("eta")
    if not eta:
        return None
    due = datetime.fromisoformat(eta)
    due = due if due.tzinfo is not None else due.replace(tzinfo=UTC)
    return due if now < due <= now + DELAY_MAX else None


class Channel(virtual.Channel):
    """One worker's, or one sender's, view of the queues."""

    do_restore = False  # what is not settled comes back from the broker
    supports_fanout = False

    def __init__(self, connection: Any, **named: Any) -> None:
        super().__init__(connection, **named)
        self._consumers_of: dict[str, SimpleConsumer] = {}
        self._lent: dict[str, ReceivedMessage] = {}
        self._unanswered: set[str] = set()  # queues whose consumers acknowledge nothing

    @cached_property
    def visibility_timeout_s(self) -> float:
        """How long a message is lent, from the transport's options."""
        options = self.connection.client.transport_options
        return float(options.get("visibility_timeout", VISIBILITY_TIMEOUT_S))

    def basic_consume(self, queue: str, no_ack: bool, *arguments: Any, **named: Any) -> Any:
        """Have messages of the queue delivered."""
        if no_ack:
            self._unanswered.add(queue)
        return super().basic_consume(queue, no_ack, *arguments, **named)

    def basic_get(self, queue: str, no_ack: bool = False, **named: Any) -> Any:
        """One message of the queue, or None."""
        message = super().basic_get(queue, no_ack, **named)
        if message is not None and no_ack:
            self._lent.pop(message.delivery_tag).ack()
        return message

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """The message has been consumed."""
        if (message := self._lent.pop(delivery_tag, None)) is not None:
            message.ack()
        super().basic_ack(delivery_tag, multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """The message has not been: lend it again at once, or drop it."""
        if (message := self._lent.pop(delivery_tag, None)) is not None:
            if requeue:
                message.nack(0)
            else:
                message.ack()
        super().basic_reject(delivery_tag, requeue=False)

    def close(self) -> None:
        """Give back what is lent, and leave the groups."""
        if not self.closed:
            for message in self._lent.values():
                message.nack(0)
            self._lent.clear()
            for consumer in self._consumers_of.values():
                consumer.close()
            self._consumers_of.clear()
        super().close()

    # What a virtual channel is made of.

    def _put(self, queue: str, message: dict[str, Any], **named: Any) -> None:
        due = due_of(message, datetime.now(UTC))
        key = str(message["properties"].get("correlation_id") or "")
        self._client.send(
            topic_of(queue), dumps(message), keys=[key] if key else (), deliver_at=due
        )

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        wait_s = WAIT_S / max(len(self._active_queues), 1)
        found = self._consumer(queue).receive(1, invisible=self.visibility_timeout_s, wait=wait_s)
        if not found:
            raise Empty
        [message] = found
        payload: dict[str, Any] = loads(message.text)
        if queue in self._unanswered:
            message.ack()
        else:
            self._lent[payload["properties"]["delivery_tag"]] = message
        return payload

    def _size(self, queue: str) -> int:
        topic = topic_of(queue)
        return self._client.admin.lag(topic, topic=topic).messages

    def _purge(self, queue: str) -> int:
        consumer, count = self._consumer(queue), 0
        while found := consumer.receive(PURGE_COUNT, wait=0):
            for message in found:
                message.ack()
            count += len(found)
        return count

    def _has_queue(self, queue: str, **named: Any) -> bool:
        return topic_of(queue) in self._client.admin.topics()

    def _new_queue(self, queue: str, **named: Any) -> None:
        if not self._has_queue(queue):
            self._client.admin.create_topic(topic_of(queue))

    def _delete(self, queue: str, *arguments: Any, **named: Any) -> None:
        if (consumer := self._consumers_of.pop(queue, None)) is not None:
            consumer.close()
        topic = topic_of(queue)
        self._client.admin.delete_topic(topic)
        self._client.admin.delete_group(topic)

    @property
    def _client(self) -> Client:
        client: Client = self.connection.ariane
        return client

    def _consumer(self, queue: str) -> SimpleConsumer:
        consumer = self._consumers_of.get(queue)
        if consumer is None:
            topic = topic_of(queue)
            consumer = self._client.simple_consumer(topic)
            consumer.subscribe(topic)
            consumer.__enter__()
            self._consumers_of[queue] = consumer
        return consumer


class Transport(virtual.Transport):
    """Kombu's door to a cluster: host and port are a name server's.

    More of them are the transport option `name_servers`, as in "a:9876;b:9876".
    """

    Channel = Channel
    default_port = 9876
    polling_interval = 0.05  # while a worker has as much as it may; else `_get` waits
    driver_type = NAME
    driver_name = "ariane"
    connection_errors = (*virtual.Transport.connection_errors, ArianeError)
    channel_errors = (*virtual.Transport.channel_errors, ArianeError)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic"])
    )

    @cached_property
    def ariane(self) -> Client:
        """The client that all channels share."""
        kombu = self.client
        address = f"{kombu.hostname or '127.0.0.1'}:{kombu.port or self.default_port}"
        return Client(kombu.transport_options.get("name_servers", address))

    def driver_version(self) -> str:
        """The version of what it is made of."""
        from importlib.metadata import version  # noqa: PLC0415 - asked for by `celery report` alone

        return version("ariane")

    def close_connection(self, connection: Any) -> None:
        """End all channels, then the client."""
        super().close_connection(connection)
        if (client := self.__dict__.pop("ariane", None)) is not None:
            client.close()
