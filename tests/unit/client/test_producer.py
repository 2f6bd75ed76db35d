"""Sends over real sockets to brokers that accept, refuse, stay silent or are gone."""

import asyncio
import contextlib
from typing import Any

import pytest

from ariane.client import Client, Message, MessageQueue, Producer, SendStatus, by_hash
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    BrokerBusy,
    ClientError,
    ConnectionLost,
    InvalidMessage,
    MessageRefused,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
)
from ariane.protocol.command import Command
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_batch, decode_properties
from tests.unit.client.fake import FakeCluster, client_of, refusing, running, settled, silent

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
        receipts = [await producer.send(Message("orders", b"x")) for _ in range(8)]
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
            assert (await producer.send(Message("orders", b"x"))).queue.broker_name == "b"
        assert sends(cluster)["a"] == 1  # once was enough to leave it alone


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER])
async def test_what_no_broker_would_take_is_not_tried_again(code: ResponseCode) -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        for broker in cluster.brokers.values():
            broker.answers[SEND] = refusing(code)
        with pytest.raises(RequestFailed, match="not now") as failure:
            await client.send("orders", b"x")
        assert failure.value.code == code
        assert sum(sends(cluster).values()) == 1


async def test_a_single_broker_is_tried_three_times_and_the_error_says_so() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[SEND] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestFailed, match=r"'orders' failed after 3 attempts \(a\).*not now"):
            await client.send("orders", b"x")
        queues = [command.ext["e"] for command in cluster.brokers["a"].of(SEND)]
        assert len(set(queues)) == 3


async def test_a_broker_that_is_gone_is_passed_over() -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        await cluster.brokers["a"].stop()
        producer = client.producer()
        for _ in range(6):
            assert (await producer.send(Message("orders", b"x"))).queue.broker_name == "b"


async def test_when_nobody_listens_the_error_asks_whether_the_broker_runs() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        await cluster.brokers["a"].stop()
        with pytest.raises(ConnectionLost, match=r"after 3 attempts.*is the broker running"):
            await client.send("orders", b"x")


async def test_a_silent_broker_costs_the_whole_time_and_no_more() -> None:
    clock = ManualClock()
    async with running("a", orders=4) as cluster, client_of(cluster, clock) as client:
        cluster.brokers["a"].answers[SEND] = silent
        send = asyncio.create_task(client.send("orders", b"x", timeout=3.0))
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
        assert (await client.send("orders", b"x")).status is status


async def test_a_selector_decides_and_retries_keep_to_its_choice() -> None:
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        producer = client.producer()
        chosen = by_hash("user-1")(await producer.queues("orders"))
        for _ in range(3):
            receipt = await producer.send(Message("orders", b"x"), selector=by_hash("user-1"))
            assert receipt.queue == chosen
        cluster.brokers[chosen.broker_name].answers[SEND] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestFailed):
            await producer.send("orders", b"x", sharding_key="user-1")
        assert sends(cluster)[chosen.broker_name] == 6
        assert sum(sends(cluster).values()) == 6


async def test_a_queue_can_be_named() -> None:
    queue = MessageQueue(topic="orders", broker_name="b", queue_id=3)
    async with running("a", "b", orders=4) as cluster, client_of(cluster) as client:
        assert (await client.producer().send(Message("orders", b"x"), queue=queue)).queue == queue


async def test_a_queue_of_another_topic_is_refused() -> None:
    queue = MessageQueue(topic="bills", broker_name="a", queue_id=0)
    async with running("a", orders=4, bills=4) as cluster, client_of(cluster) as client:
        for choice in ({"queue": queue}, {"selector": lambda queues: queue}):
            with pytest.raises(InvalidMessage, match="no queue of the message's topic 'orders'"):
                await client.send("orders", b"x", **choice)
        with pytest.raises(InvalidMessage, match="no queue of"):
            await client.send("orders", b"x", selector=lambda queues: None)  # type: ignore[arg-type,return-value]
        assert sends(cluster) == {"a": 0}


async def test_the_first_message_of_a_topic_goes_where_it_will_be_created() -> None:
    async with running("a", TBW102=8) as cluster, client_of(cluster) as client:
        await client.send("new", b"x")
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
            await client.send("new", b"x")


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


async def test_properties_beyond_what_a_record_holds_are_refused() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        with pytest.raises(InvalidMessage, match="32,767"):
            await client.send("orders", b"x", properties={"a": "ä" * 20_000})


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


