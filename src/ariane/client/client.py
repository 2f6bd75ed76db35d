"""The door to a cluster: open it with the name servers' addresses, then send, read, administer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random  # noqa: TID251 - the client's dice; tests bring their own
from types import TracebackType
from typing import Self

from ariane.client.admin import Admin
from ariane.client.consuming import Consuming
from ariane.client.messages import Message, SendReceipt
from ariane.client.producer import DEFAULT_GROUP, SEND_TIMEOUT_S, Producer
from ariane.client.pull_consumer import PullConsumer
from ariane.client.routes import addresses_of
from ariane.client.session import Session
from ariane.clock import Clock, SystemClock
from ariane.topics import TOOLS_GROUP


class Client(Consuming):
    """One application's connections to a cluster, shared by everything made from it.

    async with Client("127.0.0.1:9876") as client:
        await client.send("orders", b"...", tags="paid", keys=["42"])
    """

    def __init__(
        self,
        name_servers: str,  # "host:port;host:port"
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.session = Session(
            addresses_of(name_servers),
            clock=clock or SystemClock(),
            random=random or Random(),
        )
        self.admin = Admin(self.session)
        self._producer: Producer | None = None

    async def __aenter__(self) -> Self:
        await self.session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin; connects to nobody yet. `async with` does it for you."""
        await self.session.open()

    async def close(self) -> None:
        """Take leave of the brokers and end everything in the background."""
        await self.session.close()

    def producer(self, group: str = DEFAULT_GROUP, *, retries: int = 2) -> Producer:
        """A producer of the group."""
        return Producer(self.session, group, retries=retries)

    def pull_consumer(self, group: str = TOOLS_GROUP) -> PullConsumer:
        """A reader of queues; without a group one that only looks."""
        return PullConsumer(self.session, group)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> SendReceipt:
        """Send one message with the default producer."""
        message = Message(topic, body, tags=tags, keys=keys, properties=properties or {})
        if self._producer is None:
            self._producer = self.producer()
        return await self._producer.send(message, timeout_s=timeout_s)
