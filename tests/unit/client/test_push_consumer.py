"""A member of a group by the clock: what it takes, commits, gives back and gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ariane.client.dead_letters import Reject
from ariane.client.local_offsets import decode_offsets
from ariane.client.process_queue import Limits
from ariane.client.push_consumer import PushConsumer
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry, RetryLater
from ariane.client.starting import Start
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, RequestFailed
from ariane.protocol import fastjson
from ariane.protocol.bodies import HeartbeatData
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.offsets import OffsetReply
from ariane.protocol.headers.retry import SendBackHeader
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_properties
from tests.unit.client.fake import refusing
from tests.unit.client.group_broker import GROUP, TOPIC, World, queue, settle, until, world

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2
BEAT = RequestCode.HEART_BEAT
LIST = RequestCode.GET_CONSUMER_LIST_BY_GROUP
Handler = Callable[[ReceivedMessage], Awaitable[None]]


class Kept:
    """A handler that keeps what it gets, and returns when it is told to."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.messages: list[ReceivedMessage] = []
        self.gates: dict[bytes, asyncio.Event] = {}
        self.at_once = at_once

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        if not self.at_once:
            await self.gates.setdefault(message.body, asyncio.Event()).wait()

    def finish(self, body: bytes) -> None:
        self.gates.setdefault(body, asyncio.Event()).set()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


async def started(here: World, handler: Any, **choices: Any) -> PushConsumer:
    """A consumer that has taken its share."""
    filters = {key: choices.pop(key) for key in ("tags", "sql") if key in choices}
    consumer = here.client.push_consumer(GROUP, handler, **choices)
    consumer.subscribe(TOPIC, **filters)
    await consumer.start()
    await until(lambda: consumer.queues and here.broker.pulls())
    return consumer


async def test_messages_are_handled_and_progress_is_committed_every_five_seconds() -> None:
    async with world() as here:
        handler = Kept()
        await started(here, handler)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await until(lambda: len(handler.messages) == 2)
        here.broker.commits.clear()
        await here.advance(4.9)
        assert (TOPIC, 0, 2) not in here.broker.commits
        await here.advance(0.1)
        assert (TOPIC, 0, 2) in here.broker.commits


async def test_a_commit_waits_for_the_oldest_message() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler)
        for body in (b"one", b"two", b"three"):
            here.broker.store(body)
        await until(lambda: len(handler.messages) == 3)
        handler.finish(b"two")
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 0
        handler.finish(b"one")
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 2


async def test_pulls_carry_the_progress_along() -> None:
    async with world() as here:
        handler = Kept()
        await started(here, handler)
        here.broker.store(b"one")
        await until(lambda: len(here.broker.pulls(0)) == 2)
        here.broker.store(b"two")
        await until(lambda: len(here.broker.pulls(0)) == 3)
        first, second, third = here.broker.pulls(0)
        assert (first.system_flag, first.commit_offset, first.suspend_ms) == (2, 0, 15_000)
        assert (second.queue_offset, third.queue_offset) == (1, 2)
        assert (third.system_flag, third.commit_offset) == (3, 1)
        assert first.subscription_version > 0


async def test_only_so_many_handlers_run_at_once() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler, concurrency=2)
        for number in range(5):
            here.broker.store(b"%d" % number)
        await until(lambda: len(handler.messages) == 2)
        await settle()
        assert handler.bodies == [b"0", b"1"]
        handler.finish(b"1")
        await until(lambda: len(handler.messages) == 3)
        await settle()
        assert handler.bodies == [b"0", b"1", b"2"]


async def test_what_fails_goes_back_to_its_broker_and_is_passed() -> None:
    async with world() as here:

        async def handle(message: ReceivedMessage) -> None:
            raise ValueError("not today")

        await started(here, handle)
        here.broker.store(b"one", tries=2)
        (command,) = await here.server.received(BACK)
        header = decode_header(SendBackHeader, command.ext)
        assert header == SendBackHeader(
            log_offset=1000,
            group=GROUP,
            delay_level=0,
            origin_message_id=f"{0:032X}",
            origin_topic=TOPIC,
            reconsume_times_max=None,  # the group's own number counts
            broker_name="a",
        )
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 1


