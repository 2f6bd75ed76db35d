"""Polling: what comes, what counts as consumed, and how to go elsewhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from ariane.client.lite_pull_consumer import LitePullConsumer
from ariane.client.process_queue import Limits
from ariane.client.starting import Start
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError
from ariane.protocol import fastjson
from ariane.protocol.bodies import HeartbeatData, ResetOffsets
from ariane.protocol.command import reply, request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.offsets import OffsetReply, ResetOffsetHeader
from ariane.protocol.headers.pull import PullHeader
from tests.unit.client.fake import refusing
from tests.unit.client.group_broker import GROUP, TOPIC, World, queue, settle, until, world

PULL = RequestCode.LITE_PULL_MESSAGE


def pulls(here: World) -> list[PullHeader]:
    return [decode_header(PullHeader, command.ext) for command in here.server.of(PULL)]


async def subscribed(here: World, **choices: Any) -> LitePullConsumer:
    filters = {key: choices.pop(key) for key in ("tags", "sql") if key in choices}
    consumer = here.client.lite_pull_consumer(GROUP, **choices)
    consumer.subscribe(TOPIC, **filters)
    await consumer.start()
    await until(lambda: len(pulls(here)) >= here.cluster.queue_counts[TOPIC])
    return consumer


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body for message in messages]


async def test_a_poll_brings_what_is_there() -> None:
    async with world(2) as here:
        consumer = await subscribed(here)
        for number in range(3):
            here.broker.store(b"%d" % number, number % 2)
        await settle()
        assert sorted(bodies(await consumer.poll())) == [b"0", b"1", b"2"]
        assert await consumer.poll(0) == []


async def test_what_is_sent_once_it_has_started_is_polled() -> None:
    async with world() as here:
        consumer = here.client.lite_pull_consumer(GROUP)
        consumer.subscribe(TOPIC)
        await consumer.start()
        here.broker.store(b"new")
        assert bodies(await consumer.poll()) == [b"new"]


async def test_a_poll_waits_for_the_first_message_and_no_longer_than_told() -> None:
    async with world() as here:
        consumer = await subscribed(here)
        polled = asyncio.create_task(consumer.poll(5))
        await here.advance(4)
        assert not polled.done()
        here.broker.store(b"one")
        assert bodies(await polled) == [b"one"]
        empty = asyncio.create_task(consumer.poll(5))
        await here.advance(5)
        assert await empty == []


async def test_a_poll_brings_no_more_than_asked_for() -> None:
    async with world(2) as here:
        consumer = await subscribed(here)
        for number in range(6):
            here.broker.store(b"%d" % number, number % 2)
        await settle()
        first = await consumer.poll(count_max=4)
        second = await consumer.poll(count_max=4)
        assert (len(first), len(second)) == (4, 2)
        assert sorted(bodies(first + second)) == [b"%d" % number for number in range(6)]


async def test_what_a_poll_brought_counts_when_the_next_one_begins() -> None:
    async with world() as here:
        consumer = await subscribed(here)
        here.broker.store(b"one")
        await consumer.poll()
        await here.advance(5)
        assert here.broker.offsets.get((TOPIC, 0), 0) == 0
        await consumer.poll(0)
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 1


async def test_a_block_that_ends_well_commits_what_was_polled_and_nothing_more() -> None:
    async with world() as here:
        consumer = await subscribed(here)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await settle()
        await consumer.poll(count_max=1)
        await consumer.__aexit__(None, None, None)
        assert here.broker.offsets[TOPIC, 0] == 1
        assert here.broker.members == []


async def test_without_auto_commit_only_the_caller_commits() -> None:
    async with world() as here:
        consumer = await subscribed(here, auto_commit=False)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await settle()
        await consumer.poll(count_max=1)
        await consumer.poll(count_max=1)
        await here.advance(10)
        assert not here.broker.commits
        await consumer.commit()
        assert await consumer.committed(queue(0)) == 2
        await consumer.commit({queue(0): 1})
        await consumer.close()
        assert here.broker.offsets[TOPIC, 0] == 1


async def test_pulls_are_lite_and_bring_the_filter_along() -> None:
    async with world() as here:
        consumer = await subscribed(here, tags="Aa")
        (header,) = pulls(here)
        assert (header.system_flag, header.subscription) == (0x16, "Aa")
        here.broker.store(b"1", TAGS="Aa")
        here.broker.store(b"2", TAGS="BB")
        await settle()
        assert bodies(await consumer.poll()) == [b"1"]
        heartbeat = fastjson.decode(here.server.of(RequestCode.HEART_BEAT)[0].body, HeartbeatData)
        (data,) = heartbeat.consumers
        assert (data.consume_type, len(data.subscriptions)) == ("CONSUME_ACTIVELY", 1)


async def test_queues_are_shared_and_given_up_ones_are_committed() -> None:
    async with world(2) as here:
        consumer = await subscribed(here)
        here.broker.store(b"one", 1)
        await settle()
        await consumer.poll()
        await consumer.poll(0)
        here.broker.strangers = ["zzz"]
        here.broker.notify()
        await here.advance(1)
        await until(lambda: consumer.assignment == [queue(0)])
        await until(lambda: here.broker.offsets.get((TOPIC, 1)) == 1)
        with pytest.raises(ClientError, match="not read here"):
            consumer.position(queue(1))


async def test_a_queue_that_is_given_up_takes_nothing_along_that_was_not_consumed() -> None:
    async with world(2) as here:
        consumer = await subscribed(here)
        here.broker.store(b"one", 0)
        here.broker.store(b"two", 1)
        await settle()
        assert len(await consumer.poll()) == 2
        here.broker.strangers = ["zzz"]
        here.broker.notify()
        await here.advance(1)
        await until(lambda: consumer.assignment == [queue(0)])
        await settle()
        assert not any(here.broker.offsets.values())


async def test_queues_may_be_chosen_instead() -> None:
    async with world(3) as here:
        here.broker.strangers = ["zzz"]
        for number in range(3):
            here.broker.store(b"%d" % number, number)
        async with here.client.lite_pull_consumer(GROUP, start=Start.FIRST) as consumer:
            await consumer.assign([queue(1), queue(2)])
            await until(lambda: len(pulls(here)) >= 4)
            assert sorted(bodies(await consumer.poll())) == [b"1", b"2"]
            await consumer.assign([queue(0)])
            assert consumer.assignment == [queue(0)]
            assert bodies(await consumer.poll()) == [b"0"]
            with pytest.raises(ClientError, match="subscribed or assigned"):
                consumer.subscribe(TOPIC)
        assert {place: offset for place, offset in here.broker.offsets.items() if offset} == {
            (TOPIC, number): 1 for number in range(3)
        }


async def test_subscribed_is_not_assigned() -> None:
    async with world() as here:
        consumer = await subscribed(here)
        with pytest.raises(ClientError, match="subscribed or assigned"):
            await consumer.assign([queue(0)])


async def test_seeking() -> None:
    async with world() as here:
        for number in range(5):
            here.broker.store(b"%d" % number)
        here.server.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda command: reply(
            command, header=OffsetReply(offset=3)
        )
        consumer = await subscribed(here)
        await consumer.seek(queue(0), 2)
        assert bodies(await consumer.poll(count_max=2)) == [b"2", b"3"]
        assert consumer.position(queue(0)) == 4
        assert await consumer.seek_to_start(queue(0)) == 0
        assert bodies(await consumer.poll(count_max=1)) == [b"0"]
        assert await consumer.seek_to_time(queue(0), datetime.fromtimestamp(0.001, UTC)) == 3
        assert bodies(await consumer.poll()) == [b"3", b"4"]
        assert await consumer.seek_to_end(queue(0)) == 5
        with pytest.raises(ClientError, match="outside the queue's 0 to 5"):
            await consumer.seek(queue(0), 6)


async def test_answers_from_before_a_seek_do_not_count() -> None:
    async with world() as here:
        for number in range(3):
            here.broker.store(b"%d" % number)
        consumer = await subscribed(here)  # its pull waits at 3
        await consumer.seek(queue(0), 0)
        here.broker.store(b"3")  # answers the pull from before, too
        await settle()
        assert bodies(await consumer.poll()) == [b"0", b"1", b"2", b"3"]
        assert await consumer.poll(0) == []


async def test_paused_queues_are_left_alone() -> None:
    async with world(2) as here:
        consumer = await subscribed(here)
        await until(lambda: len(consumer.assignment) == 2)
        await settle()
        consumer.pause([queue(0)])
        here.broker.store(b"zero", 0)
        here.broker.store(b"one", 1)
        await settle()
        assert bodies(await consumer.poll()) == [b"one"]
        consumer.resume([queue(0)])
        assert bodies(await consumer.poll()) == [b"zero"]


async def test_pulling_ahead_has_a_limit() -> None:
    async with world() as here:
        here.broker.count_max = 1
        consumer = await subscribed(here, limits=Limits(messages_max=2))
        for number in range(9):
            here.broker.store(b"%d" % number)
        await here.advance(1)
        assert len(pulls(here)) == 3
        await consumer.poll(count_max=2)
        await until(lambda: len(pulls(here)) == 5)


async def test_an_offset_outside_the_queue_and_a_reset_are_followed() -> None:
    async with world() as here:
        here.broker.first[TOPIC, 0] = 5
        here.broker.offsets[TOPIC, 0] = 1
        here.broker.store(b"five")
        here.broker.store(b"six")
        consumer = await subscribed(here)
        assert bodies(await consumer.poll()) == [b"five", b"six"]
        header = ResetOffsetHeader(topic=TOPIC, group=GROUP, timestamp_ms=0, is_force=True)
        body = fastjson.encode(ResetOffsets(offsets={queue(0): 6}))
        await here.broker.ask(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body))
        assert bodies(await consumer.poll()) == [b"six"]
        assert (TOPIC, 0, 6) in here.broker.commits


async def test_a_queue_whose_offset_is_unknown_is_not_read() -> None:
    async with world() as here:
        here.server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refusing(ResponseCode.SYSTEM_ERROR)
        async with here.client.lite_pull_consumer(GROUP) as consumer:
            with pytest.raises(ClientError, match="SYSTEM_ERROR"):
                await consumer.assign([queue(0)])
            assert consumer.assignment == []


async def test_a_consumer_must_run() -> None:
    async with world() as here:
        consumer = here.client.lite_pull_consumer(GROUP)
        with pytest.raises(ClientError, match="not running"):
            await consumer.poll()
        await consumer.start()
        polled = asyncio.create_task(consumer.poll(60))
        await settle()
        await consumer.close()
        assert await polled == []
        with pytest.raises(ClientError, match="not running"):
            await consumer.poll()
