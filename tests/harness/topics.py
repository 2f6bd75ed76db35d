"""Topics that tests fill and read back by the client, without Spark: what Spark is judged by."""

from collections.abc import Iterable, Iterator

from ariane import Message
from ariane.client import MessageQueue
from ariane.sync import Client

BATCH = 200


def create(client: Client, topic: str, queues: int) -> list[MessageQueue]:
    """A topic with that many queues; its queues in the order of their numbers."""
    client.admin.create_topic(topic, write_queue_count=queues, read_queue_count=queues)
    return queues_of(client, topic)


def queues_of(client: Client, topic: str) -> list[MessageQueue]:
    """The queues of a topic, in the order of their numbers."""
    return sorted(client.pull_consumer().queues(topic), key=lambda queue: queue.queue_id)


def fill(client: Client, queue: MessageQueue, bodies: Iterable[bytes]) -> None:
    """Send the bodies into one queue, in order, by batches."""
    batch: list[Message] = []
    for body in bodies:
        batch.append(Message(queue.topic, body))
        if len(batch) == BATCH:
            client.send_batch(batch, queue=queue)
            batch = []
    if batch:
        client.send_batch(batch, queue=queue)


def bodies_of(client: Client, topic: str) -> dict[int, list[bytes]]:
    """Every message of a topic: by the number of its queue, in the queue's order."""
    return {queue.queue_id: list(_bodies(client, queue)) for queue in queues_of(client, topic)}


def _bodies(client: Client, queue: MessageQueue) -> Iterator[bytes]:
    consumer = client.pull_consumer()
    offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
    while offset < end:
        pulled = consumer.read(queue, offset)
        yield from (message.body for message in pulled.messages)
        offset = pulled.next_offset