LEVELS = {
    "a policy": (Retry(delays=(10, 3600)), 0, ValueError(), 3),
    "a policy's last": (Retry(delays=(10, 3600)), 5, ValueError(), 17),
    "said by the handler": (Retry(), 0, RetryLater(61), 6),
    "longer than any": (Retry(), 0, RetryLater(1e6), 18),
    "at once": (Retry(), 0, RetryLater(0), 1),
    "as usual": (Retry(), 3, RetryLater(), 0),
}


@pytest.mark.parametrize(("retry", "tries", "error", "level"), LEVELS.values(), ids=LEVELS)
async def test_delays_become_levels(retry: Retry, tries: int, error: Exception, level: int) -> None:
    async with world() as here:

        async def handle(message: ReceivedMessage) -> None:
            raise error

        await started(here, handle, retry=retry)
        here.broker.store(b"one", tries=tries)
        (command,) = await here.server.received(BACK)
        assert decode_header(SendBackHeader, command.ext).delay_level == level


async def test_a_message_that_its_broker_does_not_take_back_is_sent_anew() -> None:
    async with world() as here:
        here.server.answers[BACK] = refusing(ResponseCode.SYSTEM_ERROR)

        async def handle(message: ReceivedMessage) -> None:
            raise ValueError

        await started(here, handle)
        here.broker.store(b"one", tries=2, TAGS="T", DELAY="3", TIMER_OUT_MS="5", color="red")
        (command,) = await here.server.received(SEND)
        header = decode_header(SendHeaderV2, command.ext)
        assert (header.topic, header.group) == (f"%RETRY%{GROUP}", "CLIENT_INNER_PRODUCER")
        assert (header.reconsume_times, header.reconsume_times_max) == (3, None)
        assert command.body == b"one"
        assert decode_properties(header.properties or "") == {
            "UNIQ_KEY": f"{0:032X}",
            "TAGS": "T",
            "color": "red",
            "RETRY_TOPIC": TOPIC,
            "ORIGIN_MESSAGE_ID": f"{0:032X}",
            "DELAY": "5",
            "WAIT": "true",
        }
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 1


async def test_what_no_broker_takes_back_is_tried_here_again() -> None:
    async with world() as here:
        here.server.answers[BACK] = here.server.answers[SEND] = refusing(
            ResponseCode.SERVICE_NOT_AVAILABLE
        )
        tries: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            if len(tries) == 1:
                raise ValueError

        await started(here, handle)
        here.broker.store(b"one")
        await here.server.received(SEND)
        await here.advance(4.9)
        assert tries == [0]
        assert here.broker.offsets.get((TOPIC, 0), 0) == 0
        await here.advance(0.2)
        assert tries == [0, 1]
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 1


async def test_the_last_try_makes_a_dead_letter_and_tells_of_it() -> None:
    async with world() as here:
        dead: list[bytes] = []

        async def mourn(message: ReceivedMessage) -> None:
            dead.append(message.body)

        async def handle(message: ReceivedMessage) -> None:
            raise ValueError

        await started(here, handle, retry=Retry(max=3), dead_letter=mourn)
        here.broker.store(b"early", tries=2)
        here.broker.store(b"late", tries=3)
        commands = await here.server.received(BACK, 2)
        assert {command.ext["maxReconsumeTimes"] for command in commands} == {"3"}
        await until(lambda: dead)
        assert dead == [b"late"]


async def test_a_retried_message_has_its_own_topic_again() -> None:
    async with world() as here:
        handler = Kept()
        consumer = await started(here, handler)
        await until(lambda: here.broker.pulls(topic=f"%RETRY%{GROUP}"))
        here.broker.store(b"one", topic=f"%RETRY%{GROUP}", tries=1, RETRY_TOPIC=TOPIC)
        await until(lambda: handler.messages)
        (message,) = handler.messages
        assert (message.topic, message.stored_topic) == (TOPIC, f"%RETRY%{GROUP}")
        assert (message.reconsume_times, message.queue.topic) == (1, f"%RETRY%{GROUP}")
        assert consumer.queues == [queue(0)]


