"""Handlers that are lent messages: by message and not by queue, renewed, acknowledged, given up."""

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from queue import SimpleQueue

import pytest

import ariane
from ariane import Reject, Retry, RetryLater, Start
from ariane.client.received import ReceivedMessage
from ariane.errors import ClientError, InvalidArgument
from ariane.protocol.bodies import SubscriptionGroupConfig
from ariane.sync import Client as BlockingClient
from ariane.testing import EmbeddedBroker

WAIT_S = 30.0


async def prepared(broker: EmbeddedBroker, client: ariane.Client, count: int) -> set[bytes]:
    await client.admin.create_topic("orders", write_queue_count=1)
    bodies = {b"%d" % number for number in range(count)}
    for body in sorted(bodies):
        await client.send("orders", body)
    return bodies


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)


def lent(broker: EmbeddedBroker) -> int:
    """How many checkpoints are open at the broker."""
    return broker.call(lambda: len(list(broker.broker.state.pop.checkpoints)))


async def test_one_queue_feeds_several_members(ariane_broker: EmbeddedBroker) -> None:
    async with (
        ariane.Client(ariane_broker.name_server) as one,
        ariane.Client(ariane_broker.name_server) as other,
    ):
        bodies = await prepared(ariane_broker, one, 60)
        seen: dict[str, list[bytes]] = {"one": [], "other": []}

        def consumer_of(client: ariane.Client, name: str) -> ariane.PopConsumer:
            async def handle(message: ReceivedMessage) -> None:
                seen[name].append(message.body)
                await until(lambda: all(seen.values()))  # neither can do all of it alone

            consumer = client.pop_consumer("billing", handle, concurrency=2, start=Start.FIRST)
            consumer.subscribe("orders")
            return consumer

        async with consumer_of(one, "one"), consumer_of(other, "other") as second:
            await until(lambda: len(seen["one"]) + len(seen["other"]) == 60)
            await until(lambda: second.held_count == 0)
        assert set(seen["one"] + seen["other"]) == bodies
        assert lent(ariane_broker) == 0


