"""Clients whose time is the broker's, and tests that await."""

import asyncio
import inspect

import pytest

import ariane
from ariane import sync
from ariane.testing import AwaitedBroker, EmbeddedBroker


async def test_what_a_client_does_by_the_clock_is_done_when_it_is_turned(
    ariane_broker: EmbeddedBroker,
) -> None:
    """An orderly consumer tries again after a second of its own: here at once."""
    tries: asyncio.Queue[int] = asyncio.Queue()

    async def bill(message: ariane.ReceivedMessage) -> None:
        await tries.put(message.queue_offset)
        raise ConnectionError

    async with ariane_broker.client() as client:
        await client.send("orders", b"42 apples")
        consumer = client.push_consumer("billing", bill, orderly=True, start=ariane.Start.FIRST)
        consumer.subscribe("orders")
        async with consumer, asyncio.timeout(30):
            await tries.get()
            began_s = asyncio.get_running_loop().time()
            for _ in range(10):  # a second each
                while tries.empty():
                    await ariane_broker.aio.advance(1)
                tries.get_nowait()
            assert asyncio.get_running_loop().time() - began_s < 8


async def test_progress_is_committed_by_the_clock(ariane_broker: EmbeddedBroker) -> None:
    async with ariane_broker.client() as client:
        await client.send("orders", b"42 apples")
        async with client.subscribe(
            "orders", group="billing", start=ariane.Start.FIRST
        ) as messages:
            await (await anext(messages)).ack()
            await ariane_broker.aio.advance(6)
            await ariane_broker.aio.wait_for_requests("commit", 1, within=30)
            lag = await client.admin.lag("billing", topic="orders")
            assert lag.messages == 0


async def test_a_long_time_makes_nothing_late(ariane_broker: EmbeddedBroker) -> None:
    async with ariane_broker.client(retries=0) as client:
        await client.admin.create_topic("orders")
        subscription = client.subscribe("orders", group="billing", start=ariane.Start.FIRST)
        async with subscription as messages, asyncio.timeout(60):
            await client.send("orders", b"first", delay=3600)
            await ariane_broker.aio.advance(7200)
            message = await anext(messages)
            assert message.text == "first"
            await message.ack()

            turning = asyncio.create_task(ariane_broker.aio.advance(86400))
            await asyncio.gather(*(client.send("others", b"x") for _ in range(20)))
            await turning
            await client.send("orders", b"last")
            assert (await anext(messages)).text == "last"


def test_a_blocking_client_is_turned_too(ariane_client: sync.Client) -> None:
    assert isinstance(ariane_client, sync.Client)
    ariane_client.send("orders", b"x")


def test_the_client_is_one_of_the_broker(
    ariane_broker: EmbeddedBroker, ariane_client: sync.Client
) -> None:
    before_s = ariane_client.session.clock.monotonic_s()
    ariane_client.send("orders", b"x")
    ariane_broker.advance(3600)
    assert ariane_client.session.clock.monotonic_s() - before_s >= 3600
    ariane_client.send("orders", b"y")
    assert [message.text for message in ariane_broker.published("orders")] == ["x", "y"]


async def test_a_test_that_awaits_gets_a_client_that_awaits(
    ariane_broker: EmbeddedBroker, ariane_client: ariane.Client
) -> None:
    assert isinstance(ariane_client, ariane.Client)
    async with ariane_client:
        await ariane_client.send("orders", b"x")
        [message] = await ariane_broker.aio.wait_for("orders", 1)
        assert message.text == "x"
        with pytest.raises(RuntimeError, match=r"await broker\.aio\.advance"):
            ariane_broker.advance(1)


def test_the_awaited_face_has_what_takes_time() -> None:
    for name, method in inspect.getmembers(AwaitedBroker, inspect.isfunction):
        if not name.startswith("_"):
            blocking = getattr(EmbeddedBroker, name)
            assert inspect.signature(method) == inspect.signature(blocking)
            assert method.__doc__ == blocking.__doc__