async def test_tags_are_told_to_the_broker_and_compared_here() -> None:
    async with world() as here:
        handler = Kept()
        await started(here, handler, tags="Aa || C")
        for body, tag in ((b"1", "Aa"), (b"2", "BB"), (b"3", "C")):
            here.broker.store(body, TAGS=tag)
        await until(lambda: len(handler.messages) == 2)
        assert handler.bodies == [b"1", b"3"]
        heartbeat = fastjson.decode(here.server.of(BEAT)[-1].body, HeartbeatData)
        (consumer,) = heartbeat.consumers
        told = {data.topic: data.tags for data in consumer.subscriptions}
        assert told == {TOPIC: ["Aa", "C"], f"%RETRY%{GROUP}": []}
        assert (consumer.consume_type, consumer.message_model) == (
            "CONSUME_PASSIVELY",
            "CLUSTERING",
        )
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 3


async def test_pulling_stops_when_enough_waits_and_goes_on_after_fifty_milliseconds() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        here.broker.count_max = 2
        await started(here, handler, concurrency=1, limits=Limits(messages_max=3))
        for number in range(10):
            here.broker.store(b"%d" % number)
        await until(lambda: len(here.broker.pulls(0)) == 3)  # none, 0 and 1, 2 and 3
        await here.advance(0.049)
        assert len(here.broker.pulls(0)) == 3
        for body in (b"0", b"1", b"2"):
            handler.finish(body)
        await until(lambda: len(here.broker.pulls(0)) == 4)  # room wakes it before the time is up


async def test_the_span_of_offsets_is_limited_too() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        here.broker.count_max = 2
        await started(here, handler, limits=Limits(span_max=2))
        for number in range(10):
            here.broker.store(b"%d" % number)
        await until(lambda: len(here.broker.pulls(0)) == 3)
        for number in range(1, 4):
            handler.finish(b"%d" % number)
        await here.advance(0.2)
        assert len(here.broker.pulls(0)) == 3  # the oldest holds all others up
        handler.finish(b"0")
        await until(lambda: len(here.broker.pulls(0)) == 4)


async def test_queues_are_shared_with_the_other_members() -> None:
    async with world(4) as here:
        here.broker.strangers = ["zzz"]  # sorts last
        consumer = await started(here, Kept())
        assert consumer.queues == [queue(0), queue(1)]
        here.broker.strangers = ["!", "zzz"]
        here.broker.notify()
        await until(lambda: here.server.of(LIST))
        await here.advance(1)
        await until(lambda: consumer.queues == [queue(2)])


async def test_the_split_is_worked_out_every_twenty_seconds() -> None:
    async with world(2) as here:
        consumer = await started(here, Kept())
        assert len(consumer.queues) == 2
        here.broker.strangers = ["zzz"]
        await here.advance(19.9)
        assert len(consumer.queues) == 2
        await here.advance(0.2)
        await until(lambda: consumer.queues == [queue(0)])


async def test_a_notification_counts_at_once_but_not_every_time() -> None:
    async with world(2) as here:
        await started(here, Kept())
        await here.advance(5)
        before = len(here.server.of(LIST))
        here.broker.notify()
        await until(lambda: len(here.server.of(LIST)) > before)
        await settle()
        once = len(here.server.of(LIST))
        here.broker.notify()
        await settle()
        assert len(here.server.of(LIST)) == once
        await here.advance(1)
        assert len(here.server.of(LIST)) > once


async def test_a_queue_that_is_given_up_is_committed_and_no_longer_counts() -> None:
    async with world(2) as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler)
        for number in (0, 1):
            here.broker.store(b"done-%d" % number, number)
            here.broker.store(b"busy-%d" % number, number)
        await until(lambda: len(handler.messages) == 4)
        handler.finish(b"done-0")
        handler.finish(b"done-1")
        await settle()
        here.broker.strangers = ["zzz"]
        await here.advance(20)
        await until(lambda: consumer.queues == [queue(0)])
        assert here.broker.offsets[TOPIC, 1] == 1
        here.broker.offsets[TOPIC, 1] = 77  # the new owner gets on
        handler.finish(b"busy-1")
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 1] == 77


