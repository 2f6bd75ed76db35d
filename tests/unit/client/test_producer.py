"""Sends over real sockets to brokers that accept, refuse, stay silent or are gone."""

import asyncio

import pytest

from ariane.client import Message, MessageQueue, Producer, SendStatus, by_hash
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    ConnectionLost,
    InvalidMessage,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
)
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_batch, decode_properties
from tests.unit.client.fake import FakeCluster, client_of, refusing, running, silent

SEND = RequestCode.SEND_MESSAGE_V2


def sends(cluster: FakeCluster) -> dict[str, int]:
    return {name: len(broker.of(SEND)) for name, broker in cluster.brokers.items()}


async def test_a_message_arrives_with_everything_it_was_sent_with() -> None:
    async with running(orders=4) as cluster, client_of(cluster) as client:
        receipt = await client.send("orders", b"body", tags="A", keys=["k1"], properties={"x": "y"})
        (command,) = cluster.brokers["broker-a"].of(SEND)
        header = decode_header(SendHeaderV2, command.ext)
        properties = decode_properties(header.properties or "")
        assert (header.topic, header.group, command.body) == ("orders", "DEFAULT_PRODUCER", b"body")
        assert command.language == "PYTHON"
        assert properties == {
            "x": "y", "KEYS": "k1", "TAGS": "A", "WAIT": "true", "UNIQ_KEY": receipt.message_id,
        }  # fmt: skip
        assert receipt.status is SendStatus.OK
        assert receipt.offset_message_id == "AB" * 16
        assert (receipt.queue.queue_id, receipt.queue_offset) == (header.queue_id, 7)


async def test_queues_take_turns_over_all_brokers() -> None:
    async with running("a", "b", orders=2) as cluster, client_of(cluster) as client:
        producer = client.producer()
        receipts = [await producer.send(Message("orders", b"")) for _ in range(8)]
        assert sends(cluster) == {"a": 4, "b": 4}
        assert len({receipt.queue for receipt in receipts}) == 4


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.GO_AWAY,
    ],
)
async def test_what_one_broker_refuses_another_may_take(code: ResponseCode) -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[SEND] = refusing(code)
        producer = client.producer()
        for _ in range(4):
            assert (await producer.send(Message("orders", b""))).queue.broker_name == "b"
        assert sends(cluster)["a"] == 1  # once was enough to leave it alone


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER])
async def test_what_no_broker_would_take_is_not_tried_again(code: ResponseCode) -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        for broker in cluster.brokers.values():
            broker.answers[SEND] = refusing(code)
        with pytest.raises(RequestFailed, match="not now") as failure:
            await client.send("orders", b"")
        assert failure.value.code == code
        assert sum(sends(cluster).values()) == 1


async def test_a_single_broker_is_tried_three_times_and_the_error_says_so() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[SEND] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestFailed, match=r"'orders' failed after 3 attempts \(a\).*not now"):
            await client.send("orders", b"")
        queues = [command.ext["e"] for command in cluster.brokers["a"].of(SEND)]
        assert len(set(queues)) == 3


async def test_a_broker_that_is_gone_is_passed_over() -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        await cluster.brokers["a"].stop()
        producer = client.producer()
        for _ in range(6):
            assert (await producer.send(Message("orders", b""))).queue.broker_name == "b"


async def test_when_nobody_listens_the_error_asks_whether_the_broker_runs() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        await cluster.brokers["a"].stop()
        with pytest.raises(ConnectionLost, match=r"after 3 attempts.*is the broker running"):
            await client.send("orders", b"")


async def test_a_silent_broker_costs_the_whole_time_and_no_more() -> None:
    clock = ManualClock()
    async with running("a", orders=4) as cluster, client_of(cluster, clock) as client:
        cluster.brokers["a"].answers[SEND] = silent
        send = asyncio.create_task(client.send("orders", b"", timeout=3.0))
        await cluster.brokers["a"].received(SEND)
        clock.advance(3.1)
        with pytest.raises(RequestTimeout, match="may have been stored"):
            await send
        assert len(cluster.brokers["a"].of(SEND)) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_the_receipt_says_how_safe_a_stored_message_is(
    code: ResponseCode, status: SendStatus
) -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        stored = cluster.brokers["a"].answers[SEND]

        def late(command):  # type: ignore[no-untyped-def]
            answer = stored(command)
            answer.code = int(code)
            return answer

        cluster.brokers["a"].answers[SEND] = late
        assert (await client.send("orders", b"")).status is status


