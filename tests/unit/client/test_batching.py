"""Linger batching: who travels with whom, when a batch leaves, and that each hears of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from ariane.client import Client, Message, MessageQueue, by_hash
from ariane.client.settings import SendOptions
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ConnectionLost, InvalidMessage, RequestFailed, RequestTimeout
from ariane.protocol.command import Command
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_batch
from ariane.protocol.properties import decode_properties
from tests.unit.client.fake import FakeCluster, refusing, running, silent

BATCH = RequestCode.SEND_BATCH_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2


@asynccontextmanager
async def lingering(
    cluster: FakeCluster, clock: ManualClock | None = None, **options: object
) -> AsyncIterator[Client]:
    settings: SendOptions = {"linger": 0, **options}  # type: ignore[typeddict-item]
    client = Client(cluster.name_server.address, clock=clock, random=Random(1), **settings)
    if clock is not None:
        clock.timers.append(client.session.timers)
    async with client:
        yield client


def bodies(command: Command) -> list[bytes]:
    return [entry.body for entry in decode_batch(command.body)]


async def test_sends_of_one_moment_travel_together_and_each_has_its_receipt() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster) as client:
        receipts = await asyncio.gather(*(client.send("orders", b"%d" % n) for n in range(5)))
        (command,) = cluster.brokers["a"].of(BATCH)
        assert bodies(command) == [b"0", b"1", b"2", b"3", b"4"]
        assert [receipt.queue_offset for receipt in receipts] == [7, 8, 9, 10, 11]
        assert len({receipt.message_id for receipt in receipts}) == 5


async def test_a_batch_waits_as_long_as_it_was_told() -> None:
    clock = ManualClock()
    async with (
        running("a", orders=1) as cluster,
        lingering(cluster, clock, linger=0.02) as client,
    ):
        await client.producer(linger=None).send("orders", b"x")  # routes are known from here on
        first = await client.submit("orders", b"1")
        clock.advance(0.019)
        second = await client.submit("orders", b"2")
        assert not cluster.brokers["a"].of(BATCH)
        clock.advance(0.001)
        await asyncio.gather(first, second)
        third = await client.submit("orders", b"3")
        clock.advance(0.020)
        await third
        assert [bodies(one) for one in cluster.brokers["a"].of(BATCH)] == [[b"1", b"2"], [b"3"]]


async def test_a_full_batch_leaves_at_once() -> None:
    clock = ManualClock()
    async with (
        running("a", orders=1) as cluster,
        lingering(cluster, clock, linger=1, batch_count_max=3, batch_bytes_max=2000) as client,
    ):
        by_count = [await client.submit("orders", b"%d" % n) for n in range(3)]
        await asyncio.gather(*by_count)
        by_size = [await client.submit("orders", bytes(900)) for _ in range(2)]
        await by_size[0]
        sizes = [len(bodies(one)) for one in cluster.brokers["a"].of(BATCH)]
        assert sizes == [3, 1]
        assert not by_size[1].done()
        clock.advance(1)
        await by_size[1]


async def test_messages_for_other_topics_queues_or_safeties_travel_apart() -> None:
    queue = MessageQueue(topic="orders", broker_name="a", queue_id=2)
    async with running("a", orders=4, bills=1) as cluster, lingering(cluster) as client:
        receipts = await asyncio.gather(
            client.send("orders", b"1", sharding_key="k"),
            client.send("orders", b"2", sharding_key="k"),
            client.send("orders", b"3", queue=queue),
            client.send("bills", b"4"),
            client.send("bills", b"5", wait=False),
            client.send("bills", b"6"),
        )
        sent = {tuple(bodies(one)) for one in cluster.brokers["a"].of(BATCH)}
        assert sent == {(b"1", b"2"), (b"3",), (b"4", b"6"), (b"5",)}
        chosen = by_hash("k")(await client.producer().queues("orders"))
        assert [receipt.queue for receipt in receipts[:3]] == [chosen, chosen, queue]


async def test_what_a_batch_cannot_hold_travels_alone() -> None:
    async with (
        running("a", orders=1, **{"%RETRY%g": 1}) as cluster,
        lingering(cluster, compress_from_bytes=100) as client,
    ):
        await client.send("orders", b"x", delay_level=3)
        await client.send("orders", b"x" * 100)
        await client.send("%RETRY%g", b"x")
        await client.send("orders", b"x", timeout=1)  # a time of its own
        assert not cluster.brokers["a"].of(BATCH)
        flags = [decode_header(SendHeaderV2, one.ext) for one in cluster.brokers["a"].of(SEND)]
        assert [header.system_flag for header in flags] == [0, 0x301, 0, 0]


async def test_when_a_batch_fails_everybody_hears_of_it() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster) as client:
        cluster.brokers["a"].answers[BATCH] = refusing(ResponseCode.MESSAGE_ILLEGAL)
        outcomes = await asyncio.gather(
            *(client.send("orders", b"x") for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(outcome, RequestFailed) for outcome in outcomes)
        assert len(set(map(id, outcomes))) == 3  # each has a traceback of its own
        with pytest.raises(RequestFailed, match="not now"):
            await client.send("orders", b"x")


async def test_messages_of_every_form_travel_together() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster) as client:
        outcomes = await asyncio.gather(
            client.send("orders", b"first"),
            client.send("orders", b"plain"),
            client.send("orders", "text"),
            client.send("orders", bytearray(b"array")),
            client.send(Message("orders", b"whole")),
            client.send("orders", b"tagged", tags="t"),
            client.send("orders", b""),
            client.send("orders"),
            return_exceptions=True,
        )
        (command,) = cluster.brokers["a"].of(BATCH)
        assert bodies(command) == [b"first", b"plain", b"text", b"array", b"whole", b"tagged"]
        receipts = [one for one in outcomes if not isinstance(one, BaseException)]
        assert [receipt.queue_offset for receipt in receipts] == list(range(7, 13))
        assert all(isinstance(outcome, InvalidMessage) for outcome in outcomes[6:])
        entries = decode_batch(command.body)
        ids = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries]
        assert ids == [receipt.message_id for receipt in receipts]


async def test_who_only_submits_lets_batches_leave() -> None:
    async with (
        running("a", orders=1) as cluster,
        lingering(cluster, linger=60, batch_count_max=10) as client,
    ):
        first = await client.submit("orders", b"x")
        for _ in range(100_000):  # never waits for anything else
            if first.done():
                break
            await client.submit("orders", b"x")
        assert first.done()


async def test_submitting_waits_while_too_much_is_gathered_or_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ariane.client.sending.SUBMITTED_BYTES_MAX", 2_000)
    clock = ManualClock()
    async with (
        running("a", orders=1) as cluster,
        lingering(cluster, clock, linger=0.02) as client,
    ):
        futures = [await client.submit("orders", bytes(1_000)) for _ in range(2)]
        third = asyncio.create_task(client.submit("orders", b"x"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not third.done()
        clock.advance(0.020)
        await asyncio.gather(*futures)
        assert not (await third).done()  # taken, and gathered


async def test_a_bad_message_spoils_no_batch() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster) as client:
        good, bad = await asyncio.gather(
            client.send("orders", b"x"),
            client.send("orders", b"x", tags="\x01"),
            return_exceptions=True,
        )
        assert not isinstance(good, BaseException)
        assert isinstance(bad, Exception)


async def test_who_gives_up_does_not_stop_the_others() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster) as client:
        given_up, kept = (asyncio.create_task(client.send("orders", b"x")) for _ in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await kept).queue_offset in (7, 8)


async def test_closing_sends_what_still_waits() -> None:
    async with running("a", orders=1) as cluster:
        async with lingering(cluster, linger=60) as client:
            future = await client.submit("orders", b"last")
        assert (await future).queue_offset == 7


async def test_flush_waits_for_everything_submitted() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster, linger=60) as client:
        producer = client.producer()
        futures = [await producer.submit(Message("orders", b"%d" % n)) for n in range(10)]
        await producer.flush()
        assert all(future.done() for future in futures)
        alone = client.producer(linger=None)
        futures = [await alone.submit("orders", b"x") for _ in range(10)]
        await alone.flush()
        assert all(future.done() for future in futures)


async def test_a_lost_broker_is_a_failure_for_all() -> None:
    async with running("a", orders=1) as cluster, lingering(cluster) as client:
        await client.send("orders", b"x")
        await cluster.brokers["a"].stop()
        outcomes = await asyncio.gather(
            *(client.send("orders", b"x") for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(outcome, ConnectionLost) for outcome in outcomes)


async def test_a_silent_broker_times_everybody_out() -> None:
    clock = ManualClock()
    async with running("a", orders=1) as cluster, lingering(cluster, clock) as client:
        cluster.brokers["a"].answers[BATCH] = silent
        futures = [await client.submit("orders", b"x") for _ in range(2)]
        clock.advance(0)
        await cluster.brokers["a"].received(BATCH)
        clock.advance(3)
        for future in futures:
            with pytest.raises(RequestTimeout, match="may have been stored"):
                await future