async def test_a_member_list_without_us_takes_all_queues_away() -> None:
    async with world() as here:
        consumer = await started(here, Kept())
        here.server.answers[BEAT] = reply  # the broker has forgotten us and will not remember
        here.broker.members.clear()
        here.broker.strangers = ["zzz"]
        await here.advance(20)
        await until(lambda: not consumer.queues)


async def test_a_member_list_that_cannot_be_had_changes_nothing() -> None:
    async with world() as here:
        consumer = await started(here, Kept())
        here.server.answers[LIST] = refusing(ResponseCode.SYSTEM_ERROR)
        await here.advance(60)
        assert consumer.queues == [queue(0)]


async def test_a_queue_is_not_taken_while_its_offset_is_unknown() -> None:
    async with world() as here:
        query = RequestCode.QUERY_CONSUMER_OFFSET
        here.broker.store(b"old")
        working = here.server.answers[query]
        here.server.answers[query] = refusing(ResponseCode.SYSTEM_ERROR)
        handler = Kept()
        consumer = here.client.push_consumer(GROUP, handler, start=Start.FIRST)
        consumer.subscribe(TOPIC)
        await consumer.start()
        await here.server.received(query)
        await here.advance(10)
        assert consumer.queues == []
        assert not here.broker.pulls()
        assert not here.broker.commits
        here.server.answers[query] = working
        await here.advance(20)
        await until(lambda: handler.bodies == [b"old"])


async def test_what_is_sent_once_it_has_started_is_received() -> None:
    async with world() as here:
        handler = Kept()
        consumer = here.client.push_consumer(GROUP, handler)
        consumer.subscribe(TOPIC)
        await consumer.start()
        here.broker.store(b"new")
        await until(lambda: handler.bodies == [b"new"])


async def test_the_first_message_of_a_queue_counts_though_it_came_while_we_asked() -> None:
    async with world() as here:
        query = RequestCode.QUERY_CONSUMER_OFFSET
        working = here.server.answers[query]

        def empty(command: Command) -> Command | None:
            answer = working(command)
            if command.ext["topic"] == TOPIC:
                here.broker.store(b"first")
                here.broker.offsets[TOPIC, 0] = 0  # what brokers answer of a young queue
                here.server.answers[query] = working
            return answer

        here.server.answers[query] = empty
        handler = Kept()
        await started(here, handler)
        await until(lambda: handler.bodies == [b"first"])


async def test_a_broker_that_does_not_answer_keeps_nobody_from_starting() -> None:
    async with world() as here:
        query = RequestCode.QUERY_CONSUMER_OFFSET
        working = here.server.answers[query]
        here.server.answers[query] = lambda command: None
        handler = Kept()
        consumer = here.client.push_consumer(GROUP, handler)
        consumer.subscribe(TOPIC)
        starting = asyncio.create_task(consumer.start())
        await here.server.received(query)
        await here.advance(2)
        assert not starting.done()
        await here.advance(1)
        await asyncio.wait_for(starting, 30)
        assert consumer.queues == []
        here.server.answers[query] = working
        await here.advance(5)
        await here.advance(10)
        await until(lambda: consumer.queues)


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_consumer_that_is_closed_before_its_first_share_has_not_joined(
    is_cancelled: bool,
) -> None:
    async with world() as here:
        query = RequestCode.QUERY_CONSUMER_OFFSET
        here.server.answers[query] = lambda command: None
        consumer = here.client.push_consumer(GROUP, Kept())
        consumer.subscribe(TOPIC)
        starting = asyncio.create_task(consumer.start())
        await here.server.received(query)
        if is_cancelled:
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(starting, 30)
        else:
            await consumer.close()
            with pytest.raises(ClientError, match="closed before it had begun"):
                await asyncio.wait_for(starting, 30)
        assert here.broker.members == []


