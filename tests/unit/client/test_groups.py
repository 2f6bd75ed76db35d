"""Groups as an operator sees them, on a real broker: lag, members, moves, dead letters."""

import asyncio
from datetime import timedelta

import pytest

import ariane
from ariane import GroupLag, Retry, Start, StoredMessage
from ariane.errors import ClientError, InvalidArgument, UnknownGroup
from ariane.sync import Client as BlockingClient
from ariane.testing import EmbeddedBroker


async def consumed(client: ariane.Client, group: str, count: int, topic: str = "orders") -> list:
    found = []
    async with client.subscribe(topic, group=group, start=Start.FIRST) as messages:
        async for message in messages:
            await message.ack()
            found.append(message.text)
            if len(found) == count:
                return found
    raise AssertionError


async def send(client: ariane.Client, *bodies: str) -> None:
    if "orders" not in await client.admin.topics():
        await client.admin.create_topic("orders", write_queue_count=1)
    for body in bodies:
        await client.send("orders", body)


async def test_lag_is_told_in_messages_and_in_seconds(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await send(client, "a", "b", "c")
        assert await consumed(client, "billing", 2) == ["a", "b"]
        ariane_broker.advance(60)
        await send(client, "d")
        ariane_broker.advance(30)

        lag = await client.admin.lag("billing")
        [orders] = [queue for queue in lag.queues if queue.queue.topic == "orders"]
        assert (orders.consume_offset, orders.end_offset, orders.messages) == (2, 4, 2)
        assert orders.seconds == pytest.approx(90, abs=5)
        assert (lag.messages, lag.seconds) == (2, orders.seconds)
        assert await client.admin.lag("billing", topic="orders") == GroupLag("billing", (orders,))

        assert await consumed(client, "billing", 2) == ["c", "d"]
        lag = await client.admin.lag("billing", topic="orders")
        assert (lag.messages, lag.seconds) == (0, 0)
        assert await client.admin.lag("nobody") == GroupLag("nobody", ())


async def test_groups_are_made_changed_listed_and_deleted(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        assert await client.admin.create_group("billing", retries=3) == ["broker-a"]
        await client.admin.create_group("audit", enabled=False)
        assert await client.admin.groups() == ["audit", "billing"]
        table = ariane_broker.call(lambda: ariane_broker.broker.state.groups.get("billing"))
        assert table is not None
        assert table.retry_times_max == 3

        await send(client, "a")
        await consumed(client, "billing", 1)
        assert "%RETRY%billing" in await client.admin.topics()
        assert await client.admin.delete_group("billing") == ["broker-a"]
        assert await client.admin.groups() == ["audit"]
        assert "%RETRY%billing" not in await client.admin.topics()
        assert await client.admin.lag("billing") == GroupLag("billing", ())
        for wrong in ({"group": "../x"}, {"group": "billing", "retries": -1}):
            with pytest.raises(InvalidArgument):
                await client.admin.create_group(**wrong)


async def test_members_are_told_while_they_are_there(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await send(client, "a")
        async with client.subscribe("orders", group="billing", start=Start.FIRST) as messages:
            await (await anext(messages)).ack()
            [member] = await client.admin.members("billing")
            assert member.client_id == client.session.client_id
            assert member.language == "PYTHON"
            assert member.address.startswith("127.0.0.1:")
        assert await client.admin.members("billing") == []


@pytest.mark.parametrize("here", [True, False], ids=["set by the broker", "told to members"])
async def test_a_group_is_moved_and_the_move_is_seen_before(here: bool) -> None:
    with EmbeddedBroker(useServerSideResetOffset=here) as broker:
        async with ariane.Client(broker.name_server) as client:
            await send(client, "a", "b")
            broker.advance(60)
            await send(client, "c")
            moment = broker.now - timedelta(seconds=30)
            assert await consumed(client, "billing", 3) == ["a", "b", "c"]

            reset = client.admin.reset_offsets
            [move] = await reset("billing", "orders", to=Start.FIRST, preview=True)
            assert (move.before, move.after, move.messages) == (3, 0, 3)
            assert (await client.admin.lag("billing", topic="orders")).messages == 0

            [move] = await reset("billing", "orders", to=Start.at(moment))
            assert (move.before, move.after, move.messages) == (3, 2, 1)
            assert (await client.admin.lag("billing", topic="orders")).messages == 1
            assert await consumed(client, "billing", 1) == ["c"]

            await reset("billing", "orders", to=Start.FIRST)
            assert await consumed(client, "billing", 3) == ["a", "b", "c"]
            await reset("billing", "orders", to=Start.FIRST)
            [move] = await reset("billing", "orders", to=Start.LAST)
            assert (move.before, move.after, move.messages) == (0, 3, -3)


async def test_a_group_that_is_online_goes_on_where_it_was_moved(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await send(client, "a", "b")
        async with client.subscribe("orders", group="billing", start=Start.FIRST) as messages:
            for _ in range(2):
                await (await anext(messages)).ack()
            await messages.consumer.commit()
            await client.admin.reset_offsets("billing", "orders", to=Start.FIRST)
            async with asyncio.timeout(30):
                assert (await anext(messages)).text == "a"


async def test_a_group_that_is_not_there_is_not_moved(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await send(client, "a")
        with pytest.raises(UnknownGroup):
            await client.admin.reset_offsets("nobody", "orders", to=Start.FIRST)
        with pytest.raises(ClientError):
            await client.admin.reset_offsets("billing", "missing", to=Start.FIRST)


async def given_up(client: ariane.Client, broker: EmbeddedBroker) -> list[StoredMessage]:
    async def bill(message: ariane.ReceivedMessage) -> None:
        raise ConnectionError("the bank does not answer")

    consumer = client.push_consumer("billing", bill, retry=Retry(max=0), start=Start.FIRST)
    consumer.subscribe("orders")
    async with consumer:
        await asyncio.to_thread(broker.wait_for, "%DLQ%billing", 2, within=30)
    return await client.admin.dead_letters("billing")


async def test_dead_letters_are_listed_and_sent_again_to_their_group(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        assert await client.admin.dead_letters("billing") == []
        await send(client, "a", "b")
        letters = await given_up(client, ariane_broker)
        assert {letter.text for letter in letters} == {"a", "b"}
        assert len(await client.admin.dead_letters("billing", count_max=1)) == 1

        await client.admin.resend("billing", letters)
        again = []
        async with client.subscribe("orders", group="billing") as messages:
            async with asyncio.timeout(30):
                async for message in messages:
                    again.append((message.topic, message.text, message.reconsume_times))
                    await message.ack()
                    if len(again) == 2:
                        break
        assert sorted(again) == [("orders", "a", 0), ("orders", "b", 0)]
        assert len(ariane_broker.published("orders")) == 2  # other groups have nothing new

        await client.admin.resend("billing", letters[:1], to="mended")
        [mended] = ariane_broker.published("mended")
        assert mended.message_id == letters[0].message_id
        with pytest.raises(InvalidArgument, match="no dead letter"):
            await client.admin.resend("billing", [mended])

        await client.admin.delete_group("billing", keep_dead_letters=True)
        assert await client.admin.groups() == []  # nor do its own held pulls make it again
        assert len(await client.admin.dead_letters("billing")) == 2
        await client.admin.delete_group("billing")
        assert await client.admin.dead_letters("billing") == []


async def test_who_pops_says_where_dead_letters_go(ariane_broker: EmbeddedBroker) -> None:
    async with ariane.Client(ariane_broker.name_server) as client:
        await send(client, "a")
        consumer = client.simple_consumer("billing")
        consumer.subscribe("orders")
        async with consumer:
            await consumer.receive(wait=0.01)
            with pytest.raises(InvalidArgument, match="pops"):
                await client.admin.resend("billing", [])


def test_the_blocking_client_does_it_too(ariane_broker: EmbeddedBroker) -> None:
    with BlockingClient(ariane_broker.name_server) as client:
        client.admin.create_group("billing")
        assert client.admin.groups() == ["billing"]
        assert client.admin.lag("billing") == GroupLag("billing", ())
        assert client.admin.members("billing") == client.admin.dead_letters("billing") == []
