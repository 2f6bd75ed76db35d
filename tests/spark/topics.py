"""Topics with known messages, for tests that read them through Spark."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ariane.client.messages import Message
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.message import StoredMessage
from ariane.sync import Client
from tests.harness.processes import wait_until

BATCH = 500


@dataclass(frozen=True)
class Topic:
    """One topic of a cluster, and a client to fill it with."""

    name: str
    namesrv: str
    client: Client

    @property
    def options(self) -> dict[str, str]:
        """What the source is given to read all of it."""
        return {"subscribe": self.name, "namesrv": self.namesrv}

    def queues(self) -> list[MessageQueue]:
        """Its queues, by number."""
        return sorted(self.client.admin.topic_route(self.name).readable)  # as it is now

    def fill(self, queue_id: int, bodies: Iterable[str], **fields: object) -> None:
        """Send to one queue, in order."""
        queue = next(one for one in self.queues() if one.queue_id == queue_id)
        messages = [Message(self.name, body.encode(), **fields) for body in bodies]  # type: ignore[arg-type]
        for first in range(0, len(messages), BATCH):
            self.client.send_batch(messages[first : first + BATCH], queue=queue)

    def create_anew(self) -> None:
        """Delete it and create it again with one queue, from offset 0 on."""
        self.client.admin.delete_topic(self.name)
        self.client.admin.create_topic(self.name, write_queue_count=1)
        consumer = self.client.pull_consumer()
        wait_until(
            lambda: all(consumer.max_offset(queue) == 0 for queue in self.queues()),
            "the new topic to be empty",
        )

    def stored(self) -> list[StoredMessage]:
        """All its messages, by queue and offset, as a client reads them."""
        consumer = self.client.pull_consumer()
        found = []
        for queue in self.queues():
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                pulled = consumer.read(queue, offset)
                found += pulled.messages
                offset = pulled.next_offset
        return found


@contextmanager
def topic_of(namesrv: str, name: str, *, queue_count: int = 2) -> Iterator[Topic]:
    """A new topic, and a client for as long as the block runs."""
    with Client(namesrv) as client:
        client.admin.create_topic(name, write_queue_count=queue_count)
        yield Topic(name, namesrv, client)