async def test_what_fails_comes_again_and_ends_as_a_dead_letter(
    ariane_broker: EmbeddedBroker,
) -> None:
    tries: list[int] = []
    dead = asyncio.Queue[bytes]()

    async def mourn(message: ReceivedMessage) -> None:
        dead.put_nowait(message.body)

    async with ariane.Client(ariane_broker.name_server) as client:
        await prepared(ariane_broker, client, 1)

        @client.consumer(
            "orders",
            group="billing",
            pop=True,
            start=Start.FIRST,
            retry=Retry(max=2, delays=(timedelta(seconds=0.2),)),
            dead_letter=mourn,
        )
        async def handle(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            raise RetryLater(0.1) if len(tries) == 1 else KeyError

        await client.start_consumers()
        async with asyncio.timeout(WAIT_S):
            while dead.empty():
                await asyncio.to_thread(ariane_broker.advance, 1)
        assert tries == [0, 1, 2]
        assert await dead.get() == b"0"
        assert len(ariane_broker.published("%DLQ%billing")) == 1


async def test_the_group_says_how_often(ariane_broker: EmbeddedBroker) -> None:
    tries: list[int] = []
    async with ariane.Client(ariane_broker.name_server) as client:
        await prepared(ariane_broker, client, 1)
        limit(ariane_broker, "billing", 1)

        async def handle(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            raise RetryLater(0.1)

        consumer = client.pop_consumer("billing", handle, start=Start.FIRST)
        consumer.subscribe("orders")
        async with consumer, asyncio.timeout(WAIT_S):
            while not ariane_broker.published("%DLQ%billing"):
                await asyncio.to_thread(ariane_broker.advance, 1)
        assert tries == [0, 1]


async def test_a_long_handler_keeps_its_message(ariane_broker: EmbeddedBroker) -> None:
    calls = Counter[bytes]()
    may_end = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        calls[message.body] += 1
        await may_end.wait()

    async with ariane.Client(ariane_broker.name_server) as client:
        await prepared(ariane_broker, client, 1)
        consumer = client.pop_consumer("billing", handle, start=Start.FIRST, invisible=2)
        consumer.subscribe("orders")
        async with consumer:
            await until(lambda: calls)
            for _ in range(3):  # renewed by real time; the broker's clock goes with it
                renewed = ariane_broker.requests("extend")
                await until(lambda seen=renewed: ariane_broker.requests("extend") > seen)
            may_end.set()
            await until(lambda: consumer.held_count == 0)
        await asyncio.to_thread(ariane_broker.advance, 60)
        assert calls == {b"0": 1}
        assert lent(ariane_broker) == 0


async def test_a_rejected_message_is_a_dead_letter_at_once(ariane_broker: EmbeddedBroker) -> None:
    calls = Counter[bytes]()

    async def handle(message: ReceivedMessage) -> None:
        calls[message.body] += 1
        raise Reject("no such customer")

    async with ariane.Client(ariane_broker.name_server) as client:
        await prepared(ariane_broker, client, 1)
        for kind in (client.pop_consumer, client.push_consumer):
            group = kind.__name__
            consumer = kind(group, handle, start=Start.FIRST)  # type: ignore[operator]
            consumer.subscribe("orders")
            async with consumer:
                await until(lambda name=group: ariane_broker.published(f"%DLQ%{name}"))
            (dead,) = ariane_broker.published(f"%DLQ%{group}")
            assert dead.properties["DEAD_LETTER_REASON"] == "no such customer"
            assert dead.properties["RETRY_TOPIC"] == "orders"
    assert calls == {b"0": 2}


def test_handlers_that_block_are_lent_messages_too(ariane_broker: EmbeddedBroker) -> None:
    seen: SimpleQueue[tuple[bytes, bool]] = SimpleQueue()
    with BlockingClient(ariane_broker.name_server) as client:

        def handle(message: ReceivedMessage) -> None:
            seen.put((message.body, threading.current_thread() is threading.main_thread()))

        consumer = client.pop_consumer("billing", handle, start=Start.FIRST)
        consumer.subscribe("orders")
        client.send("orders", b"x")
        with consumer:
            assert seen.get(timeout=WAIT_S) == (b"x", False)
            consumer.pause()
            consumer.resume()


async def test_batches_of_what_is_lent(ariane_broker: EmbeddedBroker) -> None:
    sizes: list[int] = []

    async def handle(batch: list[ReceivedMessage]) -> None:
        sizes.append(len(batch))

    async with ariane.Client(ariane_broker.name_server) as client:
        await prepared(ariane_broker, client, 25)
        consumer = client.pop_consumer(
            "billing", handle, batch=10, batch_wait=0.05, concurrency=1, start=Start.FIRST
        )
        consumer.subscribe("orders")
        async with consumer:
            await until(lambda: sum(sizes) == 25)
        assert max(sizes) <= 10
        assert len(sizes) < 25
    assert lent(ariane_broker) == 0


async def test_what_was_not_begun_is_returned_when_the_consumer_closes(
    ariane_broker: EmbeddedBroker,
) -> None:
    begun = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        await asyncio.sleep(0.05)

    async with ariane.Client(ariane_broker.name_server) as client:
        await prepared(ariane_broker, client, 4)
        consumer = client.pop_consumer("billing", handle, concurrency=1, start=Start.FIRST)
        consumer.subscribe("orders")
        async with consumer:
            await begun.wait()
        assert consumer.held_count == 0
        rest = client.simple_consumer("billing")
        rest.subscribe("orders")
        left: list[ReceivedMessage] = []
        async with rest, asyncio.timeout(WAIT_S):
            while len(left) < 3:
                await asyncio.to_thread(ariane_broker.advance, 2)
                found = await rest.receive(wait=0.1)
                await rest.ack(found)
                left += found


async def test_what_pop_cannot_have_is_refused() -> None:
    client = ariane.Client("127.0.0.1:1")
    with pytest.raises(InvalidArgument, match="orderly= is for consumers that read queues"):
        client.consumer("orders", group="g", pop=True, orderly=True)(print)
    with pytest.raises(TypeError, match="invisible"):
        client.pop_consumer("g", print, invisibel=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="invisible=0"):
        client.pop_consumer("g", print, invisible=0)
    consumer = client.pop_consumer("g", print)
    with pytest.raises(ClientError, match="subscribe it"):
        await consumer.start()


def limit(broker: EmbeddedBroker, group: str, retries: int) -> None:
    """As `mqadmin updateSubGroup -r` does."""
    broker.call(
        lambda: broker.broker.state.groups.put(
            SubscriptionGroupConfig(name=group, retry_times_max=retries)
        )
    )
