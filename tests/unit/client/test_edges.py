"""What leaving, cancelling and failing must not lose."""

import asyncio
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import pytest

import ariane
from ariane import Dedup, MemoryStore, MessageQueue, Start, TransactionState
from ariane.client import courier, faults, pull_loop, pulling, reading, records
from ariane.errors import ClientError, RequestFailed
from ariane.sync import Client
from ariane.testing import EmbeddedBroker


def test_leaving_a_blocking_client_sends_what_was_submitted(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        futures = [client.submit("orders", b"%d" % number) for number in range(100)]
    assert all(future.done() and future.exception() is None for future in futures)
    assert len(ariane_broker.published("orders")) == 100


async def test_a_cancelled_transaction_is_left_to_the_checker(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        client.checked_elsewhere("shop")
        transaction = client.transaction("orders", b"42", group="shop")
        with pytest.raises(asyncio.CancelledError):
            async with transaction:
                raise asyncio.CancelledError
    assert transaction.state is TransactionState.UNKNOWN


async def test_a_lite_consumer_whose_block_raises_commits_nothing_it_did_not_finish(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.admin.create_topic("orders", write_queue_count=1)
        await client.send("orders", b"x")
        consumer = client.lite_pull_consumer("g", start=Start.FIRST)
        consumer.subscribe("orders")
        with pytest.raises(ValueError, match="of the block"):
            async with consumer:
                while not await consumer.poll(5):
                    pass
                raise ValueError("of the block")
        reader = client.pull_consumer()
        reader.group = "g"
        (queue,) = await reader.queues("orders")
        assert not await reader.committed(queue)


async def test_an_object_with_an_async_call_is_run_once() -> None:
    ran = []

    class Handler:
        async def __call__(self, message: object) -> None:
            ran.append(message)

    class Sent:
        topic = "orders"
        keys = ("k",)
        message_id = "i"
        properties: dict[str, str] = {}  # noqa: RUF012

    handler = Dedup(MemoryStore())(Handler())
    await handler(Sent())
    await handler(Sent())
    assert len(ran) == 1


async def test_who_looks_at_a_group_does_not_join_it(ariane_broker: EmbeddedBroker) -> None:
    async with (
        ariane.Client(ariane_broker.name_server) as client,
        ariane.Client(ariane_broker.name_server) as other,
    ):
        await client.admin.create_topic("orders", write_queue_count=1)
        consumed = asyncio.Event()

        async def handle(message: ariane.ReceivedMessage) -> None:
            consumed.set()

        consumer = client.push_consumer("billing", handle, start=Start.FIRST)
        consumer.subscribe("orders")
        async with consumer:
            await client.send("orders", b"x")
            await consumed.wait()
            reader = other.pull_consumer("billing")
            (queue,) = await reader.queues("orders")
            await reader.pull(queue)
            clients = ariane_broker.broker.state.clients
            group = ariane_broker.call(lambda: clients.consumers["billing"])
            assert len(group.client_ids()) == 1
            assert "orders" in group.subscriptions


async def test_a_message_whose_time_is_up_is_given_back(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.admin.create_topic("orders", write_queue_count=1)
        for number in range(2):
            await client.send("orders", b"%d" % number)
        seen = []
        async with client.subscribe(
            "orders", group="g", concurrency=1, start=Start.FIRST
        ) as messages:
            async for message in messages:
                seen.append(message.body)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0), message:
                        await asyncio.Event().wait()
                if len(seen) == 2:
                    break
        assert seen == [b"0", b"1"]
        assert client.session.before_close[1:] == []  # the client's own step alone is left


@pytest.mark.provokes("unreadable")
async def test_a_pull_that_fails_in_a_way_nobody_foresaw_is_tried_again(
    ariane_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([ValueError("unreadable")])

    def failing(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return records.decode(*arguments)

    monkeypatch.setattr(pulling, "decode", failing)
    monkeypatch.setattr(pull_loop, "FAILED_S", 0.01)
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        async with client.subscribe("orders", group="g", start=Start.FIRST) as messages:
            async with asyncio.timeout(30):
                message = await anext(messages)
            await message.ack()
            assert message.body == b"x"


def test_a_hook_of_a_blocking_client_may_use_the_client(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"x")
        told = threading.Event()

        def fail(message: object) -> None:
            raise ValueError

        def tell(message: object) -> None:
            client.send("alerts", b"dead", timeout=2)
            told.set()

        consumer = client.push_consumer(
            "g", fail, retry=ariane.Retry(max=0), dead_letter=tell, start=Start.FIRST
        )
        consumer.subscribe("orders")
        with consumer:
            assert told.wait(10)
    assert len(ariane_broker.published("alerts")) == 1


async def test_a_first_message_whose_wait_is_cancelled_may_be_waited_for_again(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.admin.create_topic("orders", write_queue_count=1)
        async with asyncio.timeout(10):
            messages = client.subscribe("orders", group="g", start=Start.FIRST)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(messages)
            await client.send("orders", b"x")
            async with await anext(messages) as message:
                assert message.body == b"x"
            await messages.close()


async def test_what_a_start_failed_with_is_told_though_nobody_waited_for_it(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        messages = client.subscribe("orders", group="g", sql="a >")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(messages)
        for _ in range(2):
            with pytest.raises(RequestFailed):
                await anext(messages)


def members_of(broker: EmbeddedBroker, group: str) -> int:
    groups = broker.broker.state.clients.consumers
    return broker.call(lambda: len(groups[group].client_ids()) if group in groups else 0)


async def test_a_loop_that_is_left_by_break_leaves_the_group(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.admin.create_topic("orders", write_queue_count=1)
        for number in range(2):
            await client.send("orders", b"%d" % number)
        seen = []
        for _ in range(2):  # the second waits until the first has left
            with pytest.warns(ResourceWarning, match="left open"):
                async for message in client.subscribe("orders", group="g", start=Start.FIRST):
                    async with message:
                        seen.append(message.body)
                    break
        assert seen == [b"0", b"1"]
        async with client.subscribe("orders", group="g"):
            assert members_of(ariane_broker, "g") == 1
        assert members_of(ariane_broker, "g") == 0


def test_a_blocking_loop_that_is_left_by_break_leaves_the_group(
    ariane_broker: EmbeddedBroker,
) -> None:
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"x")
        with pytest.warns(ResourceWarning, match="left open"):
            for message in client.subscribe("orders", group="g", start=Start.FIRST):
                with message:
                    break
        with client.subscribe("orders", group="g"):
            pass
        assert members_of(ariane_broker, "g") == 0


async def test_who_is_cancelled_while_entering_is_no_member(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        for consumer in (
            client.subscribe("orders", group="g"),
            subscribed(client.push_consumer("g", print)),
            subscribed(client.lite_pull_consumer("g")),
        ):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), consumer:
                    pass
            await consumer.close()
            assert members_of(ariane_broker, "g") == 0
        async with client.subscribe("orders", group="g"):
            assert members_of(ariane_broker, "g") == 1


def subscribed(consumer: Any) -> Any:
    consumer.subscribe("orders")
    return consumer


@pytest.mark.parametrize("kind", ["push", "lite pull"])
async def test_a_consumer_closes_to_its_end_though_its_closer_is_cancelled(
    ariane_broker: EmbeddedBroker, kind: str
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        consumer: Any = (
            client.push_consumer("g", print) if kind == "push" else client.lite_pull_consumer("g")
        )
        consumer.subscribe("orders")
        await consumer.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await consumer.close()
        await consumer.close()
        assert members_of(ariane_broker, "g") == 0
        assert client.session.before_close[1:] == []


async def test_a_consumer_leaves_though_its_progress_could_not_be_kept(
    ariane_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        consumer = subscribed(client.push_consumer("g", print))
        await consumer.start()

        async def write(*arguments: Any, **named: Any) -> None:
            raise OSError("the disk is full")

        monkeypatch.setattr(consumer._holdings.store, "write", write)
        with pytest.raises(OSError, match="the disk is full"):
            await consumer.close()
        await consumer.close()
        assert members_of(ariane_broker, "g") == 0


async def test_a_second_consumer_of_a_group_does_not_take_the_first_ones_place(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        async with client.subscribe("orders", group="g"):
            with pytest.raises(ClientError, match="already"):
                async with client.subscribe("orders", group="g"):
                    pass
            assert members_of(ariane_broker, "g") == 1


async def test_a_consumer_that_is_closed_while_it_starts_does_not_begin(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        for consumer in (
            subscribed(client.push_consumer("g", print)),
            subscribed(client.lite_pull_consumer("g")),
        ):
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(0)
            await consumer.close()
            with pytest.raises(ClientError, match="closed before"):
                await starting
            assert members_of(ariane_broker, "g") == 0


async def test_a_consumer_that_is_closed_while_it_waits_for_its_place_does_not_take_it(
    ariane_broker: EmbeddedBroker,
) -> None:
    at_work, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: ariane.ReceivedMessage) -> None:
        at_work.set()
        await may_end.wait()

    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
        first = subscribed(client.push_consumer("g", handle, start=Start.FIRST))
        await first.start()
        await at_work.wait()
        leaving = asyncio.create_task(first.close())
        await asyncio.sleep(0)
        waiting = []
        for second in (
            subscribed(client.push_consumer("g", handle)),
            subscribed(client.lite_pull_consumer("g")),
        ):
            waiting.append(asyncio.create_task(second.start()))
            await asyncio.sleep(0)
            await second.close()
        may_end.set()
        await leaving
        for starting in waiting:
            with pytest.raises(ClientError, match="closed before"):
                await starting
        assert members_of(ariane_broker, "g") == 0
        async with client.subscribe("orders", group="g"):
            pass


async def test_a_handler_that_does_not_start_is_named(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.send("orders", b"x")

        @client.consumer("orders", group="billing", sql="price >")
        async def bill(message: object) -> None: ...

        with pytest.raises(RequestFailed) as failure:
            await client.start_consumers()
        (note,) = failure.value.__notes__
        assert "bill' of group 'billing' was not started" in note
        with pytest.raises(RequestFailed):  # it is not forgotten
            await client.start_consumers()


async def test_a_plain_checker_may_block(ariane_broker: EmbeddedBroker) -> None:
    asked: asyncio.Queue[threading.Thread] = asyncio.Queue()
    async with ariane.Client(ariane_broker.name_server) as client:
        loop = asyncio.get_running_loop()

        @client.checker("shop")
        def check(message: object) -> bool:
            loop.call_soon_threadsafe(asked.put_nowait, threading.current_thread())
            return True

        async with client.transaction("orders", b"x", group="shop") as transaction:
            transaction.unknown()
        await asyncio.to_thread(ariane_broker.advance, 60)
        async with asyncio.timeout(10):
            assert await asked.get() is not threading.current_thread()


def test_an_interrupted_message_is_given_back(ariane_broker: EmbeddedBroker) -> None:
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"x")
        with client.subscribe("orders", group="g", start=Start.FIRST) as messages:
            message = next(messages)
            with pytest.raises(KeyboardInterrupt), message:
                raise KeyboardInterrupt
            assert message.is_settled
    assert ariane_broker.requests("send back") == 1


def test_an_interrupted_blocking_transaction_is_left_to_the_checker(
    ariane_broker: EmbeddedBroker,
) -> None:
    with Client(ariane_broker.name_server) as client:
        client.checked_elsewhere("shop")
        begun = client.transaction("orders", b"x", group="shop")
        with pytest.raises(KeyboardInterrupt), begun as transaction:
            raise KeyboardInterrupt
        assert transaction.state is TransactionState.UNKNOWN


def test_who_waits_when_a_blocking_client_closes_is_told(ariane_broker: EmbeddedBroker) -> None:
    client = Client(ariane_broker.name_server)
    client.send("orders", b"x")
    messages = client.subscribe("other", group="g")
    outcomes: SimpleQueue[BaseException] = SimpleQueue()
    waiting = threading.Event()

    def wait() -> None:
        messages.__enter__()
        waiting.set()
        try:
            next(messages)
        except (StopIteration, ClientError) as error:
            outcomes.put(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    client.close()
    client.close()
    assert outcomes.get(timeout=10)
    thread.join()
    with pytest.raises(ClientError, match="closed"):
        client.send("orders", b"x")


def test_a_blocking_call_on_the_clients_own_thread_is_refused(
    ariane_broker: EmbeddedBroker,
) -> None:
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"x")
        refusals: SimpleQueue[ClientError] = SimpleQueue()

        def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
            try:
                client.admin.topics()
            except ClientError as error:
                refusals.put(error)
            return queues[0]

        client.submit("orders", b"x", selector=choose).result(10)
        assert "would wait for itself" in str(refusals.get(timeout=10))


def test_slow_answers_to_threads_are_noted_on_the_loops_own(
    ariane_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: SimpleQueue[str] = SimpleQueue()
    noted = faults.FaultTable.answered

    def answered(*arguments: Any, **named: Any) -> None:
        noted(*arguments, **named)
        notes.put(threading.current_thread().name)

    monkeypatch.setattr(faults.FaultTable, "answered", answered)
    monkeypatch.setattr(courier, "SLOW_S", 0.0)
    with Client(ariane_broker.name_server) as client:
        client.send("orders", b"x")
        assert notes.get(timeout=10) == "ariane-client"


@pytest.mark.provokes("nobody foresaw")
async def test_handlers_go_on_after_what_became_of_a_message_could_not_be_told(
    ariane_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: ariane.ReceivedMessage) -> None:
        seen.put_nowait(message.body)
        raise ValueError

    async def failed(*arguments: Any) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(reading.Reader, "failed", failed)
    async with ariane.Client(ariane_broker.name_server) as client:
        for number in range(2):
            await client.send("orders", b"%d" % number)
        consumer = client.push_consumer("g", handle, concurrency=1, start=Start.FIRST)
        async with subscribed(consumer), asyncio.timeout(10):
            assert {await seen.get(), await seen.get()} == {b"0", b"1"}
