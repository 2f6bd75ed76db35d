"""Traces: RocketMQ's own lines, gathered in the background, never in the way."""

import asyncio
from random import Random

import pytest

from ariane import Retry, RetryLater, Start
from ariane.client import Client, Message, ReceivedMessage, StoredMessage
from ariane.client.trace import (
    BODY_CHARACTERS_MAX,
    KEYS_BYTES_MAX,
    LINES_MAX,
    MessageKind,
    TraceLine,
    bodies_of,
    consumed_line,
    consuming_line,
    ended_line,
    sent_line,
)
from ariane.clock import ManualClock
from ariane.codes import RequestCode
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2, SendReply
from ariane.protocol.message import decode_properties, encode_offset_id
from ariane.testing import EmbeddedBroker
from tests.unit.client.fake import Answer, FakeCluster, running

SEND = RequestCode.SEND_MESSAGE_V2
TOPIC = "RMQ_SYS_TRACE_TOPIC"
OFFSET_ID = encode_offset_id(("127.0.0.1", 10911), 4096)


def words(text: str) -> list[list[str]]:
    assert text.endswith("\x02")
    return [line.split("\x01") for line in text[:-1].split("\x02")]


def test_lines_are_rocketmqs() -> None:
    sent = sent_line(
        at_ms=1, region="R", group="g", topic="t", message_id="ID", tags="A", keys=["k1", "k2"],
        store_host="h:1", body_bytes=3, cost_ms=4, kind=MessageKind.DELAYED,
        offset_message_id="OFF", is_success=True,
    )  # fmt: skip
    assert words(sent.encode()) == [
        ["Pub", "1", "R", "g", "t", "ID", "A", "k1 k2", "h:1", "3", "4", "3", "OFF", "true"]
    ]
    assert sent.keys == ("ID", "k1", "k2")
    ended = ended_line(
        at_ms=1, region="R", group="g", topic="t", message_id="ID", tags="", keys=[],
        store_host="h:1", transaction_id="TX", state="COMMIT_MESSAGE", answers_check=False,
    )  # fmt: skip
    assert words(ended.encode()) == [
        [
            "EndTransaction", "1", "R", "g", "t", "ID", "", "", "h:1", "2", "TX", "COMMIT_MESSAGE",
            "false",
        ]
    ]  # fmt: skip
    before = consuming_line(
        at_ms=1, region="R", group="g", request_id="Q", message_id="ID", reconsume_times=2, keys="k"
    )
    assert words(before.encode()) == [["SubBefore", "1", "R", "g", "Q", "ID", "2", "k"]]
    after = consumed_line(
        at_ms=1, group="g", request_id="Q", message_id="ID", cost_ms=5, is_success=False, keys="k",
        outcome=4,
    )  # fmt: skip
    assert words(after.encode()) == [["SubAfter", "Q", "ID", "5", "false", "k", "4", "1", "g"]]


def test_bodies_are_cut_where_they_get_long() -> None:
    long = TraceLine("Pub", ("x" * 50_000,), ("a",))
    assert [len(body) < BODY_CHARACTERS_MAX for body, _ in bodies_of([long] * 5)] == [True] * 3
    many_keys = [TraceLine("Pub", (), (f"{number:01000d}",)) for number in range(50)]
    keys = [keys for _, keys in bodies_of(many_keys)]
    assert sum(map(len, keys)) == 50
    assert all(sum(map(len, some)) < KEYS_BYTES_MAX for some in keys)
    absurd = TraceLine("Pub", (), ("ID", "ä" * KEYS_BYTES_MAX))
    assert list(bodies_of([absurd])) == [("Pub\x02", ["ID"])]


async def tracing(cluster: FakeCluster, clock: ManualClock, **options: float) -> Client:
    client = Client(
        cluster.name_server.address,
        clock=clock,
        random=Random(1),
        trace=True,
        **options,  # type: ignore[arg-type]
    )
    clock.timers.append(client.session.timers)
    cluster.brokers["a"].answers[SEND] = answered()
    return client


def answered(**more: str) -> Answer:
    def answer(command: Command) -> Command:
        queue_id = decode_header(SendHeaderV2, command.ext).queue_id
        stored = SendReply(
            queue_id=queue_id, message_id=OFFSET_ID, queue_offset=7, region="R", **more
        )
        return reply(command, header=stored)

    return answer


def traces(cluster: FakeCluster) -> list[Command]:
    return [one for one in cluster.brokers["a"].of(SEND) if one.ext["b"] == TOPIC]


async def test_sends_are_told_together_half_a_second_later() -> None:
    clock = ManualClock()
    async with running("a", orders=1, **{TOPIC: 1}) as cluster:
        async with await tracing(cluster, clock) as client:
            first = await client.send("orders", b"12345", tags="A", keys=["k"])
            second = await client.send("orders", b"x", delay_level=2)
            client.checked_elsewhere("DEFAULT_PRODUCER")
            async with client.transaction("orders", b"x") as transaction:
                pass
            assert traces(cluster) == []
            clock.advance(0.5)
            await cluster.brokers["a"].received(SEND, 4)
        (command,) = traces(cluster)
        at = str(clock.wall_ms() - 500)
        address = cluster.brokers["a"].address
        group = "DEFAULT_PRODUCER"
        lines = words(command.body.decode())
        assert lines[0] == [
            "Pub", at, "R", group, "orders", first.message_id, "A", "k", address, "5", "0", "0",
            OFFSET_ID, "true",
        ]  # fmt: skip
        assert [line[11] for line in lines[:3]] == ["0", "3", "1"]
        assert lines[3][0] == "EndTransaction"
        assert lines[3][11] == "COMMIT_MESSAGE"
        keys = decode_properties(command.ext["i"])["KEYS"].split()
        ids = [first.message_id, "k", second.message_id, transaction.message_id]
        assert keys == ids
        assert command.ext["a"] == "_INNER_TRACE_PRODUCER"


