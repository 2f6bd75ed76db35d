"""The blocking twin: same results, same errors, and no thread left behind."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError

import pytest

from ariane.client import Message
from ariane.client.sync import Client, LoopThread
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, RouteNotFound
from ariane.protocol.bodies import MessageQueue
from tests.unit.client.fake import FakeCluster, pulled, record


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster on a loop of its own, since the test's thread blocks."""
    thread = LoopThread()
    try:

        async def start() -> FakeCluster:
            cluster = FakeCluster(["a"])
            cluster.queue_counts["orders"] = 2
            await cluster.start()
            return cluster

        made = thread.run(start())
        yield made
        thread.run(made.stop())
    finally:
        thread.stop()


def test_send_submit_batch_and_read(cluster: FakeCluster) -> None:
    with Client(cluster.name_server.address) as client:
        assert client.send("orders", b"x").queue_offset == 7
        producer = client.producer("p")
        futures = [producer.submit(Message("orders", b"%d" % number)) for number in range(50)]
        assert len({future.result(10).message_id for future in futures}) == 50
        batch = producer.send_batch([Message("orders", b"a")] * 3)
        assert [receipt.queue_offset for receipt in batch] == [7, 8, 9]
        producer.send_one_way(Message("orders", b"x"))
        cluster.brokers["a"].answers[RequestCode.PULL_MESSAGE] = pulled(
            ResponseCode.SUCCESS, body=record(b"one"), next_offset=1
        )
        consumer = client.pull_consumer()
        queue = consumer.queues("orders")[0]
        consumer.seek(queue, 0)
        assert [message.body for message in consumer.pull(queue).messages] == [b"one"]
        assert consumer.position(queue) == 1
        assert list(client.admin.cluster().brokers) == ["a"]


def test_errors_are_raised_in_the_callers_thread(cluster: FakeCluster) -> None:
    with Client(cluster.name_server.address) as client, pytest.raises(RouteNotFound):
        client.send("unknown", b"x")


def test_a_rule_that_exits_ends_its_call_and_nothing_else(cluster: FakeCluster) -> None:
    def leave(queues: Sequence[MessageQueue]) -> MessageQueue:
        raise SystemExit(3)

    with Client(cluster.name_server.address) as client:
        with pytest.raises(SystemExit):
            client.send("orders", b"x", selector=leave)
        assert client.send("orders", b"y").is_safe


def test_nothing_is_left_after_close(cluster: FakeCluster) -> None:
    before = threading.active_count()
    client = Client(cluster.name_server.address)
    client.send("orders", b"x")
    client.close()
    client.close()
    assert threading.active_count() == before
    with pytest.raises(ClientError, match="closed"):
        client.send("orders", b"x")


def test_work_under_way_ends_with_its_thread() -> None:
    """A future that never ended would have its caller wait for ever."""
    thread = LoopThread()
    has_begun = threading.Event()

    async def work() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    future = thread.submit(work())
    assert has_begun.wait(30)
    thread.stop()
    with pytest.raises(CancelledError):
        future.result(30)