STARTS = {
    "last": (Start.LAST, None, 3),
    "first": (Start.FIRST, None, 1),
    "time": (Start.at(datetime.fromtimestamp(1_700_000_000, UTC)), None, 2),
    "committed": (Start.LAST, 1, 1),
    "committed counts before first": (Start.FIRST, 2, 2),
}


@pytest.mark.parametrize(("start", "committed", "position"), STARTS.values(), ids=STARTS)
async def test_where_a_group_begins(start: Start, committed: int | None, position: int) -> None:
    async with world() as here:
        here.broker.first[TOPIC, 0] = 1
        here.broker.store(b"one")
        here.broker.store(b"two")
        here.broker.store(b"retried", topic=f"%RETRY%{GROUP}")
        if committed is not None:
            here.broker.offsets[TOPIC, 0] = committed
        here.server.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda command: reply(
            command, header=OffsetReply(offset=2)
        )
        await started(here, Kept(), start=start)
        await until(lambda: here.broker.pulls(0) and here.broker.pulls(topic=f"%RETRY%{GROUP}"))
        assert here.broker.pulls(0)[0].queue_offset == position
        # What failed is taken from the start, unless time was asked for.
        retried = here.broker.pulls(topic=f"%RETRY%{GROUP}")[0].queue_offset
        assert retried == (1 if start.moment_ms else 0)


async def test_an_offset_outside_the_queue_is_put_right() -> None:
    async with world() as here:
        here.broker.first[TOPIC, 0] = 5
        here.broker.store(b"five")
        here.broker.offsets[TOPIC, 0] = 2
        handler = Kept()
        await started(here, handler)
        await until(lambda: handler.bodies == [b"five"])
        assert (TOPIC, 0, 5) in here.broker.commits


async def test_what_was_in_process_does_not_count_after_the_queue_has_moved() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler)
        here.broker.store(b"zero")
        await until(lambda: handler.messages)
        here.broker.first[TOPIC, 0] = 7  # the queue has been emptied meanwhile
        here.broker.records[TOPIC, 0].clear()
        here.broker.store(b"seven")
        await until(lambda: len(handler.messages) == 2)
        handler.finish(b"zero")
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 7
        handler.finish(b"seven")
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 8


async def test_a_broker_that_does_not_know_us_is_told_of_us_first() -> None:
    async with world() as here:
        pull = here.server.answers[RequestCode.PULL_MESSAGE]
        here.server.answers[RequestCode.PULL_MESSAGE] = refusing(
            ResponseCode.SUBSCRIPTION_NOT_EXIST
        )
        handler = Kept()
        await started(here, handler)
        beats = len(here.server.of(BEAT))
        await until(lambda: len(here.server.of(BEAT)) > beats)
        here.server.answers[RequestCode.PULL_MESSAGE] = pull
        here.broker.store(b"one")
        await here.advance(1)
        await until(lambda: handler.bodies == [b"one"])


async def test_a_broker_that_missed_our_first_heartbeat_hears_the_next_soon() -> None:
    async with world() as here:
        beat = here.server.answers[BEAT]
        here.server.answers[BEAT] = refusing(ResponseCode.SYSTEM_ERROR)
        consumer = here.client.push_consumer(GROUP, Kept())
        consumer.subscribe(TOPIC)
        await consumer.start()
        await settle()
        here.server.answers[BEAT] = beat
        await here.advance(3)  # long before the heartbeat that is sent every thirty seconds
        await until(lambda: consumer.queues)


async def test_a_broker_that_throttles_is_asked_again_soon() -> None:
    async with world() as here:
        here.server.answers[RequestCode.PULL_MESSAGE] = refusing(ResponseCode.FLOW_CONTROL)
        await started(here, Kept())
        await until(lambda: len(here.broker.pulls(0)) == 1)
        await here.advance(0.02)
        assert len(here.broker.pulls(0)) == 2
        await here.advance(0.02)
        assert len(here.broker.pulls(0)) == 2  # twice as long each time
        await here.advance(0.02)
        assert len(here.broker.pulls(0)) == 3


