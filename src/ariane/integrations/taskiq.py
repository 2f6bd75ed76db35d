"""A broker for taskiq; the extra `taskiq`.

Tasks are messages of one topic. A worker that dies leaves its tasks to the others of its group, so
a task may run twice; a task waits as its label `delay` says, at the broker.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final, Unpack

from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage

from ariane.client.choosing import Choices
from ariane.client.client import Client
from ariane.client.starting import Start
from ariane.errors import ClientError

TOPIC: Final = "taskiq"


class ArianeBroker(AsyncBroker):
    """broker = ArianeBroker("127.0.0.1:9876"); further choices are those of `Client.subscribe`.

    A task that runs longer than `timeout` (15 minutes) is given to another worker as well.
    """

    def __init__(
        self,
        name_servers: str,
        *,
        topic: str = TOPIC,
        group: str = TOPIC,
        result_backend: AsyncResultBackend[Any] | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        super().__init__(result_backend)
        self._name_servers = name_servers
        self._topic = topic
        self._group = group
        self._choices: Choices = {"start": Start.FIRST, **choices}
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client it sends with, once it has started."""
        if self._client is None:
            raise ClientError("the broker has not been started; `await broker.startup()`")
        return self._client

    async def startup(self) -> None:
        """Begin."""
        await super().startup()
        self._client = Client(self._name_servers)
        await self._client.open()

    async def shutdown(self) -> None:
        """End in good order."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Hand a task over; its id is the message's key, so that `Admin.find` finds it."""
        delay = message.labels.get("delay")
        await self.client.send(
            self._topic,
            message.message,
            keys=[message.task_id],
            tags=message.task_name,
            delay=None if delay is None else float(delay),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks for this worker; each is done with when it is acknowledged."""
        subscription = self.client.subscribe(self._topic, group=self._group, **self._choices)
        async with subscription as messages:
            async for message in messages:
                yield AckableMessage(data=message.body, ack=message.ack)
