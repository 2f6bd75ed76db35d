"""The blocking consumers against the real broker, in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from ariane.client.retrying import RetryLater
from ariane.client.starting import Start
from ariane.client.sync import Client, ReceivedMessage
from ariane.errors import ClientError
from ariane.testing import EmbeddedBroker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        with Client(broker.name_server) as client:
            client.admin.create_topic("orders", write_queue_count=2)
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker.name_server) as client:
        yield client


class Counted:
    """Lets a test wait until so many things have happened."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self._changed = threading.Condition()

    def add(self, item: object) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.items) >= count, 10), self.items


def test_a_handler_runs_on_threads_and_may_block(client: Client) -> None:
    seen = Counted()

    def handle(message: ReceivedMessage) -> None:
        seen.add((message.body, threading.current_thread().name.startswith("ariane-consumer")))
        if message.body == b"acked":
            message.ack()
            raise ValueError("too late to matter")

    consumer = client.push_consumer("billing", handle, start=Start.FIRST)
    consumer.subscribe("orders")
    with consumer:
        client.send("orders", b"plain")
        client.send("orders", b"acked")
        seen.wait(2)
        assert sorted(seen.items) == [(b"acked", True), (b"plain", True)]
        assert len(consumer.queues) == 2
    pull = client.pull_consumer("billing")
    assert sum(pull.committed(queue) or 0 for queue in pull.queues("orders")) == 2


def test_what_fails_comes_again(broker: EmbeddedBroker, client: Client) -> None:
    seen = Counted()

    def handle(message: ReceivedMessage) -> None:
        seen.add((message.topic, message.reconsume_times))
        if not message.reconsume_times:
            raise RetryLater(1)

    consumer = client.push_consumer("billing", handle, start=Start.FIRST)
    consumer.subscribe("orders")
    consumer.start()
    client.send("orders", b"x")
    seen.wait(1)
    broker.wait_for("SCHEDULE_TOPIC_XXXX", 1)
    broker.advance(2)
    seen.wait(2)
    assert seen.items == [("orders", 0), ("orders", 1)]
    consumer.close()


def test_a_loop_settles_by_how_its_block_ends(client: Client) -> None:
    for body in (b"good", b"bad"):
        client.send("orders", body)
    seen = []
    with client.subscribe("orders", group="billing", start=Start.FIRST) as messages:
        for message in messages:
            seen.append(message)
            try:
                with message:
                    if message.body == b"bad":
                        raise ValueError
            except ValueError:
                pass
            if len(seen) == 2:
                break
    assert all(message.is_settled for message in seen)
    assert list(messages) == []


def test_polling(client: Client) -> None:
    for number in range(4):
        client.send("orders", b"%d" % number)
    consumer = client.lite_pull_consumer("billing", start=Start.FIRST, auto_commit=False)
    with consumer:
        consumer.assign(consumer.queues("orders"))
        polled: list[ReceivedMessage] = []
        while len(polled) < 4:
            polled += consumer.poll(5)
        queue = consumer.assignment[0]
        assert consumer.position(queue) == 2
        assert consumer.committed(queue) is None
        consumer.commit()
        assert consumer.committed(queue) == 2
        consumer.seek(queue, 1)
        assert len(consumer.poll(5)) == 1
        assert consumer.seek_to_start(queue) == 0
        consumer.pause([queue])
        assert consumer.poll(0.01) == []
        consumer.resume([queue])
        assert len(consumer.poll(5)) == 2
        assert consumer.seek_to_end(queue) == 2
        assert consumer.seek_to_time(queue, datetime.fromtimestamp(0, UTC)) == 0


def test_being_lent_messages(client: Client) -> None:
    for number in range(3):
        client.send("orders", b"%d" % number)
    with client.simple_consumer("billing", start=Start.FIRST) as consumer:
        consumer.subscribe("orders")
        received: list[ReceivedMessage] = []
        while len(received) < 3:
            received += consumer.receive(wait=5)
        first, *others = received
        first.extend(30)
        with first:
            pass
        consumer.ack(others)
        assert all(message.is_settled for message in received)
        assert consumer.receive(wait=0) == []


def test_running_until_a_signal(broker: EmbeddedBroker) -> None:
    client = Client(broker.name_server)
    client.send("orders", b"x")
    seen = []

    @client.consumer("orders", group="billing", start=Start.FIRST)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    client.run()
    assert seen == [b"x"]
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ClientError, match="closed"):
        client.send("orders", b"x")


def test_handlers_that_await_belong_to_the_other_client(client: Client) -> None:
    async def handle(message: ReceivedMessage) -> None: ...

    with pytest.raises(ClientError, match=r"belongs to ariane\.Client"):
        client.push_consumer("billing", handle)
    with pytest.raises(ClientError, match=r"belongs to ariane\.Client"):
        client.consumer("orders", group="billing")(handle)


def test_a_message_outlives_its_client_and_says_so(broker: EmbeddedBroker) -> None:
    with Client(broker.name_server) as client:
        client.send("orders", b"x")
        consumer = client.simple_consumer("billing", start=Start.FIRST)
        consumer.subscribe("orders")
        (message,) = consumer.receive()
    with pytest.raises(ClientError, match="delivered again"):
        message.ack()
