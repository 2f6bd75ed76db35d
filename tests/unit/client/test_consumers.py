"""What brokers tell a consumer, and what they ask it."""

from __future__ import annotations

from typing import Any

from ariane.client.received import ReceivedMessage
from ariane.codes import RequestCode, ResponseCode
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue, ResetOffsets
from ariane.protocol.bodies.consumers import ConsumerStatus, DirectResult, RunningInfo
from ariane.protocol.command import request
from ariane.protocol.headers.clients import ConsumeDirectlyHeader, RunningInfoHeader
from ariane.protocol.headers.groups import GroupHeader
from ariane.protocol.headers.offsets import ResetOffsetHeader
from tests.unit.client.group_broker import GROUP, TOPIC, World, queue, settle, until, world
from tests.unit.client.test_push_consumer import Kept, started


async def reset(here: World, offsets: dict[MessageQueue, int], topic: str = TOPIC) -> None:
    header = ResetOffsetHeader(topic=topic, group=GROUP, timestamp_ms=0, is_force=True)
    await here.broker.ask(
        request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            header,
            fastjson.encode(ResetOffsets(offsets=offsets)),
        )
    )


async def test_a_reset_goes_on_elsewhere_and_is_committed() -> None:
    async with world(2) as here:
        for body in (b"0", b"1", b"2"):
            here.broker.store(body)
        here.broker.offsets[TOPIC, 0] = 2
        handler = Kept()
        await started(here, handler)
        await until(lambda: handler.bodies == [b"2"])
        await reset(here, {queue(0): 1, queue(7): 3, queue(0, "other"): 9})
        await until(lambda: handler.bodies == [b"2", b"1", b"2"])
        assert (TOPIC, 0, 1) in here.broker.commits
        assert not [commit for commit in here.broker.commits if commit[1] == 7]


async def test_what_was_in_process_before_a_reset_does_not_count() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler)
        for body in (b"0", b"1", b"2"):
            here.broker.store(body)
        await until(lambda: len(handler.messages) == 3)
        await reset(here, {queue(0): 1})
        await until(lambda: len(handler.messages) == 5)
        for body in (b"0",):
            handler.finish(body)
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 1
        handler.finish(b"1")
        handler.finish(b"2")
        await here.advance(5)
        assert here.broker.offsets[TOPIC, 0] == 3


async def test_a_reset_in_order_waits_for_the_handler() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler, orderly=True)
        here.broker.store(b"0")
        here.broker.store(b"1")
        await until(lambda: handler.messages)
        await reset(here, {queue(0): 1})
        await settle()
        assert handler.bodies == [b"0"]
        handler.finish(b"0")
        await until(lambda: handler.bodies == [b"0", b"1"])


async def test_offsets_are_told() -> None:
    async with world(2) as here:
        handler = Kept()
        await started(here, handler)
        here.broker.store(b"0", 1)
        await until(lambda: handler.messages)
        header = GroupHeader(group=GROUP, topic=TOPIC)
        answer = await here.broker.ask(request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
        assert b'"messageQueueTable":{{"brokerName"' in answer.body
        status = fastjson.decode(answer.body, ConsumerStatus)
        assert status.queues == {queue(0): 0, queue(1): 1}


async def test_what_it_is_doing_is_told() -> None:
    async with world() as here:
        handler = Kept(at_once=False)
        await started(here, handler, tags="T")
        for number in range(3):
            here.broker.store(b"%d" % number, TAGS="T")
        await until(lambda: len(handler.messages) == 3)
        handler.finish(b"0")
        await here.advance(5)
        header = RunningInfoHeader(
            group=GROUP, client_id=here.client.session.client_id, with_stacks=True
        )
        answer = await here.broker.ask(request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        info = fastjson.decode(answer.body, RunningInfo)
        held = info.queues[queue(0)]
        assert (held.message_count, held.min_offset, held.max_offset) == (2, 1, 2)
        assert (held.commit_offset, held.is_dropped, held.is_locked) == (1, False, False)
        assert held.consumed_at_ms == here.clock.wall_ms()
        assert info.rates[TOPIC].succeeded_per_s == 1 / 5
        assert info.rates[TOPIC].pulled_per_s == 3 / 5
        assert {data.topic for data in info.subscriptions} == {TOPIC, f"%RETRY%{GROUP}"}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_NAMESERVER_ADDR"] == here.cluster.name_server.address
        assert info.stacks is not None and "MainThread" in info.stacks and "Kept" in info.stacks


async def test_nobody_of_that_group_is_here() -> None:
    async with world() as here:
        await started(here, Kept())
        header = RunningInfoHeader(group="other", client_id="x")
        answer = await here.broker.ask(request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "other" in (answer.remark or "")


async def directly(here: World, handler: Any, **choices: Any) -> DirectResult:
    await started(here, handler, **choices)
    here.broker.store(b"seen", topic="elsewhere", TAGS="T")
    (record,) = here.broker.records["elsewhere", 0]
    header = ConsumeDirectlyHeader(group=GROUP, broker_name="a", topic="elsewhere")
    answer = await here.broker.ask(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record))
    assert answer.code == 0
    return fastjson.decode(answer.body, DirectResult)


async def test_a_message_is_consumed_directly() -> None:
    async with world() as here:
        handler = Kept()
        result = await directly(here, handler)
        assert (result.result, result.remark, result.is_orderly) == ("CR_SUCCESS", None, False)
        (message,) = handler.messages
        assert (message.body, message.tags, message.queue.broker_name) == (b"seen", "T", "a")
        await message.ack()
        assert not here.server.of(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_what_the_handler_thinks_of_it_is_the_answer() -> None:
    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("no good")

    async def refuse(message: ReceivedMessage) -> None:
        await message.nack()

    def block(message: ReceivedMessage) -> None:
        raise KeyError(message.body)

    async with world() as here:
        result = await directly(here, fail, orderly=True)
        assert (result.result, result.is_orderly) == ("CR_THROW_EXCEPTION", True)
        assert result.remark == "ValueError: no good"
    async with world() as here:
        assert (await directly(here, refuse)).result == "CR_LATER"
    async with world() as here:
        assert (await directly(here, block)).remark == "KeyError: b'seen'"


async def test_a_record_that_cannot_be_read_is_an_error() -> None:
    async with world() as here:
        await started(here, Kept())
        header = ConsumeDirectlyHeader(group=GROUP)
        answer = await here.broker.ask(
            request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, b"nonsense")
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