async def test_a_busy_broker_is_asked_again_after_growing_waits() -> None:
    clock = ManualClock()
    async with running("a", orders=4) as cluster, client_of(cluster, clock) as client:
        broker = cluster.brokers["a"]
        stores = broker.answers[SEND]
        broker.answers[SEND] = refusing(ResponseCode.SYSTEM_BUSY)
        send = asyncio.create_task(client.send("orders", b"x"))
        for attempt, wait_s in enumerate((0.02, 0.04, 0.08), 1):
            await broker.received(SEND, attempt)
            await settled(client)
            clock.advance(wait_s / 2 - 0.001)
            assert len(broker.of(SEND)) == attempt
            clock.advance(wait_s / 2 + 0.001)
        broker.answers[SEND] = stores
        await broker.received(SEND, 4)
        assert (await send).status is SendStatus.OK


async def test_a_broker_that_stays_busy_is_the_error_when_time_is_up() -> None:
    clock = ManualClock()
    async with running("a", orders=4) as cluster, client_of(cluster, clock) as client:
        cluster.brokers["a"].answers[SEND] = refusing(ResponseCode.SYSTEM_BUSY)
        send = asyncio.create_task(client.send("orders", b"x", timeout=0.1))
        await cluster.brokers["a"].received(SEND)
        while not send.done():
            await settled(client)
            clock.advance(0.05)
            await asyncio.sleep(0)
        with pytest.raises(BrokerBusy, match="send slower") as failure:
            await send
        assert failure.value.code == ResponseCode.SYSTEM_BUSY
        with pytest.raises(BrokerBusy):  # without retries a busy broker is not waited for either
            await client.producer(retries=0).send("orders", b"x")


async def test_a_refusal_of_the_message_is_not_held_against_the_broker() -> None:
    async with running("a", "b", orders=1) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[SEND] = refusing(ResponseCode.MESSAGE_ILLEGAL)
        for _ in range(4):
            with contextlib.suppress(MessageRefused):
                await client.send("orders", b"x")
        assert sends(cluster) == {"a": 2, "b": 2}


async def test_submitted_messages_are_answered_in_time() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        futures = [await client.submit("orders", b"%d" % number) for number in range(20)]
        receipts = await asyncio.gather(*futures)
        assert len({receipt.message_id for receipt in receipts}) == 20


async def test_too_much_under_way_makes_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ariane.client.sending.SUBMITTED_BYTES_MAX", 2_000)
    monkeypatch.setattr("ariane.client.courier.UNANSWERED_BYTES_MAX", 1_000)
    clock = ManualClock()
    async with running("a", orders=1) as cluster, client_of(cluster, clock) as client:
        broker = cluster.brokers["a"]
        stores = broker.answers[SEND]
        broker.answers[SEND] = silent
        futures = [await client.submit("orders", bytes(1_000)) for _ in range(2)]
        third = asyncio.create_task(client.submit("orders", b"x"))
        await broker.received(SEND)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(broker.of(SEND)) == 1  # the second waits for the first
        assert not third.done()  # and the third is not even taken
        broker.answers[SEND] = stores
        clock.advance(3.1)
        outcomes = await asyncio.gather(*futures, await third, return_exceptions=True)
        assert isinstance(outcomes[0], RequestTimeout)
        assert not isinstance(outcomes[2], BaseException)


async def test_an_answer_that_is_lost_leads_to_a_second_send_with_the_same_id() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        stores = broker.answers[SEND]

        def dies_once(command: Command) -> None:
            broker.answers[SEND] = stores
            broker.drop_all()

        broker.answers[SEND] = dies_once
        receipt = await client.send("orders", b"x")
        ids = [decode_properties(one.ext["i"])["UNIQ_KEY"] for one in broker.of(SEND)]
        assert ids == [receipt.message_id] * 2


async def test_a_cancelled_send_leaves_nothing_behind() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        stores = broker.answers[SEND]
        broker.answers[SEND] = silent
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.send("orders", b"x")
        broker.answers[SEND] = stores
        await client.send("orders", b"x")


async def test_sends_that_others_wait_for_are_answered_before_a_client_is_gone() -> None:
    async with running("a", orders=1) as cluster:
        async with client_of(cluster) as client:
            await client.send("orders", b"x")
            late = asyncio.create_task(client.send("orders", b"late"))
            await asyncio.sleep(0)
        assert (await late).queue_offset == 7


async def test_a_client_opens_again_as_somebody_new() -> None:
    async with running("a", orders=1) as cluster:
        client = Client(cluster.name_server.address)
        async with client:
            await client.send("orders", b"x")
            first = client.session.client_id
        async with client:
            await client.send("orders", b"x")
            assert client.session.client_id != first


def test_a_client_belongs_to_one_loop() -> None:
    client = Client("127.0.0.1:9876")
    asyncio.run(client.open())

    async def send() -> None:
        await client.send("orders", b"x")

    with pytest.raises(ClientError, match="another event loop"):
        asyncio.run(send())


