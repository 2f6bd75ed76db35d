"""Loops over messages, decorated handlers, and running until told to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import msgspec
import pytest

from ariane.client.consuming import Subscription
from ariane.client.received import ReceivedMessage
from ariane.codes import RequestCode
from ariane.errors import ClientError
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_properties
from tests.unit.client.fake import client_of, running, stored
from tests.unit.client.group_broker import (
    GROUP,
    TOPIC,
    GroupBroker,
    World,
    settle,
    until,
    world,
)

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2


async def looped(here: World, **choices: Any) -> Subscription:
    messages = here.client.subscribe(TOPIC, group=GROUP, **choices)
    await messages.__aenter__()
    await until(here.broker.pulls)
    return messages


async def test_a_loop_settles_each_message_by_how_its_block_ends() -> None:
    async with world() as here:
        messages = await looped(here)
        for body in (b"good", b"bad", b"good"):
            here.broker.store(body)
        seen = []
        async for message in messages:
            seen.append(message.body)
            try:
                async with message:
                    if message.body == b"bad":
                        raise ValueError
            except ValueError:
                assert message.is_settled
            if len(seen) == 3:
                break
        assert len(here.server.of(BACK)) == 1
        await messages.close()
        assert here.broker.offsets[TOPIC, 0] == 3
        assert [message async for message in messages] == []


async def test_a_message_that_is_not_settled_is_not_committed() -> None:
    async with world() as here:
        messages = await looped(here)
        here.broker.store(b"one")
        here.broker.store(b"two")
        one, two = await anext(messages), await anext(messages)
        await two.ack()
        await here.advance(5)
        assert here.broker.offsets.get((TOPIC, 0), 0) == 0
        await one.ack()
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 2


async def test_a_cancelled_message_is_given_back() -> None:
    async with world() as here:
        messages = await looped(here)
        here.broker.store(b"one")
        message = await anext(messages)
        with pytest.raises(asyncio.CancelledError):
            async with message:
                raise asyncio.CancelledError
        assert message.is_settled
        assert here.server.of(BACK)


async def test_only_so_many_messages_are_unsettled_at_a_time() -> None:
    async with world() as here:
        messages = await looped(here, concurrency=2)
        for number in range(4):
            here.broker.store(b"%d" % number)
        first, _ = await anext(messages), await anext(messages)
        third = asyncio.create_task(anext(messages))
        await settle()
        assert not third.done()
        await first.nack(10)
        assert (await third).body == b"2"
        assert here.server.of(BACK)


async def test_a_loop_may_keep_order() -> None:
    async with world() as here:
        messages = await looped(here, orderly=True)
        here.broker.store(b"one")
        here.broker.store(b"two")
        one = await anext(messages)
        other = asyncio.create_task(anext(messages))
        await settle()
        assert not other.done()
        await one.nack()
        await here.advance(1)
        again = await other
        assert (again.body, again.reconsume_times) == (b"one", 1)
        await again.ack()
        assert (await anext(messages)).body == b"two"


async def test_what_a_broker_refuses_is_raised_by_the_loop() -> None:
    async with world() as here:
        with pytest.raises(ClientError, match="concurrency"):
            here.client.subscribe(TOPIC, group=GROUP, concurrency=0)
        with pytest.raises(ClientError, match="topic name"):
            here.client.subscribe("a b", group=GROUP)


class Order(msgspec.Struct):
    number: int


async def test_decorated_handlers_run_until_a_signal_and_end_in_good_order() -> None:
    async with running("a", **{TOPIC: 1, "%RETRY%billing": 1, "%RETRY%audit": 1}) as cluster:
        broker = GroupBroker(cluster.brokers["a"])
        async with client_of(cluster) as client:
            seen: list[object] = []
            done = asyncio.Event()

            @client.consumer(TOPIC, group=GROUP, model=Order)
            async def bill(order: Order, message: ReceivedMessage) -> None:
                seen.append(order)
                await done.wait()

            @client.consumer([TOPIC], group="audit", tags="a")
            def audit(message: ReceivedMessage) -> None:
                seen.append(message.body)

            run = asyncio.create_task(client.run())
            await until(lambda: len(broker.pulls()) == 2)
            broker.store(b'{"number":7}', TAGS="a")
            await until(lambda: len(seen) == 2)
            assert Order(7) in seen
            signal.raise_signal(signal.SIGTERM)
            await run
            done.set()
        assert broker.offsets[TOPIC, 0] == 1
        assert bill is not None and audit is not None


async def test_a_client_that_is_not_open_is_opened_and_closed_by_its_run() -> None:
    async with running("a", **{TOPIC: 1, f"%RETRY%{GROUP}": 1}) as cluster:
        broker = GroupBroker(cluster.brokers["a"])
        async with client_of(cluster) as opened:
            client = type(opened)(cluster.name_server.address)

        @client.consumer(TOPIC, group=GROUP)
        async def handle(message: ReceivedMessage) -> None:
            signal.raise_signal(signal.SIGINT)

        run = asyncio.create_task(client.run())
        await until(broker.pulls)
        broker.store(b"one")
        await run
        assert broker.offsets[TOPIC, 0] == 1
        assert not client.session.is_open


async def test_a_body_that_is_not_of_the_model_is_a_dead_letter_at_once() -> None:
    async with world() as here:

        @here.client.consumer(TOPIC, group=GROUP, model=Order)
        async def handle(order: Order, message: ReceivedMessage) -> None:
            raise AssertionError("not called")

        await here.client.start_consumers()
        await until(here.broker.pulls)
        here.server.answers[SEND] = stored
        here.broker.store(b"{}")
        (command,) = await here.server.received(SEND)
        header = decode_header(SendHeaderV2, command.ext)
        assert (header.topic, header.reconsume_times, header.reconsume_times_max) == (
            f"%RETRY%{GROUP}",
            1,
            0,
        )
        reason = decode_properties(header.properties or "")["DEAD_LETTER_REASON"]
        assert reason.startswith("the body cannot be read as Order: ")
        assert not here.server.of(BACK)


async def test_running_without_a_handler_says_what_to_do() -> None:
    async with world() as here:
        with pytest.raises(ClientError, match="decorate one"):
            await here.client.run()
