"""Middleware: around every send and every call of a handler, in both clients."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import pytest
from msgspec.structs import replace

import ariane
from ariane import Message, Middleware, Outgoing, PolledMessage, Start, sync
from ariane.client.middleware import handled
from ariane.codes import ResponseCode
from ariane.errors import ClientError
from ariane.testing import EmbeddedBroker

NAME: ContextVar[str] = ContextVar("NAME", default="")


class Noting(Middleware):
    """Writes down what it is around, and marks what is sent."""

    def __init__(self, name: str = "n") -> None:
        self.name = name
        self.seen: list[tuple[str, str]] = []

    @contextmanager
    def sending(self, outgoing: Outgoing) -> Iterator[None]:
        message = outgoing.message
        marked = {**message.properties, "by": message.properties.get("by", "") + self.name}
        outgoing.message = replace(message, properties=marked)
        try:
            yield
        except Exception as error:
            self.seen.append(("failed", type(error).__name__))
            raise
        kind = "half" if outgoing.is_half else "sent"
        self.seen.append((kind, "no receipt" if outgoing.receipt is None else outgoing.group))

    @contextmanager
    def handling(self, message: PolledMessage, group: str) -> Iterator[None]:
        token = NAME.set(self.name)
        try:
            yield
        except Exception as error:
            self.seen.append((group, type(error).__name__))
            raise
        else:
            self.seen.append((group, message.text))
        finally:
            NAME.reset(token)


async def test_every_way_to_send_is_bracketed(ariane_broker: EmbeddedBroker) -> None:
    outer, inner = Noting("o"), Noting("i")
    async with ariane.Client(ariane_broker.name_server, middleware=[outer, inner]) as client:
        client.checker("DEFAULT_PRODUCER")(lambda message: True)
        await client.send("orders", b"1")
        await client.send(Message("orders", b"2", properties={"a": "b"}), sharding_key="k")
        await (await client.submit("orders", b"3"))
        await client.send_one_way("orders", b"4")
        await client.send_batch([Message("orders", b"5"), Message("orders", b"6")])
        async with client.transaction("orders", b"7"):
            pass
        await client.producer("other", linger=0.001).send("orders", b"8")
        await ariane_broker.aio.wait_for("orders", 8, within=30)
    marks = {
        message.text: message.properties["by"] for message in ariane_broker.published("orders")
    }
    assert marks == dict.fromkeys("12345678", "oi")
    mine = ("sent", "DEFAULT_PRODUCER")
    assert outer.seen == [
        mine,
        mine,
        mine,
        ("sent", "no receipt"),
        mine,
        mine,
        ("half", "DEFAULT_PRODUCER"),
        ("sent", "other"),
    ]
    assert inner.seen == outer.seen


async def test_an_error_is_seen(ariane_broker: EmbeddedBroker) -> None:
    ariane_broker.fail("send", times=None, code=ResponseCode.MESSAGE_ILLEGAL)
    noting = Noting()
    async with ariane.Client(ariane_broker.name_server, middleware=[noting]) as client:
        with pytest.raises(ariane.MessageRefused):
            await client.send("orders", b"1")
    assert noting.seen == [("failed", "MessageRefused")]


async def test_what_was_submitted_is_flushed(ariane_broker: EmbeddedBroker) -> None:
    client = ariane.Client(ariane_broker.name_server, middleware=[Noting()], linger=0.01)
    async with client:
        futures = [await client.submit("orders", b"x") for _ in range(50)]
    assert all(future.done() for future in futures)
    assert len(ariane_broker.published("orders")) == 50


async def test_handlers_are_bracketed_and_see_what_it_sets(ariane_broker: EmbeddedBroker) -> None:
    noting, found = Noting("n"), asyncio.Queue[str]()
    async with ariane.Client(ariane_broker.name_server, middleware=[noting]) as client:

        async def awaiting(message: ariane.ReceivedMessage) -> None:
            await found.put(NAME.get())

        def blocking(message: ariane.ReceivedMessage) -> None:
            asyncio.run_coroutine_threadsafe(found.put(NAME.get()), loop)
            raise ariane.RetryLater(10)

        loop = asyncio.get_running_loop()
        await client.send("orders", b"1")
        for group, handler in (("a", awaiting), ("b", blocking)):
            consumer = client.push_consumer(group, handler, start=Start.FIRST)
            consumer.subscribe("orders")
            async with consumer, asyncio.timeout(30):
                assert await found.get() == "n"
    assert noting.seen[1:] == [("a", "1"), ("b", "RetryLater")]


def test_the_blocking_client_has_it_too(ariane_broker: EmbeddedBroker) -> None:
    noting = Noting("n")
    with sync.Client(ariane_broker.name_server, middleware=[noting]) as client:
        client.send("orders", b"1")
        client.submit("orders", b"2").result()
    assert noting.seen == [("sent", "DEFAULT_PRODUCER")] * 2
    assert {message.properties["by"] for message in ariane_broker.published("orders")} == {"n"}


async def test_a_batch_is_bracketed_for_each_of_its_messages(ariane_broker: EmbeddedBroker) -> None:
    noting, seen = Noting(), []

    async def bill(messages: list[PolledMessage]) -> None:
        seen.extend(messages)

    async with ariane.Client(ariane_broker.name_server) as client:
        for text in ("1", "2"):
            await client.send("orders", text)
    batch = ariane_broker.published("orders")
    await handled(bill, "billing", [noting])(batch)
    assert seen == batch
    assert sorted(noting.seen) == [("billing", "1"), ("billing", "2")]


class Hiding(Middleware):
    """Keeps errors to itself."""

    @contextmanager
    def sending(self, outgoing: Outgoing) -> Iterator[None]:
        with suppress(ClientError):
            yield


async def test_a_send_whose_error_is_kept_back_fails_all_the_same(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server, middleware=[Hiding()]) as client:
        client.checker("DEFAULT_PRODUCER")(lambda message: True)
        ariane_broker.fail("send", times=None, code=ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(ClientError, match="kept its error to itself"):
            await client.send("orders", b"1")
        with pytest.raises(ClientError, match="kept its error to itself"):
            await (await client.submit("orders", b"2"))
        with pytest.raises(ClientError, match="kept its error to itself"):
            await client.send_batch([Message("orders", b"3")])
        with pytest.raises(ClientError, match="kept its error to itself"):
            async with client.transaction("orders", b"4"):
                pytest.fail("the half message was not stored")
    assert ariane_broker.published("orders") == []