def test_a_client_belongs_to_one_loop_on_the_shortcut_too() -> None:
    left = asyncio.new_event_loop()
    servers = running("a", orders=1)
    cluster = left.run_until_complete(servers.__aenter__())
    client = Client(cluster.name_server.address)
    left.run_until_complete(client.open())
    for _ in range(3):  # the first opens the shortcut
        left.run_until_complete(client.send("orders", b"x"))
    with pytest.raises(ClientError, match="another event loop"):
        asyncio.run(client.send("orders", b"x"))
    left.run_until_complete(client.close())
    left.run_until_complete(servers.__aexit__(None, None, None))
    left.close()


async def test_a_producer_is_one_for_its_group_and_options() -> None:
    client = Client("127.0.0.1:9876")
    assert client.producer("p") is client.producer("p")
    assert client.producer("p", retries=9) is not client.producer("p")
    assert client.producer("p", retries=9).settings.retries == 9
    with pytest.raises(ClientError, match="retries"):
        client.producer("p", retries=-1)
    with pytest.raises(TypeError, match="tries"):
        client.producer("p", tries=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("fields", [{}, {"tags": "A"}], ids=["plain", "with tags"])
async def test_later_sends_take_a_shortcut_and_meet_the_same_fates(fields: Any) -> None:
    async with running("a", "b", orders=2) as cluster, client_of(cluster) as client:
        courier = client.producer().courier
        for _ in range(8):  # until every broker is connected to
            await client.send("orders", b"x", **fields)
        assert courier._hot.knows("orders")
        assert len({(await client.send("orders", b"x", **fields)).queue for _ in range(4)}) == 4
        broker = cluster.brokers["a"]
        stores = broker.answers[SEND]

        def late(command: Command) -> Command | None:
            answer = stores(command)
            assert answer is not None
            answer.code = int(ResponseCode.FLUSH_DISK_TIMEOUT)
            return answer

        broker.answers[SEND] = late
        statuses = {(await client.send("orders", b"x", **fields)).status for _ in range(4)}
        assert statuses == {SendStatus.OK, SendStatus.FLUSH_DISK_TIMEOUT}
        assert courier._hot.knows("orders")
        broker.answers[SEND] = refusing(ResponseCode.MESSAGE_ILLEGAL)
        refused = 0
        for _ in range(4):
            try:
                await client.send("orders", b"x", **fields)
            except MessageRefused as error:
                assert "after one attempt (a)" in str(error)
                refused += 1
        assert refused == 2
        assert courier._hot.knows("orders")
        broker.answers[SEND] = refusing(ResponseCode.SYSTEM_ERROR)
        for _ in range(4):
            receipt = await client.send("orders", b"x", **fields)
            assert receipt.queue.broker_name == "b"
        assert not courier._hot.knows("orders")  # a is avoided, so the whole way is gone
        broker.answers[SEND] = stores


async def test_what_is_not_unicode_text_is_refused_on_the_shortcut_too() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        for _ in range(3):
            with pytest.raises(InvalidMessage, match="Unicode"):
                await client.send("orders", b"x", tags="\udcff")
            with pytest.raises(InvalidMessage, match="Unicode"):
                await client.send("orders", "\udcff")
            await client.send("orders", b"x", tags="A")


async def test_a_shortcut_ends_with_its_connection_or_its_route() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        courier = client.producer().courier
        await client.send("orders", b"x")
        assert courier._hot.knows("orders")
        cluster.brokers["a"].drop_all()
        await client.send("orders", b"x")
        await client.send("orders", b"x")
        cluster.queue_counts["orders"] = 4
        await client.session.routes.refresh("orders")
        assert not courier._hot.knows("orders")
        assert len({(await client.send("orders", b"x")).queue for _ in range(4)}) == 4


async def test_a_shortcut_is_not_given_up_for_a_broker_that_failed_long_ago() -> None:
    clock = ManualClock()
    async with running("a", orders=1) as cluster, client_of(cluster, clock) as client:
        broker = cluster.brokers["a"]
        stores = broker.answers[SEND]
        broker.answers[SEND] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestFailed):
            await client.send("orders", b"x")
        broker.answers[SEND] = stores
        courier = client.producer().courier
        courier._faults.failed("gone", now_s=clock.monotonic_s())
        await client.send("orders", b"x")
        assert not courier._hot.knows("orders")
        clock.advance(10)
        await client.send("orders", b"x")
        assert courier._hot.knows("orders")


async def test_slow_answers_are_noticed_on_the_shortcut_too() -> None:
    clock = ManualClock()
    async with running("a", "b", orders=1) as cluster, client_of(cluster, clock) as client:
        for _ in range(4):
            await client.send("orders", b"x")
        stores = cluster.brokers["a"].answers[SEND]

        def slow(command: Command) -> Command | None:
            clock.advance(0.6)
            return stores(command)

        cluster.brokers["a"].answers[SEND] = slow
        for _ in range(2):
            await client.send("orders", b"x")
        brokers = [(await client.send("orders", b"x")).queue.broker_name for _ in range(4)]
        assert brokers == ["b"] * 4
