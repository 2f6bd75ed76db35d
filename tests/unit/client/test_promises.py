"""What a producer promises beyond the plain send: sizes, attempts, late answers, topics ahead."""

import asyncio
import time

import pytest

import ariane
from ariane import Message, SendStatus
from ariane.client import Client
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    ClientError,
    ConnectionLost,
    InvalidArgument,
    InvalidMessage,
    RequestTimeout,
    RouteNotFound,
)
from ariane.protocol.command import Command
from ariane.sync import Client as BlockingClient
from ariane.testing import EmbeddedBroker
from tests.unit.client.fake import FakeCluster, client_of, running, silent, stored

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
MIB = 1 << 20


def late(code: ResponseCode) -> object:
    def answer(command: Command) -> Command:
        answered = stored(command)
        answered.code = code
        return answered

    return answer


def attempts(cluster: FakeCluster) -> int:
    return sum(len(broker.of(SEND)) for broker in cluster.brokers.values())


# Sizes.


@pytest.mark.ariane(maxMessageSize=8 * MIB)
async def test_bodies_may_be_as_long_as_the_broker_takes(ariane_broker: EmbeddedBroker) -> None:
    body = bytes(6 * MIB)
    async with ariane.Client(ariane_broker.name_server, compression=None) as client:
        with pytest.raises(InvalidMessage, match="message_bytes_max="):
            await client.send("orders", body)
        producer = client.producer(message_bytes_max=8 * MIB)
        await producer.send("orders", body)
        await producer.send_batch([Message("orders", bytes(3 * MIB)) for _ in range(2)])
        with pytest.raises(InvalidMessage, match=r"over the 8,388,608"):
            await producer.send_batch([Message("orders", bytes(3 * MIB)) for _ in range(3)])
        gathering = client.producer(
            message_bytes_max=8 * MIB, batch_bytes_max=7 * MIB, linger=0, compression=None
        )
        await asyncio.gather(*(gathering.send("orders", bytes(3 * MIB)) for _ in range(2)))
    with BlockingClient(ariane_broker.name_server, message_bytes_max=8 * MIB) as blocking:
        blocking.send("orders", body)
    sizes = sorted(len(message.body) for message in ariane_broker.published("orders"))
    assert sizes == [3 * MIB] * 4 + [6 * MIB] * 2


async def test_a_smaller_maximum_holds_on_every_way() -> None:
    async with running("a", orders=1) as cluster:
        client = Client(cluster.name_server.address, message_bytes_max=10)
        async with client:
            await client.send("orders", b"0123456789")
            await client.send("orders", b"0123456789")  # by the shortcut
            for sending in (
                client.send("orders", b"01234567890"),
                client.send("orders", b"01234567890", tags="A"),
                client.producer(linger=0).send("orders", b"01234567890"),
            ):
                with pytest.raises(InvalidMessage, match="11 bytes is over the 10"):
                    await sending
    with pytest.raises(InvalidArgument, match="a frame of the protocol holds no more"):
        ariane.Client("127.0.0.1:1", message_bytes_max=64 * MIB)


# Attempts.


@pytest.mark.parametrize("is_known", [False, True], ids=["whole way", "shortcut"])
async def test_a_broker_that_stopped_costs_one_attempt(*, is_known: bool) -> None:
    async with running("a", "b", orders=1) as cluster:
        client = Client(cluster.name_server.address, timeout=6.0, retries=2)
        async with client:
            if is_known:
                for _ in range(8):
                    await client.send("orders", b"x")
            cluster.brokers["a"].answers[SEND] = silent
            begun_s = time.monotonic()
            receipts = [await client.send("orders", b"y") for _ in range(2)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"b"}
            assert time.monotonic() - begun_s < 5.0


async def test_a_blocking_send_too_leaves_time_for_another_broker() -> None:
    async with running("a", "b", orders=1) as cluster:
        cluster.brokers["a"].answers[SEND] = silent

        def send() -> set[str]:
            with BlockingClient(
                cluster.name_server.address, timeout=60, attempt_timeout=0.3
            ) as client:
                return {client.send("orders", b"x").queue.broker_name for _ in range(3)}

        assert await asyncio.to_thread(send) == {"b"}


async def test_the_only_broker_has_all_the_time_there_is() -> None:
    async with running("a", orders=2) as cluster:
        cluster.brokers["a"].answers[SEND] = silent
        async with Client(cluster.name_server.address, timeout=0.4) as client:
            with pytest.raises(RequestTimeout, match="after one attempt"):
                await client.send("orders", b"x")
            with pytest.raises(RequestTimeout, match="after 3 attempts"):
                await client.producer(attempt_timeout=0.1).send("orders", b"x")
    with pytest.raises(InvalidArgument, match="attempt_timeout=0"):
        ariane.Client("127.0.0.1:1", attempt_timeout=0)