async def test_closing_tells_what_was_not_told_yet() -> None:
    clock = ManualClock()
    async with running("a", orders=1, **{TOPIC: 1}) as cluster:
        async with await tracing(cluster, clock) as client:
            await client.send("orders", b"x")
        assert len(traces(cluster)) == 1


async def test_batches_are_told_message_by_message() -> None:
    clock = ManualClock()
    async with running("a", orders=1, **{TOPIC: 1}) as cluster:
        broker = cluster.brokers["a"]

        def two(command: Command) -> Command:
            ids = f"{OFFSET_ID},{OFFSET_ID}"
            stored = SendReply(queue_id=0, message_id=ids, queue_offset=7, region="R")
            return reply(command, header=stored)

        broker.answers[RequestCode.SEND_BATCH_MESSAGE] = two
        async with await tracing(cluster, clock, linger=0) as client:
            sends = [await client.submit("orders", b"x") for _ in range(2)]
            clock.advance(0)
            receipts = await asyncio.gather(*sends)
            receipts += await client.send_batch([Message("orders", b"x")] * 2)
        (command,) = traces(cluster)
        told = [line[5] for line in words(command.body.decode())]
        assert told == [receipt.message_id for receipt in receipts]


async def test_a_broker_that_wants_no_traces_gets_none() -> None:
    clock = ManualClock()
    async with running("a", orders=1, **{TOPIC: 1}) as cluster:
        async with await tracing(cluster, clock) as client:
            cluster.brokers["a"].answers[SEND] = answered(trace_on="false")
            await client.send("orders", b"x")
        assert traces(cluster) == []


async def test_traces_that_cannot_be_told_are_dropped_and_harm_nobody() -> None:
    clock = ManualClock()
    async with (
        running("a", orders=1) as cluster,  # there is no trace topic
        await tracing(cluster, clock) as client,
    ):
        await client.send("orders", b"x")
        tracer = client._own_tracer()
        await tracer.flush()
        assert tracer.dropped_count == 1
        line = TraceLine("Pub", (), ())
        for _ in range(LINES_MAX + 5):
            tracer.add(line)
        assert tracer.dropped_count == 6


@pytest.mark.parametrize("is_async", [True, False])
async def test_calls_of_handlers_are_told_of(is_async: bool) -> None:
    with EmbeddedBroker(traceTopicEnable=True) as broker:
        done = asyncio.Event()
        tries: list[int] = []

        def note(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            if message.reconsume_times == 0:
                raise RetryLater(1)
            if message.reconsume_times == 1:
                raise ValueError("not now")
            loop.call_soon_threadsafe(done.set)

        async def note_and_wait(message: ReceivedMessage) -> None:
            note(message)

        loop = asyncio.get_running_loop()
        async with Client(broker.name_server, trace=True) as client:
            receipt = await client.send("orders", b"x", keys="k1 k2")
            handler = note_and_wait if is_async else note
            retry = Retry(delays=(1,))
            consumer = client.push_consumer("billing", handler, start=Start.FIRST, retry=retry)
            consumer.subscribe("orders")
            async with consumer:
                while not done.is_set():
                    broker.advance(1)
                    await asyncio.sleep(0.01)
        lines = [line for trace in broker.published(TOPIC) for line in words(trace.body.decode())]
        consumed = [line for line in lines if line[0].startswith("Sub")]
        befores = [line for line in consumed if line[0] == "SubBefore"]
        afters = [line for line in consumed if line[0] == "SubAfter"]
        assert lines[0][0] == "Pub"
        assert [line[3:4] + line[5:8] for line in befores] == [
            ["billing", receipt.message_id, times, "k1 k2"] for times in "012"
        ]
        assert [line[1] for line in afters] == [line[4] for line in befores]  # they are joined
        assert [(line[4], line[6]) for line in afters] == [
            ("false", "4"), ("false", "2"), ("true", "0"),
        ]  # fmt: skip
        assert tries == [0, 1, 2]
        for key in (receipt.message_id, "k1"):  # as tools look for it
            found = await found_by_key(broker, key)
            assert found


async def found_by_key(broker: EmbeddedBroker, key: str) -> list[StoredMessage]:
    async with Client(broker.name_server) as client:
        return await client.admin.find(TOPIC, key)


async def test_a_message_whose_broker_wants_no_traces_is_consumed_in_silence() -> None:
    with EmbeddedBroker(traceTopicEnable=True, traceOn=False) as broker:
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            done.set()

        async with Client(broker.name_server, trace=True) as client:
            await client.send("orders", b"x")
            consumer = client.push_consumer("billing", handler=handle, start=Start.FIRST)
            consumer.subscribe("orders")
            async with consumer:
                await done.wait()
        assert broker.published(TOPIC) == []