async def test_a_lost_connection_is_survived() -> None:
    async with world() as here:
        handler = Kept()
        await started(here, handler)
        await until(lambda: len(here.broker.held) == 2)
        here.broker.held.clear()
        for connection in here.server.connections:
            connection.drop("a cut cable")
        await settle()
        await here.advance(1)
        await until(lambda: here.broker.held)
        here.broker.store(b"one")
        await until(lambda: handler.bodies == [b"one"])


async def test_messages_stuck_for_fifteen_minutes_are_sent_back() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler)
        here.broker.store(b"stuck")
        here.broker.store(b"quick")
        await until(lambda: len(handler.messages) == 2)
        handler.finish(b"quick")
        for _ in range(15):
            await here.advance(60)
        assert not here.server.of(BACK)
        await here.advance(60)
        (command,) = await here.server.received(BACK)
        assert decode_header(SendBackHeader, command.ext).delay_level == 3
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 2
        handler.finish(b"stuck")  # its end changes nothing
        await settle()
        assert len(here.server.of(BACK)) == 1


async def test_who_asks_for_more_time_has_it() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler)
        here.broker.store(b"long")
        await until(lambda: handler.messages)
        for _ in range(15):
            await here.advance(60)
        await handler.messages[0].extend()
        for _ in range(14):
            await here.advance(60)
        assert not here.server.of(BACK)
        await handler.messages[0].extend(3600)
        for _ in range(59):
            await here.advance(60)
        assert not here.server.of(BACK)
        await here.advance(120)
        await here.server.received(BACK)


async def test_closing_waits_for_handlers_commits_and_leaves() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler, concurrency=1)
        for body in (b"one", b"two"):
            here.broker.store(body)
        await until(lambda: handler.messages)
        closing = asyncio.create_task(consumer.close())
        await settle()
        assert not closing.done()
        handler.finish(b"one")
        await closing
        assert handler.bodies == [b"one"]  # the other was not begun
        assert here.broker.offsets[TOPIC, 0] == 1
        (goodbye,) = here.server.of(RequestCode.UNREGISTER_CLIENT)
        assert goodbye.ext["consumerGroup"] == GROUP
        await consumer.close()


async def test_closing_does_not_wait_for_ever() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        consumer = await started(here, handler, drain=3)
        here.broker.store(b"one")
        await until(lambda: handler.messages)
        closing = asyncio.create_task(consumer.close())
        await here.advance(3.1)
        await closing
        assert here.broker.offsets.get((TOPIC, 0), 0) == 0


async def test_closing_the_client_closes_its_consumers() -> None:
    async with world() as here:
        handler = Kept()
        before = asyncio.all_tasks()
        await started(here, handler)
        here.broker.store(b"one")
        await until(lambda: handler.messages)
        await here.client.close()
        assert here.broker.offsets[TOPIC, 0] == 1
        await settle()
        assert asyncio.all_tasks() <= before


async def test_a_client_has_one_consumer_of_a_group() -> None:
    async with world() as here:
        await started(here, Kept())
        with pytest.raises(ClientError, match="already"):
            await started(here, Kept())


async def test_a_consumer_needs_a_topic_and_starts_once() -> None:
    async with world() as here:
        consumer = here.client.push_consumer(GROUP, Kept())
        with pytest.raises(ClientError, match="no topic"):
            await consumer.start()
        consumer.subscribe(TOPIC)
        await consumer.start()
        with pytest.raises(ClientError, match="started before"):
            await consumer.start()
        with pytest.raises(ClientError, match="group name"):
            here.client.push_consumer("a b", Kept())
        with pytest.raises(ClientError, match="concurrency"):
            here.client.push_consumer("g", Kept(), concurrency=0)


