"""Handlers that take several messages at a time, and how pulls are paced."""

import asyncio
import contextlib
from collections.abc import Sequence
from queue import SimpleQueue

import pytest

import ariane
from ariane import Retry, Start
from ariane.client.received import ReceivedMessage
from ariane.codes import RequestCode
from ariane.errors import InvalidArgument
from ariane.protocol.bodies import SubscriptionGroupConfig
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.retry import SendBackHeader
from ariane.sync import Client as BlockingClient
from ariane.testing import EmbeddedBroker
from tests.unit.client.group_broker import GROUP, TOPIC, World, settle, until, world

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
Batch = Sequence[ReceivedMessage]


async def batching(here: World, handler: object, **choices: object) -> ariane.PushConsumer:
    consumer = here.client.push_consumer(GROUP, handler, **choices)  # type: ignore[arg-type]
    consumer.subscribe(TOPIC)
    await consumer.start()
    await until(lambda: consumer.queues and here.broker.pulls())
    return consumer


async def test_a_batch_is_full_or_has_waited_long_enough() -> None:
    async with world() as here:
        batches: list[list[bytes]] = []

        async def handle(batch: Batch) -> None:
            batches.append([message.body for message in batch])

        await batching(here, handle, batch=3, batch_wait=2.0)
        for number in range(4):
            here.broker.store(b"%d" % number)
        await until(lambda: batches == [[b"0", b"1", b"2"]])
        await settle()
        assert len(batches) == 1  # the fourth waits for others
        await here.advance(1.9)
        assert len(batches) == 1
        await here.advance(0.2)
        await until(lambda: batches[1:] == [[b"3"]])
        here.broker.commits.clear()
        await here.advance(5)
        assert (TOPIC, 0, 4) in here.broker.commits


async def test_who_fails_has_all_tried_again_but_what_it_has_settled() -> None:
    async with world() as here:

        async def handle(batch: Batch) -> None:
            await batch[0].ack()
            raise ValueError("the database is down")

        await batching(here, handle, batch=3, batch_wait=60)
        for number in range(3):
            here.broker.store(b"%d" % number)
        await here.server.received(BACK, 2)
        await settle()
        offsets = {
            decode_header(SendBackHeader, one.ext).log_offset for one in here.server.of(BACK)
        }
        assert offsets == {1001, 1002}


async def test_batches_without_a_wait_take_what_is_there() -> None:
    async with world() as here:
        sizes: list[int] = []
        may_go = asyncio.Event()

        async def handle(batch: Batch) -> None:
            sizes.append(len(batch))
            await may_go.wait()

        await batching(here, handle, batch=100, concurrency=1)
        here.broker.store(b"first")
        await until(lambda: sizes == [1])
        for number in range(7):
            here.broker.store(b"%d" % number)
        await settle()
        may_go.set()
        await until(lambda: sum(sizes) == 8)
        assert sizes[1] > 1


def test_blocking_batches_run_on_threads(ariane_broker: EmbeddedBroker) -> None:
    seen: SimpleQueue[list[bytes]] = SimpleQueue()
    with BlockingClient(ariane_broker.name_server) as client:
        client.admin.create_topic("orders", write_queue_count=1)

        @client.consumer(
            "orders", group="billing", batch=4, batch_wait=0.05, start=Start.FIRST, retry=Retry(0)
        )
        def handle(batch: Batch) -> None:
            seen.put([message.body for message in batch])
            batch[0].ack()  # type: ignore[unused-coroutine]  # of the blocking client

        for number in range(8):
            client.send("orders", b"%d" % number)
        client.start_consumers()
        found: list[bytes] = []
        while len(found) < 8:
            batch = seen.get(timeout=30)
            assert len(batch) <= 4
            found += batch
    assert sorted(found) == [b"%d" % number for number in range(8)]


@pytest.mark.ariane(traceTopicEnable=True)
async def test_each_message_of_a_batch_is_traced(ariane_broker: EmbeddedBroker) -> None:
    done = asyncio.Event()
    async with ariane.Client(ariane_broker.name_server, trace=True) as client:
        receipt = await client.send("orders", b"x")

        @client.consumer("orders", group="billing", batch=2, start=Start.FIRST)
        async def handle(batch: Batch) -> None:
            done.set()

        await client.start_consumers()
        async with asyncio.timeout(30):
            await done.wait()
    traces = b"".join(one.body for one in ariane_broker.published("RMQ_SYS_TRACE_TOPIC"))
    assert b"SubAfter" in traces
    assert traces.count(receipt.message_id.encode()) >= 3


