"""Heartbeats, routes and name servers by the clock; and that nothing is left running."""

import asyncio

import pytest

from ariane.client import Client
from ariane.clock import ManualClock
from ariane.codes import RequestCode
from ariane.errors import ClientError, ConnectionLost
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerData, HeartbeatData
from tests.unit.client.fake import client_of, running, silent

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT


async def test_brokers_hear_of_a_producer_at_once_and_every_thirty_seconds() -> None:
    clock = ManualClock()
    async with running("a", orders=1) as cluster, client_of(cluster, clock) as client:
        await client.send("orders", b"x")
        (first,) = await cluster.brokers["a"].received(BEAT)
        heartbeat = fastjson.decode(first.body, HeartbeatData)
        assert heartbeat.client_id == client.session.client_id
        assert [producer.group for producer in heartbeat.producers] == ["DEFAULT_PRODUCER"]
        clock.advance(30)
        await cluster.brokers["a"].received(BEAT, 2)


async def test_a_consumer_group_is_told_and_who_only_looks_at_it_is_not() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        await client.pull_consumer().queues("orders")
        await client.pull_consumer("billing").queues("orders")
        assert not cluster.brokers["a"].of(BEAT)
        client.session.add_consumer(ConsumerData(group="billing", consume_type="CONSUME_ACTIVELY"))
        (command,) = await cluster.brokers["a"].received(BEAT)
        (consumer,) = fastjson.decode(command.body, HeartbeatData).consumers
        assert (consumer.group, consumer.consume_type) == ("billing", "CONSUME_ACTIVELY")


async def test_a_client_takes_its_leave() -> None:
    async with running("a", orders=1) as cluster:
        async with client_of(cluster) as client:
            client.producer("p")
            client.session.add_consumer(ConsumerData(group="g"))
            await client.send("orders", b"x")
            await cluster.brokers["a"].received(BEAT)
        goodbyes = cluster.brokers["a"].of(RequestCode.UNREGISTER_CLIENT)
        groups = {
            command.ext.get("producerGroup") or command.ext.get("consumerGroup")
            for command in goodbyes
        }
        assert groups == {"DEFAULT_PRODUCER", "p", "g"}
        assert {command.ext["clientID"] for command in goodbyes} == {client.session.client_id}


async def test_a_broker_that_does_not_answer_keeps_no_client_from_closing() -> None:
    # By the true clock: what is to be seen is that it still runs while the client takes its leave.
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        await client.send("orders", b"x")
        await broker.received(BEAT)
        broker.answers[RequestCode.UNREGISTER_CLIENT] = silent
        await asyncio.wait_for(client.close(), 30)


async def test_routes_are_refreshed_every_thirty_seconds() -> None:
    clock = ManualClock()
    async with running("a", orders=1) as cluster, client_of(cluster, clock) as client:
        producer = client.producer()
        assert len(await producer.queues("orders")) == 1
        refreshed = asyncio.Event()
        client.session.routes.on_new = lambda route: refreshed.set()
        cluster.queue_counts["orders"] = 8
        clock.advance(30)
        async with asyncio.timeout(10):
            await refreshed.wait()
        assert len(await producer.queues("orders")) == 8


async def test_another_name_server_is_asked_when_one_is_gone() -> None:
    async with running("a", orders=1) as gone, running("a", orders=1) as cluster:
        addresses = f"{gone.name_server.address};{cluster.name_server.address}"
        await gone.stop()
        for _ in range(4):  # whichever comes first
            async with Client(addresses) as client:
                await client.send("orders", b"x")
        assert cluster.name_server.of(ROUTE)


async def test_when_no_name_server_answers_the_error_names_them() -> None:
    async with running("a") as cluster:
        address = cluster.name_server.address
    async with Client(address) as client:
        with pytest.raises(ConnectionLost, match=f"no name server answers.*{address}.*ariane up"):
            await client.send("orders", b"x")


async def test_a_silent_name_server_is_given_up_after_three_seconds() -> None:
    clock = ManualClock()
    async with running("a") as cluster, client_of(cluster, clock) as client:
        cluster.name_server.answers[ROUTE] = silent
        send = asyncio.create_task(client.send("orders", b"x"))
        await cluster.name_server.received(ROUTE)
        clock.advance(3.1)
        with pytest.raises(ConnectionLost, match="no answer"):
            await send


async def test_nothing_runs_after_close() -> None:
    before = asyncio.all_tasks()
    async with running("a", orders=1) as cluster:
        cluster.brokers["a"].answers[BEAT] = silent
        async with client_of(cluster) as client:
            await client.send("orders", b"x")
            await cluster.brokers["a"].received(BEAT)
    assert asyncio.all_tasks() == before


async def test_a_client_that_is_not_open_says_so() -> None:
    client = Client("127.0.0.1:9876")
    with pytest.raises(ClientError, match="not open"):
        await client.send("orders", b"x")
    await client.close()


@pytest.mark.parametrize("group", ["", "a b", "x" * 200])
async def test_groups_must_have_a_name_that_brokers_take(group: str) -> None:
    async with Client("127.0.0.1:9876") as client:
        with pytest.raises(ClientError, match="group name"):
            client.producer(group)
        with pytest.raises(ClientError, match="group name"):
            client.pull_consumer(group)


async def test_closing_takes_every_step_whatever_an_earlier_one_raised() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        future = await client.submit("orders", b"x")

        async def fail() -> None:
            raise OSError("the disk is full")

        client.session.before_close.append(fail)
        with pytest.raises(OSError, match="the disk is full"):
            await client.close()
        assert future.done()
        assert not client.session.is_open
        await client.close()


async def test_closing_goes_on_when_its_caller_is_cancelled() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        may_go_on, begun, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def step() -> None:
            begun.set()
            await may_go_on.wait()
            ended.set()

        client.session.before_close.append(step)
        closing = asyncio.create_task(client.close())
        await begun.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        may_go_on.set()
        await client.close()
        assert ended.is_set()
        assert not client.session.is_open
