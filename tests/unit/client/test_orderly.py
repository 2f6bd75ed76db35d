"""Consumers that keep order: one message of a queue at a time, and nobody else meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ariane.client.received import ReceivedMessage
from ariane.client.records import decode
from ariane.client.retrying import Retry, RetryLater
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol import fastjson
from ariane.protocol.bodies import LockRequest
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_properties
from tests.unit.client.fake import record, refusing
from tests.unit.client.group_broker import GROUP, TOPIC, queue, settle, until, world
from tests.unit.client.test_push_consumer import Kept, started

LOCK = RequestCode.LOCK_BATCH_MQ
SEND = RequestCode.SEND_MESSAGE_V2


class Failing:
    """A handler that fails so often for each message."""

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.times = times
        self.error = error or ValueError("not yet")
        self.seen: list[tuple[bytes, int]] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.seen.append((message.body, message.reconsume_times))
        if message.reconsume_times < self.times:
            raise self.error


async def test_a_message_is_begun_when_the_one_before_has_ended() -> None:
    async with world(2) as here:
        handler = Kept(at_once=False)
        await started(here, handler, orderly=True)
        for body in (b"a1", b"a2", b"a3"):
            here.broker.store(body, 0)
        here.broker.store(b"b1", 1)
        await until(lambda: len(handler.messages) == 2)
        await settle()
        assert sorted(handler.bodies) == [b"a1", b"b1"]
        handler.finish(b"a1")
        await until(lambda: len(handler.messages) == 3)
        await settle()
        assert handler.bodies[2] == b"a2"
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 1


async def test_a_message_that_fails_is_tried_in_its_place_after_a_second() -> None:
    async with world() as here:
        handler = Failing(2)
        await started(here, handler, orderly=True)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await until(lambda: handler.seen)
        await here.advance(0.9)
        assert handler.seen == [(b"one", 0)]
        await here.advance(0.1)
        assert handler.seen == [(b"one", 0), (b"one", 1)]
        await here.advance(1)
        assert handler.seen[2:] == [(b"one", 2), (b"two", 0)]
        assert not here.server.of(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_a_handler_says_how_long_to_wait() -> None:
    async with world() as here:
        handler = Failing(1, RetryLater(5))
        await started(here, handler, orderly=True)
        here.broker.store(b"one")
        await until(lambda: handler.seen)
        await here.advance(4.9)
        assert len(handler.seen) == 1
        await here.advance(0.2)
        assert len(handler.seen) == 2


async def test_after_sixteen_more_tries_it_is_a_dead_letter_and_the_queue_goes_on() -> None:
    async with world() as here:
        dead: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            if message.body == b"one":
                raise ValueError

        seen: list[tuple[bytes, int]] = []
        await started(
            here, handle, orderly=True, dead_letter=lambda message: dead.append(message.body)
        )
        here.broker.store(b"one", color="red")
        here.broker.store(b"two")
        for _ in range(17):
            await here.advance(1)
        assert seen == [*((b"one", number) for number in range(17)), (b"two", 0)]
        assert dead == [b"one"]
        (command,) = here.server.of(SEND)
        header = decode_header(SendHeaderV2, command.ext)
        assert (header.topic, header.reconsume_times) == (f"%RETRY%{GROUP}", 17)
        assert header.reconsume_times_max == 16
        properties = decode_properties(header.properties or "")
        assert (properties["RETRY_TOPIC"], properties["color"]) == (TOPIC, "red")
        assert "DELAY" not in properties
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 2


async def test_a_dead_letter_that_no_broker_takes_holds_the_queue_up() -> None:
    async with world() as here:
        here.server.answers[SEND] = refusing(ResponseCode.SERVICE_NOT_AVAILABLE)
        handler = Failing(99)
        await started(here, handler, orderly=True, retry=Retry(max=1))
        here.broker.store(b"one")
        here.broker.store(b"two")
        for _ in range(5):
            await here.advance(1)
        assert {body for body, _ in handler.seen} == {b"one"}
        assert len(handler.seen) == 6


async def test_a_queue_is_read_only_under_a_lock() -> None:
    async with world(2) as here:
        here.broker.locks[TOPIC, 1] = "somebody"
        here.broker.store(b"x", 1)
        handler = Kept()
        consumer = await started(here, handler, orderly=True)
        assert consumer.queues == [queue(0)]
        await here.advance(5)
        assert not here.broker.pulls(1)
        del here.broker.locks[TOPIC, 1]
        await here.advance(8)
        await until(lambda: consumer.queues == [queue(0), queue(1)])


async def test_the_offset_is_asked_for_once_and_under_the_lock() -> None:
    async with world() as here:
        await started(here, Kept(), orderly=True)
        codes = [
            command.code
            for command in here.server.requests
            if command.code in (LOCK, RequestCode.QUERY_CONSUMER_OFFSET)
            and b"%RETRY%" not in command.body
            and command.ext.get("topic", TOPIC) == TOPIC
        ]
        assert codes == [LOCK, RequestCode.QUERY_CONSUMER_OFFSET]


async def test_locks_are_renewed_every_twenty_seconds() -> None:
    async with world(2) as here:
        await started(here, Kept(), orderly=True)
        await here.advance(19.9)
        before = len(here.server.of(LOCK))
        await here.advance(0.2)
        (renewal,) = here.server.of(LOCK)[before:]
        body = fastjson.decode(renewal.body, LockRequest)
        assert (body.client_id, body.group) == (here.client.session.client_id, GROUP)
        assert {queue(0), queue(1)} <= set(body.queues)


async def test_nothing_is_begun_after_the_lock_is_lost() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler, orderly=True)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await until(lambda: handler.messages)
        here.broker.locks[TOPIC, 0] = "somebody"
        await here.advance(20)
        handler.finish(b"one")
        await settle()
        assert handler.bodies == [b"one"]
        del here.broker.locks[TOPIC, 0]
        await here.advance(20)
        assert handler.bodies == [b"one", b"two"]


async def test_a_lock_that_cannot_be_renewed_counts_for_thirty_seconds() -> None:
    async with world() as here:
        handler = Kept()
        await started(here, handler, orderly=True)
        here.server.answers[LOCK] = refusing(ResponseCode.SYSTEM_ERROR)
        await here.advance(25)
        here.broker.store(b"one")
        await until(lambda: handler.bodies == [b"one"])
        await here.advance(6)
        here.broker.store(b"two")
        await here.advance(1)
        assert handler.bodies == [b"one"]


async def test_a_queue_is_given_up_when_its_handler_has_ended() -> None:
    async with world(2) as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler, orderly=True)
        here.broker.store(b"one", 1)
        here.broker.store(b"two", 1)
        await until(lambda: handler.messages)
        here.broker.strangers = ["zzz"]
        await here.advance(20)
        assert (TOPIC, 1) in here.broker.locked
        assert here.broker.offsets.get((TOPIC, 1), 0) == 0
        handler.finish(b"one")
        await until(lambda: consumer.queues == [queue(0)])
        await until(lambda: (TOPIC, 1) not in here.broker.locked)
        assert here.broker.offsets[TOPIC, 1] == 1  # counted, since nobody else could begin it
        assert handler.bodies == [b"one"]


async def test_a_queue_that_comes_back_while_its_handler_runs_is_not_read_twice_at_once() -> None:
    async with world(2) as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler, orderly=True)
        here.broker.store(b"one", 1)
        here.broker.store(b"two", 1)
        await until(lambda: handler.messages)
        here.broker.strangers = ["zzz"]
        await here.advance(20)
        here.broker.strangers = []
        await here.advance(20)
        assert handler.bodies == [b"one"]
        handler.finish(b"one")
        await here.advance(10)
        await until(lambda: handler.bodies == [b"one", b"two"])
        assert consumer.queues == [queue(0), queue(1)]


async def test_closing_unlocks() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler, orderly=True)
        here.broker.store(b"one")
        await until(lambda: handler.messages)
        closing = asyncio.create_task(consumer.close())
        await settle()
        assert (TOPIC, 0) in here.broker.locked
        handler.finish(b"one")
        await closing
        assert not here.broker.locked
        assert here.broker.offsets[TOPIC, 0] == 1


async def test_closing_does_not_wait_for_ever_though_a_queue_is_being_given_up() -> None:
    async with world(2) as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler, orderly=True, drain=3)
        here.broker.store(b"one", 1)
        await until(lambda: handler.messages)
        here.broker.strangers = ["zzz"]
        await here.advance(20)
        closing = asyncio.create_task(consumer.close())
        await here.advance(3.1)
        await closing
        assert not here.broker.locked
        assert here.broker.offsets.get((TOPIC, 1), 0) == 0


async def test_a_broadcast_keeps_order_without_locks(tmp_path) -> None:  # type: ignore[no-untyped-def]
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler, orderly=True, broadcast=True, offsets_directory=tmp_path)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await until(lambda: handler.messages)
        await settle()
        assert handler.bodies == [b"one"]
        handler.finish(b"one")
        await until(lambda: handler.bodies == [b"one", b"two"])
        assert not here.server.of(LOCK)


async def test_a_queue_is_let_go_before_its_handler_begins_or_after_it_ends() -> None:
    """Handlers that block begin on threads, so `leave` may come in at any step of a beginning."""
    async with world() as here:
        consumer = await started(here, Kept(at_once=False), orderly=True)
        reader = consumer._holdings._readers[queue(0)]
        await reader.stop_pulling()
        has_lock, leaving = reader._has_lock, reader.leave()

        def left_meanwhile() -> bool:
            is_ours = has_lock()
            with suppress(StopIteration):
                leaving.send(None)
            return is_ours

        (message,) = decode(record(b"one", queue_offset=0), ReceivedMessage)
        message.holder = reader
        reader._has_lock = left_meanwhile  # type: ignore[method-assign]
        begun = reader.may_begin(message)
        assert reader.is_leaving
        assert not (begun and reader.process.is_dropped)
        leaving.close()