async def test_what_batches_cannot_be() -> None:
    client = ariane.Client("127.0.0.1:1")
    for choices, words in (
        ({"batch": 0}, "batch=0"),
        ({"batch": 2, "batch_wait": -1}, "batch_wait=-1"),
        ({"batch": 2, "orderly": True}, "a batch has no order"),
        ({"batch": 2, "model": dict}, "leave out model="),
        ({"pull_count_max": 0}, "pull_count_max=0"),
        ({"pull_interval": -1}, "pull_interval=-1"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            client.consumer("orders", group="g", **choices)(print)


async def test_pulls_are_of_the_size_and_at_the_pace_that_are_told() -> None:
    async with world() as here:
        bodies: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            bodies.append(message.body)

        await batching(here, handle, pull_count_max=2, pull_interval=3.0)
        assert here.broker.pulls()[0].count_max == 2
        here.broker.store(b"one")
        await until(lambda: bodies == [b"one"])
        here.broker.store(b"two")
        await here.advance(2.5)
        assert bodies == [b"one"]
        await here.advance(1.0)
        await until(lambda: bodies == [b"one", b"two"])


async def test_the_group_says_how_often_a_message_is_tried(ariane_broker: EmbeddedBroker) -> None:
    tries: list[int] = []
    dead = asyncio.Event()

    async def mourn(message: ReceivedMessage) -> None:
        dead.set()

    ariane_broker.call(
        lambda: ariane_broker.broker.state.groups.put(
            SubscriptionGroupConfig(name="billing", retry_times_max=1)
        )
    )
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")

        @client.consumer("orders", group="billing", start=Start.FIRST, dead_letter=mourn)
        async def fail(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            raise ariane.RetryLater(0)

        await client.start_consumers()
        async with asyncio.timeout(30):
            while not dead.is_set():
                await asyncio.to_thread(ariane_broker.advance, 1)
    assert tries == [0, 1]
    assert len(ariane_broker.published("%DLQ%billing")) == 1


@pytest.mark.parametrize("pop", [False, True], ids=["by queue", "by message"])
async def test_of_a_batch_only_what_cannot_be_read_is_rejected(
    ariane_broker: EmbeddedBroker, *, pop: bool
) -> None:
    read: list[int] = []
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.admin.create_topic("numbers", write_queue_count=1)
        for body in (b"1", b"two", b"3"):
            await client.send("numbers", body)

        @client.consumer(
            "numbers", group="sums", pop=pop, batch=3, batch_wait=0.1, start=Start.FIRST
        )
        async def add(batch: Batch) -> None:
            read.extend([message.json(int) for message in batch])

        await client.start_consumers()
        async with asyncio.timeout(30):
            while not ariane_broker.published("%DLQ%sums"):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            while set(read) != {1, 3}:
                await asyncio.to_thread(ariane_broker.advance, 1)
                await asyncio.sleep(0.02)
    (dead,) = ariane_broker.published("%DLQ%sums")
    assert dead.body == b"two"
    assert "is not the JSON" in dead.properties["DEAD_LETTER_REASON"]


async def test_middleware_is_around_batches_and_what_is_lent(ariane_broker: EmbeddedBroker) -> None:
    class Noting(ariane.Middleware):
        def __init__(self) -> None:
            self.seen: list[tuple[str, bytes]] = []

        def handling(
            self, message: ariane.PolledMessage, group: str
        ) -> contextlib.AbstractContextManager[object]:
            self.seen.append((group, message.body))
            return contextlib.nullcontext()

    noting, done = Noting(), asyncio.Semaphore(0)
    async with ariane.Client(ariane_broker.name_server, middleware=[noting]) as client:
        await client.send("orders", b"x")

        @client.consumer("orders", group="many", batch=2, start=Start.FIRST)
        async def handle_batch(batch: Batch) -> None:
            done.release()

        @client.consumer("orders", group="lent", pop=True, start=Start.FIRST)
        async def handle(message: ReceivedMessage) -> None:
            done.release()

        await client.start_consumers()
        async with asyncio.timeout(30):
            await done.acquire()
            await done.acquire()
    assert sorted(noting.seen) == [("lent", b"x"), ("many", b"x")]
