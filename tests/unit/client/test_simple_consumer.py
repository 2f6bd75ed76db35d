"""Being lent messages: handles, acknowledgements, more time, and waiting at several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ariane.client import Client
from ariane.client.popping import Handle, batch_acks, give_handles
from ariane.client.received import ReceivedMessage
from ariane.client.records import decode
from ariane.client.retrying import Retry
from ariane.client.simple_consumer import SimpleConsumer
from ariane.client.starting import Start
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ProtocolError
from ariane.protocol.bodies.pop import decode_batch_ack
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleHeader,
    ChangeInvisibleReply,
    NotificationReply,
    PopHeader,
    PopReply,
)
from tests.unit.client.fake import client_of, refusing, running, silent
from tests.unit.client.group_broker import settle, stored_record

POP = RequestCode.POP_MESSAGE
ACK = RequestCode.ACK_MESSAGE
BATCH = RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
NOTIFY = RequestCode.NOTIFICATION
BACK = RequestCode.CONSUMER_SEND_MSG_BACK


def records(*offsets: int, queue_id: int = 0, topic: str = "orders", **properties: str) -> bytes:
    return b"".join(
        stored_record((topic, queue_id), offset, b"%d" % offset, 0, properties)
        for offset in offsets
    )


def lent(
    body: bytes, starts: str | None, offsets: str | None, counts: str | None = None
) -> Callable[[Command], Command]:
    header = PopReply(
        popped_ms=1000,
        invisible_ms=60_000,
        revive_queue_id=3,
        rest_count=0,
        start_offsets=starts,
        message_offsets=offsets,
        order_counts=counts,
    )
    return lambda command: reply(command, header=header, body=body)


# The body, what the answer says of it, and the handles: offset -> handle.
HANDLES = {
    "one queue": (
        records(5, 6),
        ("0 0 5", "0 0 5,6", None),
        {5: "5 1000 60000 3 0 a 0 5", 6: "5 1000 60000 3 0 a 0 6"},
    ),
    "out of order in the body": (
        records(6) + records(5),
        ("0 0 5", "0 0 5,6", None),
        {5: "5 1000 60000 3 0 a 0 5", 6: "5 1000 60000 3 0 a 0 6"},
    ),
    "two queues": (
        records(5) + records(9, queue_id=1),
        ("0 0 5;0 1 8", "0 0 5;0 1 9", None),
        {5: "5 1000 60000 3 0 a 0 5", 9: "8 1000 60000 3 0 a 1 9"},
    ),
    "a message that brings its own": (
        records(5) + records(2, POP_CK="2 900 60000 3 1 a 0 2"),
        ("0 0 5;1 0 2", "0 0 5;1 0 2", None),
        {5: "5 1000 60000 3 0 a 0 5", 2: "2 900 60000 3 1 a 0 2"},
    ),
    "a retry topic that kept its name": (
        records(2, topic="%RETRY%g_orders") + records(7, topic="%RETRY%g+orders"),
        ("1 0 2;2 0 7", "1 0 2;2 0 7", None),
        {2: "2 1000 60000 3 1 a 0 2", 7: "7 1000 60000 3 2 a 0 7"},
    ),
    "nothing said": (
        records(5, 7),
        (None, None, None),
        {5: "5 1000 60000 3 0 a 0 5", 7: "5 1000 60000 3 0 a 0 7"},
    ),
}


@pytest.mark.parametrize(("body", "info", "expected"), HANDLES.values(), ids=HANDLES)
def test_handles_are_worked_out(
    body: bytes, info: tuple[str | None, ...], expected: dict[int, str]
) -> None:
    messages = decode(body, ReceivedMessage)
    starts, offsets, counts = info
    answer = PopReply(
        popped_ms=1000,
        invisible_ms=60_000,
        revive_queue_id=3,
        start_offsets=starts,
        message_offsets=offsets,
        order_counts=counts,
    )
    give_handles(messages, answer, topic="orders", broker_name="a")
    assert {message.queue_offset: message.handle for message in messages} == expected


def test_tries_of_ordered_messages_are_told_by_the_answer() -> None:
    messages = decode(records(5, 6), ReceivedMessage)
    answer = PopReply(
        start_offsets="0 0 5", message_offsets="0 0 5,6", order_counts="0 0 1;0 qo0%6 4"
    )
    give_handles(messages, answer, topic="orders", broker_name="a")
    assert [message.reconsume_times for message in messages] == [1, 4]


BAD = {
    "two words": ("0 0", "0 0 5"),
    "too few": ("0 0 5", "0 0 5"),
}


@pytest.mark.parametrize(("starts", "offsets"), BAD.values(), ids=BAD)
def test_an_answer_that_does_not_fit_is_an_error(starts: str, offsets: str) -> None:
    messages = decode(records(5, 6), ReceivedMessage)
    answer = PopReply(start_offsets=starts, message_offsets=offsets)
    with pytest.raises(ProtocolError):
        give_handles(messages, answer, topic="orders", broker_name="a")


def test_a_handle_is_eight_words() -> None:
    text = "5 1000 60000 3 1 broker-a 2 6"
    assert str(Handle.of(text)) == text
    assert Handle.of(text).stored_topic("orders", "g") == "%RETRY%g_orders"
    with pytest.raises(ProtocolError, match="not the handle"):
        Handle.of("5 1000")


def test_acknowledgements_of_one_checkpoint_go_together() -> None:
    acks = batch_acks(
        [
            ("orders", "5 1000 60000 3 0 a 0 5"),
            ("orders", "5 1000 60000 3 0 a 0 14"),
            ("orders", "5 2000 60000 3 0 a 0 6"),
            ("orders", "1 1000 60000 3 1 b 0 2"),
        ],
        "g",
    )
    (first, second), (third,) = acks["orders", "a"], acks["orders", "b"]
    assert (first.first, first.distances(), first.popped_ms) == (5, [0, 9], 1000)
    assert (second.distances(), second.popped_ms) == ([1], 2000)
    assert (third.mark, third.distances(), third.topic, third.group) == ("1", [1], "orders", "g")


def consumer_of(client: Client, **choices: Any) -> SimpleConsumer:
    consumer = client.simple_consumer("g", **choices)
    consumer.subscribe("orders")
    return consumer


async def test_messages_are_asked_for_and_acknowledged_one_by_one() -> None:
    clock = ManualClock()
    async with running("a", orders=2) as cluster, client_of(cluster, clock) as client:
        broker = cluster.brokers["a"]
        consumer = client.simple_consumer("g", start=Start.FIRST)
        consumer.subscribe("orders", tags="x || y")
        broker.answers[POP] = lent(records(5, 6, TAGS="x"), "0 0 5", "0 0 5,6")
        first, _ = await consumer.receive(8, invisible=30, wait=2)
        assert decode_header(PopHeader, broker.of(POP)[0].ext) == PopHeader(
            group="g",
            topic="orders",
            queue_id=-1,
            count_max=8,
            invisible_ms=30_000,
            poll_ms=2000,
            born_ms=0,
            init_mode=0,
            expression_type="TAG",
            expression="x || y",
            is_ordered=False,
        )
        assert (first.body, first.queue.queue_id, first.queue.broker_name) == (b"5", 0, "a")
        await first.ack()
        await first.ack()
        (command,) = broker.of(ACK)
        assert decode_header(AckHeader, command.ext) == AckHeader(
            group="g",
            topic="orders",
            queue_id=0,
            extra_info="5 1000 60000 3 0 a 0 5",
            queue_offset=5,
        )


async def test_many_are_acknowledged_together() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        broker.answers[POP] = lent(records(5, 6, 7), "0 0 5", "0 0 5,6,7")
        consumer = consumer_of(client)
        messages = await consumer.receive()
        await messages[1].ack()
        await consumer.ack(messages)
        (command,) = broker.of(BATCH)
        body = decode_batch_ack(command.body)
        assert body.broker_name == "a"
        assert [ack.distances() for ack in body.acks] == [[0, 2]]
        assert all(message.is_settled for message in messages)


async def test_a_message_that_was_retried_is_acknowledged_where_it_lies() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        body = records(2, POP_CK="2 900 60000 3 1 a 0 2")
        broker.answers[POP] = lent(body, "1 0 2", "1 0 2")
        (message,) = await consumer_of(client).receive()
        assert message.topic == "orders"
        await message.ack()
        assert broker.of(ACK)[0].ext["topic"] == "%RETRY%g_orders"


async def test_more_time_makes_a_new_handle_and_that_one_counts() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        broker.answers[POP] = lent(records(5, 6), "0 0 5", "0 0 5,6")
        broker.answers[CHANGE] = lambda command: reply(
            command,
            header=ChangeInvisibleReply(popped_ms=5000, invisible_ms=90_000, revive_queue_id=4),
        )
        _, message = await consumer_of(client).receive()
        await message.extend()
        await message.extend(90)
        asked = [decode_header(ChangeInvisibleHeader, c.ext) for c in broker.of(CHANGE)]
        assert [header.invisible_ms for header in asked] == [60_000, 90_000]
        assert [header.extra_info for header in asked] == [
            "5 1000 60000 3 0 a 0 6",
            "6 5000 90000 4 0 a 0 6",
        ]
        assert not message.is_settled
        await message.ack()
        assert broker.of(ACK)[0].ext["extraInfo"] == "6 5000 90000 4 0 a 0 6"


GIVEN_BACK = {
    "as told": (Retry(), 0, 7, 7_000),
    "after the first try": (Retry(), 0, None, 10_000),
    "after the fifth": (Retry(), 4, None, 180_000),
    "after many": (Retry(max=99), 50, None, 7_200_000),
    "by policy": (Retry(delays=(1, 2)), 1, None, 2_000),
}


@pytest.mark.parametrize(("retry", "tries", "delay_s", "ms"), GIVEN_BACK.values(), ids=GIVEN_BACK)
async def test_what_is_given_back_is_seen_again_after_a_while(
    retry: Retry, tries: int, delay_s: float | None, ms: int
) -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        body = stored_record(("orders", 0), 5, b"x", tries, {})
        broker.answers[POP] = lent(body, "0 0 5", "0 0 5")
        (message,) = await consumer_of(client, retry=retry).receive()
        await message.nack(delay_s)
        assert broker.of(CHANGE)[0].ext["invisibleTime"] == str(ms)
        assert message.is_settled
        await message.ack()
        assert not broker.of(ACK)


async def test_what_was_tried_too_often_is_a_dead_letter() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        body = stored_record(("orders", 0), 5, b"x", 3, {})
        broker.answers[POP] = lent(body, "0 0 5", "0 0 5")
        (message,) = await consumer_of(client, retry=Retry(max=3)).receive()
        await message.nack()
        (command,) = broker.of(BACK)
        assert (command.ext["delayLevel"], command.ext["offset"]) == ("-1", "1005")
        assert len(broker.of(ACK)) == 1
        broker.answers[BACK] = refusing(ResponseCode.SYSTEM_ERROR)
        (message,) = await consumer_of(client, retry=Retry(max=3)).receive()
        with pytest.raises(ClientError):
            await message.nack()
        assert len(broker.of(ACK)) == 1  # not lost: it is lent again


async def test_tags_that_share_a_hash_are_not_kept() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        body = records(5, TAGS="BB") + records(6, TAGS="Aa")
        broker.answers[POP] = lent(body, "0 0 5", "0 0 5,6")
        consumer = client.simple_consumer("g")
        consumer.subscribe("orders", tags="Aa")
        assert [message.body for message in await consumer.receive()] == [b"6"]
        assert broker.of(ACK)[0].ext["offset"] == "5"


NOTHING = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND)


@pytest.mark.parametrize("code", NOTHING)
async def test_nothing_came(code: ResponseCode) -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[POP] = refusing(code)
        assert await consumer_of(client).receive(wait=0) == []


async def test_a_broker_with_nothing_is_asked_again_but_not_at_once() -> None:
    clock = ManualClock()
    async with running("a", orders=2) as cluster, client_of(cluster, clock) as client:
        broker = cluster.brokers["a"]
        broker.answers[POP] = refusing(ResponseCode.POLLING_FULL)
        received = asyncio.create_task(consumer_of(client).receive(wait=1))
        await broker.received(POP)
        await settle()
        assert len(broker.of(POP)) == 1
        clock.advance(0.2)
        await broker.received(POP, 2)
        await settle()
        clock.advance(1)
        assert await received == []


async def test_of_several_brokers_the_one_that_has_something_is_asked() -> None:
    clock = ManualClock()
    async with running("a", "b", orders=2) as cluster, client_of(cluster, clock) as client:
        for broker in cluster.brokers.values():
            broker.answers[POP] = refusing(ResponseCode.POLLING_TIMEOUT)
            broker.answers[NOTIFY] = silent
        consumer = consumer_of(client)
        received = asyncio.create_task(consumer.receive(wait=10))
        await cluster.brokers["a"].received(NOTIFY)
        (waiting,) = await cluster.brokers["b"].received(NOTIFY)
        assert waiting.ext["pollTime"] == "10000"
        body = records(5)
        cluster.brokers["b"].answers[POP] = lent(body, "0 0 5", "0 0 5")
        cluster.brokers["b"].connections[-1].send(
            reply(waiting, header=NotificationReply(has_message=True))
        )
        (message,) = await received
        assert message.queue.broker_name == "b"


async def test_waiting_at_several_brokers_ends() -> None:
    clock = ManualClock()
    async with running("a", "b", orders=2) as cluster, client_of(cluster, clock) as client:
        for broker in cluster.brokers.values():
            broker.answers[POP] = refusing(ResponseCode.POLLING_TIMEOUT)
            broker.answers[NOTIFY] = silent
        received = asyncio.create_task(consumer_of(client).receive(wait=10))
        await cluster.brokers["a"].received(NOTIFY)
        await cluster.brokers["b"].received(NOTIFY)
        clock.advance(20)
        await settle()
        clock.advance(1)
        assert await received == []


async def test_one_broker_that_fails_is_left_out() -> None:
    async with running("a", "b", orders=2) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[POP] = refusing(ResponseCode.SYSTEM_ERROR)
        cluster.brokers["b"].answers[POP] = lent(records(5), "0 0 5", "0 0 5")
        consumer = consumer_of(client)
        for _ in range(3):
            assert len(await consumer.receive()) == 1
        cluster.brokers["b"].answers[POP] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(ClientError):
            await consumer.receive()


async def test_an_ordered_pop_whose_answer_was_lost_is_the_same_attempt() -> None:
    clock = ManualClock()
    async with running("a", orders=2) as cluster, client_of(cluster, clock) as client:
        broker = cluster.brokers["a"]
        consumer = consumer_of(client, orderly=True)
        broker.answers[POP] = silent
        lost = asyncio.create_task(consumer.receive(wait=1))
        await broker.received(POP)
        clock.advance(12)
        with pytest.raises(ClientError):
            await lost
        broker.answers[POP] = lent(records(5), "0 0 5", "0 0 5")
        await consumer.receive()
        await consumer.receive()
        attempts = [command.ext["attemptId"] for command in broker.of(POP)]
        assert attempts[0] == attempts[1] != attempts[2]
        assert {command.ext["order"] for command in broker.of(POP)} == {"true"}


async def test_what_cannot_be_asked_for() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        consumer = client.simple_consumer("g")
        with pytest.raises(ClientError, match="no topic"):
            await consumer.receive()
        consumer.subscribe("orders")
        with pytest.raises(ClientError, match="1 to 32"):
            await consumer.receive(33)
        with pytest.raises(ClientError, match="for some time"):
            await consumer.receive(invisible=0)
        with pytest.raises(ClientError, match="topic name"):
            consumer.subscribe("a b")


async def test_it_is_a_member_while_it_is_open() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        broker.answers[POP] = refusing(ResponseCode.POLLING_TIMEOUT)
        async with consumer_of(client) as consumer:
            await consumer.receive(wait=0)
            (command,) = await broker.received(RequestCode.HEART_BEAT)
            assert b'"CONSUME_POP"' in command.body
        (goodbye,) = broker.of(RequestCode.UNREGISTER_CLIENT)
        assert goodbye.ext["consumerGroup"] == "g"