# Late answers.


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
async def test_another_broker_is_asked_when_one_was_late(code: ResponseCode) -> None:
    async with running("a", "b", orders=1) as cluster:
        cluster.brokers["a"].answers[SEND] = late(code)  # type: ignore[assignment]
        async with client_of(cluster) as client:
            receipts = [await client.send("orders", b"x") for _ in range(4)]
            assert {receipt.status for receipt in receipts} == {
                SendStatus.OK,
                SendStatus[code.name],
            }
            assert {receipt.is_safe for receipt in receipts} == {True, False}
            assert attempts(cluster) == 4
            producer = client.producer("shop", retry_another_broker_when_not_stored=True)
            receipts = [await producer.send("orders", b"x") for _ in range(4)]
            assert all(receipt.is_safe for receipt in receipts)
            assert attempts(cluster) > 8
            before = attempts(cluster)
            queue = next(q for q in await producer.queues("orders") if q.broker_name == "a")
            assert not (await producer.send("orders", b"x", queue=queue)).is_safe
            assert attempts(cluster) == before + 1  # who names the queue wants no other broker


async def test_a_message_that_is_nowhere_safe_is_stored_all_the_same() -> None:
    async with running("a", "b", orders=1) as cluster:
        cluster.brokers["a"].answers[SEND] = late(ResponseCode.FLUSH_DISK_TIMEOUT)  # type: ignore[assignment]
        async with Client(
            cluster.name_server.address, retry_another_broker_when_not_stored=True, timeout=1
        ) as client:
            cluster.brokers["b"].answers[SEND] = silent
            receipt = None
            for _ in range(2):
                receipt = await client.send("orders", b"x")
                assert receipt.status is SendStatus.FLUSH_DISK_TIMEOUT


async def test_a_blocking_send_asks_another_broker_too() -> None:
    async with running("a", "b", orders=1) as cluster:
        cluster.brokers["a"].answers[SEND] = late(ResponseCode.FLUSH_SLAVE_TIMEOUT)  # type: ignore[assignment]

        def send() -> list[bool]:
            with BlockingClient(
                cluster.name_server.address, retry_another_broker_when_not_stored=True
            ) as client:
                return [client.send("orders", b"x").is_safe for _ in range(4)]

        assert await asyncio.to_thread(send) == [True] * 4


# Transactions.


async def test_a_transaction_without_a_checker_is_refused() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        with pytest.raises(ClientError, match=r"no checker.*@client.checker\('shop'\)"):
            client.transaction("orders", b"x", group="shop")
        assert attempts(cluster) == 0


async def test_a_half_message_whose_fate_is_unknown_is_not_sent_again() -> None:
    async with running("a", "b", orders=1) as cluster, client_of(cluster) as client:
        client.checked_elsewhere("shop")

        def lose(command: Command) -> None:
            for broker in cluster.brokers.values():
                broker.drop_all()

        for broker in cluster.brokers.values():
            broker.answers[SEND] = lose
        with pytest.raises(ConnectionLost):
            async with client.transaction("orders", b"x", group="shop"):
                pytest.fail("the block must not run")
        assert attempts(cluster) == 1
        for broker in cluster.brokers.values():
            broker.answers[SEND] = silent
        with pytest.raises(RequestTimeout):
            async with client.transaction("orders", b"x", group="shop", timeout=0.3):
                pytest.fail("the block must not run")
        assert attempts(cluster) == 2


async def test_a_half_message_that_was_certainly_not_stored_goes_elsewhere() -> None:
    async with running("a", "b", orders=1) as cluster, client_of(cluster) as client:
        client.checked_elsewhere("shop")
        await cluster.brokers["a"].stop()
        for _ in range(2):
            with pytest.raises(KeyError):
                async with client.transaction("orders", b"x", group="shop") as transaction:
                    assert transaction.receipt.queue.broker_name == "b"
                    raise KeyError


# Topics bound ahead.


async def test_topics_named_ahead_are_looked_for_at_the_start() -> None:
    async with running("a", orders=1) as cluster:
        address = cluster.name_server.address
        async with Client(address, topics=["orders"]) as client:
            producer = client.producer("shop", topics=["orders", "refunds", "returns"])
            with pytest.raises(RouteNotFound, match=r"'shop' cannot start: .*refunds.*returns"):
                await producer.start()
        client = Client(address, topics="refunds")
        with pytest.raises(RouteNotFound, match="refunds"):
            async with client:
                pytest.fail("the block must not run")
        assert not client.session.is_open

        def open_blocking() -> None:
            with pytest.raises(RouteNotFound, match="refunds"):
                BlockingClient(address, topics=["refunds"])
            with BlockingClient(address, topics=["orders"]) as blocking:
                blocking.producer("shop", topics=["orders"]).start()

        await asyncio.to_thread(open_blocking)


async def test_a_route_that_took_all_the_time_leaves_nothing_sent() -> None:
    clock = ManualClock()
    async with running("a", TBW102=1) as cluster, client_of(cluster, clock) as client:
        found = cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

        def slowly(command: Command) -> Command | None:
            clock.advance(2.0)  # for the topic, and for the one it would be made after
            return found(command)

        cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = slowly
        with pytest.raises(RequestTimeout, match=r"took all of 3 s; nothing was sent"):
            await client.send("orders", b"x")
        assert attempts(cluster) == 0