async def test_a_selector_decides_and_retries_keep_to_its_choice() -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        producer = client.producer()
        chosen = by_hash("user-1")(await producer.queues("orders"))
        for _ in range(3):
            receipt = await producer.send(Message("orders", b""), selector=by_hash("user-1"))
            assert receipt.queue == chosen
        cluster.brokers[chosen.broker_name].answers[SEND] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestFailed):
            await producer.send("orders", b"", sharding_key="user-1")
        assert sends(cluster)[chosen.broker_name] == 6
        assert sum(sends(cluster).values()) == 6


async def test_a_queue_can_be_named() -> None:
    queue = MessageQueue(topic="orders", broker_name="b", queue_id=3)
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        assert (await client.producer().send(Message("orders", b""), queue=queue)).queue == queue


async def test_the_first_message_of_a_topic_goes_where_it_will_be_created() -> None:
    async with running("a", TBW102=8) as cluster, client_of(cluster) as client:
        await client.send("new", b"")
        header = decode_header(SendHeaderV2, cluster.brokers["a"].of(SEND)[0].ext)
        assert (header.topic, header.default_topic, header.default_queue_count) == (
            "new",
            "TBW102",
            4,
        )
        assert header.queue_id < 4


async def test_without_automatic_creation_an_unknown_topic_is_an_error() -> None:
    async with running("a") as cluster, client_of(cluster) as client:
        with pytest.raises(RouteNotFound, match="ariane topic create new"):
            await client.send("new", b"")


async def test_one_way_asks_for_no_answer() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        await client.producer().send_one_way(Message("orders", b"x"))
        (command,) = await cluster.brokers["a"].received(SEND)
        assert command.is_one_way


async def test_a_batch_is_one_request_with_an_id_for_each_message() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        messages = [Message("orders", b"%d" % number, tags="A") for number in range(3)]
        receipts = await client.send_batch(messages)
        (command,) = cluster.brokers["a"].of(RequestCode.SEND_BATCH_MESSAGE)
        entries = decode_batch(command.body)
        assert [entry.body for entry in entries] == [b"0", b"1", b"2"]
        keys = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries]
        assert [receipt.message_id for receipt in receipts] == keys
        assert [receipt.queue_offset for receipt in receipts] == [7, 8, 9]
        assert command.ext["m"] == "true"


BAD_BATCHES = {
    "none": ([], "none"),
    "two topics": ([Message("a", b""), Message("b", b"")], "one topic"),
    "too long": ([Message("a", bytes(3 << 20))] * 2, "smaller batches"),
}


@pytest.mark.parametrize(("messages", "reason"), BAD_BATCHES.values(), ids=BAD_BATCHES)
async def test_batches_that_cannot_be(messages: list[Message], reason: str) -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        with pytest.raises(InvalidMessage, match=reason):
            await client.producer().send_batch(messages)


async def test_properties_beyond_what_a_record_holds_are_refused() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        with pytest.raises(InvalidMessage, match="32,767"):
            await client.send("orders", b"", properties={"a": "ä" * 20_000})


async def test_long_bodies_travel_compressed() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        await client.send("orders", b"x" * 100_000)
        (command,) = cluster.brokers["a"].of(SEND)
        assert len(command.body) < 1_000
        assert command.ext["f"] == str(0x301)


async def test_many_sends_at_once_keep_their_answers_apart() -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        producer: Producer = client.producer()
        receipts = await asyncio.gather(
            *(producer.send(Message("orders", b"%d" % number)) for number in range(500))
        )
        assert len({receipt.message_id for receipt in receipts}) == 500