async def test_an_expression_that_brokers_do_not_take_stops_the_start() -> None:
    async with world() as here:
        check = RequestCode.CHECK_CLIENT_CONFIG
        here.server.answers[check] = refusing(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        with pytest.raises(RequestFailed, match="PARSE_FAILED"):
            await started(here, Kept(), sql="a >")
        assert here.broker.members == []
        del here.server.answers[check]
        await started(here, Kept(), sql="a > 1")
        assert b'"a > 1"' in here.server.of(check)[-1].body
        await until(here.broker.pulls)
        assert here.broker.pulls()[0].expression_type == "SQL92"


async def test_topics_come_and_go_while_it_runs() -> None:
    async with world() as here:
        here.cluster.queue_counts["refunds"] = 1
        handler = Kept()
        consumer = await started(here, handler)
        await here.advance(2)
        consumer.subscribe("refunds")
        await until(lambda: len(consumer.queues) == 2)
        here.broker.store(b"refund", topic="refunds")
        await until(lambda: handler.bodies == [b"refund"])
        await here.advance(2)
        consumer.unsubscribe(TOPIC)
        await until(lambda: consumer.queues == [queue(0, "refunds")])
        await here.advance(1)
        heartbeat = fastjson.decode(here.server.of(BEAT)[-1].body, HeartbeatData)
        assert {data.topic for data in heartbeat.consumers[0].subscriptions} == {
            "refunds",
            f"%RETRY%{GROUP}",
        }


async def test_a_topic_that_does_not_exist_yet_is_waited_for_and_said_loudly_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as here:
        consumer = here.client.push_consumer(GROUP, Kept())
        consumer.subscribe("new")
        await consumer.start()
        await here.advance(5)
        assert consumer.queues == []
        assert consumer.missing_topics == ["new"]
        said = [record for record in caplog.records if "nothing to consume yet" in record.message]
        assert len(said) == 1
        assert "topic 'new' does not exist" in said[0].message
        here.cluster.queue_counts["new"] = 1
        await here.advance(8)
        await until(lambda: consumer.queues == [queue(0, "new")])
        assert consumer.missing_topics == []


async def test_pausing_stops_pulls_and_nothing_else() -> None:
    async with world() as here:
        handler = Kept()
        consumer = await started(here, handler)
        await until(lambda: here.broker.pulls(0))
        consumer.pause()
        here.broker.store(b"one")  # the pull that waited brings it
        await until(lambda: handler.bodies == [b"one"])
        here.broker.store(b"two")
        await settle()
        assert handler.bodies == [b"one"]
        consumer.resume()
        await until(lambda: handler.bodies == [b"one", b"two"])


async def test_broadcasts_read_everything_keep_their_own_offsets_and_never_retry(
    tmp_path: Path,
) -> None:
    async with world(2) as here:
        here.broker.strangers = ["zzz"]
        handled: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            handled.append(message.body)
            raise ValueError

        consumer = await started(
            here, handle, broadcast=True, offsets_directory=tmp_path, start=Start.FIRST
        )
        assert consumer.queues == [queue(0), queue(1)]
        here.broker.store(b"one", 0)
        here.broker.store(b"two", 1)
        await until(lambda: sorted(handled) == [b"one", b"two"])
        await consumer.close()
        assert not here.server.of(BACK) and not here.server.of(SEND)
        assert not here.broker.commits
        assert not here.broker.pulls(topic=f"%RETRY%{GROUP}")
        assert {header.system_flag for header in here.broker.pulls()} == {2}
        heartbeat = fastjson.decode(here.server.of(BEAT)[0].body, HeartbeatData)
        assert heartbeat.consumers[0].message_model == "BROADCASTING"
    (path,) = tmp_path.glob("*@DEFAULT/*/offsets.json")  # noqa: ASYNC240 - all is over
    assert decode_offsets(path.read_bytes()) == {queue(0): 1, queue(1): 1}


async def test_a_broadcast_goes_on_where_its_file_says(tmp_path: Path) -> None:
    for expected in ([b"one"], [b"two"]):
        async with world() as here:
            here.broker.store(b"one")
            if expected == [b"two"]:
                here.broker.store(b"two")
            handler = Kept()
            consumer = await started(
                here, handler, broadcast=True, offsets_directory=tmp_path, start=Start.FIRST
            )
            await until(lambda: handler.bodies == expected)  # noqa: B023 - used within the loop
            await consumer.close()


async def test_a_handler_may_settle_its_message_itself() -> None:
    async with world() as here:

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"later":
                await message.nack(30)
            else:
                await message.ack()
                raise ValueError("too late")

        await started(here, handle)
        here.broker.store(b"later")
        here.broker.store(b"now")
        (command,) = await here.server.received(BACK)
        assert command.ext["delayLevel"] == "4"
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 2
        assert len(here.server.of(BACK)) == 1


async def test_a_handler_that_something_cancels_has_failed() -> None:
    async with world() as here:

        async def handle(message: ReceivedMessage) -> None:
            raise asyncio.CancelledError

        await started(here, handle, concurrency=1)
        here.broker.store(b"one")
        here.broker.store(b"two")
        await here.server.received(BACK, 2)


class NoException(BaseException):
    """As pytest's `fail` raises."""


async def awaits(error: BaseException) -> None:
    raise error


def blocks(error: BaseException) -> None:
    raise error


def passes_on(error: BaseException) -> Awaitable[None]:
    return awaits(error)


RAISED = [
    (awaits, NoException()),
    (awaits, GeneratorExit()),
    (awaits, StopIteration()),
    (blocks, NoException()),
    (blocks, GeneratorExit()),
    (blocks, StopIteration()),
    (blocks, SystemExit(1)),
    (passes_on, ValueError()),
]


@pytest.mark.parametrize("batch", [None, 1])
@pytest.mark.parametrize(("fail", "error"), RAISED)
async def test_whatever_a_handler_raises_is_for_its_message_s_account(
    fail: Callable[[BaseException], Any], error: BaseException, batch: int | None
) -> None:
    async with world() as here:
        handled: list[bytes] = []

        def fail_once(given: Any) -> Any:
            message = given[0] if batch else given
            return fail(error) if message.body == b"one" else handled.append(message.body)

        async def awaiting(given: Any) -> None:
            if (result := fail_once(given)) is not None:
                await result

        handler = awaiting if fail is awaits else fail_once
        consumer = await started(here, handler, concurrency=1, batch=batch)
        here.broker.store(b"one")
        await here.server.received(BACK)
        here.broker.store(b"two")
        await until(lambda: handled == [b"two"])
        await asyncio.wait_for(consumer.close(), 30)


@pytest.mark.provokes("dead-letter hook failed")
@pytest.mark.parametrize(("fail", "error"), [*RAISED, (awaits, asyncio.CancelledError())])
async def test_whatever_a_dead_letter_hook_raises_other_messages_are_handled(
    fail: Callable[[BaseException], Any], error: BaseException
) -> None:
    async with world() as here:
        handler = Kept()
        told: list[ReceivedMessage] = []

        async def reject(message: ReceivedMessage) -> None:
            await handler(message)
            raise Reject

        def plain(message: ReceivedMessage) -> Any:
            told.append(message)
            return fail(error)

        async def awaiting(message: ReceivedMessage) -> None:
            await plain(message)

        hook = awaiting if fail is awaits else plain
        await started(here, reject, concurrency=1, dead_letter=hook)
        here.broker.store(b"one")
        await until(lambda: told)
        here.broker.store(b"two")
        await until(lambda: handler.bodies == [b"one", b"two"] and len(told) == 2)


async def test_handlers_that_block_run_on_threads() -> None:
    async with world() as here:
        names: list[str] = []

        def handle(message: ReceivedMessage) -> None:
            import threading  # noqa: PLC0415

            names.append(threading.current_thread().name)
            if message.body == b"bad":
                raise RetryLater(10)

        consumer = await started(here, handle, concurrency=2)
        for body in (b"one", b"bad", b"three"):
            here.broker.store(body)
        (command,) = await here.server.received(BACK)
        assert command.ext["delayLevel"] == "3"
        await until(lambda: len(names) == 3)
        assert all(name.startswith("ariane-consumer-") for name in names)
        await consumer.close()
        assert here.broker.offsets[TOPIC, 0] == 3


def answer_of(command: Command) -> dict[str, Any]:
    loaded = fastjson.loads(command.body)
    assert isinstance(loaded, dict)
    return {str(key): value for key, value in loaded.items()}
