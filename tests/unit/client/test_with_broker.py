"""Sending with a real broker behind it, asyncio and blocking: what consumers see in the end."""

import asyncio
from datetime import timedelta

import pytest

import ariane
from ariane import Message, TransactionState
from ariane.client import ReceivedMessage, StoredMessage
from ariane.errors import (
    AccessDenied,
    InvalidMessage,
    MessageRefused,
    RequestFailed,
    RequestTimeout,
)
from ariane.sync import Client
from ariane.testing import EmbeddedBroker


def bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return [message.body for message in broker.published(topic)]


async def test_transactions_end_as_their_blocks_do(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        client.checked_elsewhere("shop")
        async with client.transaction("orders", b"kept", group="shop", keys="1") as transaction:
            assert bodies(ariane_broker, "orders") == []
        with pytest.raises(KeyError):
            async with client.transaction("orders", b"raised", group="shop"):
                raise KeyError
        async with client.transaction("orders", b"taken back", group="shop") as other:
            other.rollback()
    (message,) = ariane_broker.published("orders")
    assert (message.body, message.message_id) == (b"kept", transaction.message_id)


@pytest.mark.ariane(enableTopicMessageTypeCheck=True)
def test_a_topic_of_one_type_takes_only_that(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        client.admin.create_topic("reminders", message_type="DELAY")
        client.admin.create_topic("reminders", write_queue_count=4)  # which leaves the type alone
        with pytest.raises(MessageRefused, match="takes DELAY messages only"):
            client.send("reminders", b"plain")
        client.send("reminders", b"later", delay_level=1)
        client.admin.create_topic("reminders", message_type="MIXED")
        client.send("reminders", b"plain")
        found = client.admin.find_by_id("reminders", client.send("reminders", b"x").message_id)
        assert client.admin.track(found[0]) == []


def test_transactions_of_code_that_blocks(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server, group="shop") as client:
        client.checked_elsewhere("shop")
        with client.transaction("orders", b"kept"):
            pass
        with pytest.raises(KeyError), client.transaction("orders", b"raised"):
            raise KeyError
        with client.transaction("orders", b"taken back") as transaction:
            transaction.rollback()
    assert bodies(ariane_broker, "orders") == [b"kept"]


def test_a_checker_decides_what_was_left_open(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:

        @client.checker("shop")
        def became_of(message: StoredMessage) -> bool:
            return message.body == b"kept"

        for body in (b"kept", b"dropped"):
            with client.transaction("orders", body, group="shop") as transaction:
                transaction.unknown()
        assert transaction.state is TransactionState.UNKNOWN
        ariane_broker.advance(60)
        ariane_broker.wait_for("orders", 1)
    assert bodies(ariane_broker, "orders") == [b"kept"]


def test_delays_and_recalls() -> None:
    with (
        EmbeddedBroker(recallMessageEnable=True) as broker,
        Client(broker.name_server) as client,
    ):
        client.send("reminders", b"level", delay_level=2)  # 5 s
        client.send("reminders", b"seconds", delay=20)
        at = broker.now + timedelta(seconds=40)
        client.send("reminders", b"moment", deliver_at=at)
        recalled = client.send("reminders", b"never", delay=timedelta(seconds=30))
        assert client.recall(recalled) == recalled.message_id
        for count, waited_s in enumerate((6, 15, 20), 1):
            broker.advance(waited_s)
            broker.wait_for("reminders", count)
        assert bodies(broker, "reminders") == [b"level", b"seconds", b"moment"]
        with pytest.raises(MessageRefused):
            client.send("reminders", b"too far", delay=timedelta(days=400))
        plain = client.send("reminders", b"now")
        with pytest.raises(InvalidMessage, match="no recall handle"):
            client.recall(plain)
        with pytest.raises(InvalidMessage, match="not a recall handle"):
            client.recall("nonsense")


def test_recalls_that_are_switched_off_say_so(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        receipt = client.send("reminders", b"...", delay=30)
        with pytest.raises(AccessDenied, match="switched on"):
            client.recall(receipt)


async def test_requests_are_replied_to(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("rpc", b"so that there is a topic")

        async def answer(message: ReceivedMessage) -> None:
            if message.body == b"6 * 7":
                await client.reply(message, b"42")

        # From the first message on: the request may be there before the consumer has its queues.
        consumer = client.push_consumer("servers", answer, start=ariane.Start.FIRST)
        consumer.subscribe("rpc")
        async with consumer:
            reply = await client.request("rpc", b"6 * 7", timeout=10)
            assert reply.body == b"42"
            with pytest.raises(RequestTimeout, match="no reply"):
                await client.request("rpc", b"something else", timeout=0.2)


def test_every_way_to_send(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server, compression="lz4", compress_from_bytes=100) as client:
        client.send("orders", "text", tags="A", keys="k1 k2", properties={"a": "b"})
        client.send(Message("orders", b"message", sharding_key="user-1"))
        client.send("orders", b"long" * 100)
        client.submit("orders", b"submitted").result(10)
        client.send_one_way("orders", b"one way")
        ariane_broker.wait_for("orders", 5)
        receipts = client.send_batch([Message("orders", b"%d" % number) for number in range(3)])
        assert len({receipt.queue for receipt in receipts}) == 1
    messages = ariane_broker.published("orders")
    assert [message.body for message in messages] == [
        b"text", b"message", b"long" * 100, b"submitted", b"one way", b"0", b"1", b"2",
    ]  # fmt: skip
    first = messages[0]
    assert (first.tags, first.keys, first.properties["a"]) == ("A", ["k1", "k2"], "b")
    assert [message.message_id for message in messages[-3:]] == [
        receipt.message_id for receipt in receipts
    ]
    assert [message.offset_message_id for message in messages[-3:]] == [
        receipt.offset_message_id for receipt in receipts
    ]
    assert [message.queue_offset for message in messages[-3:]] == [
        receipt.queue_offset for receipt in receipts
    ]


@pytest.mark.parametrize("linger", [None, 0, 0.001])
async def test_receipts_tell_where_each_message_is(
    ariane_broker: EmbeddedBroker, linger: float | None
) -> None:
    async with ariane.Client(ariane_broker.name_server, linger=linger) as client:
        receipts = await asyncio.gather(
            *(client.send("orders", b"%d" % number) for number in range(200))
        )
    found = {message.message_id: message for message in ariane_broker.published("orders")}
    assert len(found) == 200
    for number, receipt in enumerate(receipts):
        message = found[receipt.message_id]
        assert message.body == b"%d" % number
        assert message.queue_offset == receipt.queue_offset
        assert message.offset_message_id == receipt.offset_message_id
        assert message.queue_id == receipt.queue.queue_id


def test_faults_are_retried_and_told(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"first")
        ariane_broker.fail("send", times=2, code=2)
        client.send("orders", b"after waiting")
        ariane_broker.fail("send", times=2, how="disconnect")
        client.send("orders", b"on another connection")
        ariane_broker.fail("send", times=None, code=13)
        with pytest.raises(RequestFailed, match="change the message"):
            client.send("orders", b"refused")
        ariane_broker.heal()
    assert bodies(ariane_broker, "orders") == [
        b"first", b"after waiting", b"on another connection",
    ]  # fmt: skip


def test_a_broker_that_restarts_is_found_again(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"before")
        ariane_broker.restart(kill=True)
        client.send("orders", b"after", timeout=10)
        client.submit("orders", b"and later", timeout=10).result(10)
    assert bodies(ariane_broker, "orders") == [b"before", b"after", b"and later"]
