"""Pulls, positions and commits against a broker that answers what it is told."""

import asyncio
import zlib
from datetime import UTC, datetime

import pytest

from ariane.client import MessageQueue, PullStatus
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import RequestFailed, RequestTimeout, RouteNotFound
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.offsets import OffsetReply
from ariane.protocol.headers.pull import PullHeader
from tests.unit.client.fake import client_of, pulled, record, refusing, running, silent

PULL = RequestCode.PULL_MESSAGE
QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=1)


def offset(value: int):  # type: ignore[no-untyped-def]
    return lambda command: reply(command, header=OffsetReply(offset=value))


def header_of(command: Command) -> PullHeader:
    return decode_header(PullHeader, command.ext)


async def test_messages_come_decoded_and_the_position_moves_past_them() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        body = record(b"one", queue_offset=5) + record(b"two", queue_offset=6, tags="T")
        broker = cluster.brokers["a"]
        broker.answers[PULL] = pulled(ResponseCode.SUCCESS, body=body, next_offset=7)
        consumer = client.pull_consumer()
        consumer.seek(QUEUE, 5)
        found = await consumer.pull(QUEUE)
        assert found.status is PullStatus.FOUND
        assert [message.body for message in found.messages] == [b"one", b"two"]
        assert [message.queue_offset for message in found.messages] == [5, 6]
        assert await consumer.position(QUEUE) == 7
        asked = header_of(broker.of(PULL)[0])
        assert (asked.queue_id, asked.queue_offset, asked.count_max) == (1, 5, 32)
        assert asked.system_flag == 4  # the subscription comes along; do not hold


async def test_compressed_bodies_are_inflated() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        body = record(zlib.compress(b"x" * 9_000), flag=0x301)
        cluster.brokers["a"].answers[PULL] = pulled(ResponseCode.SUCCESS, body=body)
        found = await client.pull_consumer().read(QUEUE, 0)
        assert found.messages[0].body == b"x" * 9_000


OUTCOMES = {
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.MOVED,
}


@pytest.mark.parametrize(("code", "status"), OUTCOMES.items())
async def test_finding_nothing_is_an_answer_that_says_where_to_go_on(
    code: ResponseCode, status: PullStatus
) -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[PULL] = pulled(code, next_offset=42, max_offset=99)
        consumer = client.pull_consumer()
        consumer.seek(QUEUE, 3)
        found = await consumer.pull(QUEUE)
        assert (found.status, found.messages, found.max_offset) == (status, [], 99)
        assert await consumer.position(QUEUE) == 42


async def test_a_refusal_is_an_error() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[PULL] = refusing(ResponseCode.NO_PERMISSION)
        with pytest.raises(RequestFailed, match="NO_PERMISSION"):
            await client.pull_consumer().read(QUEUE, 0)


async def test_tags_are_compared_by_their_words_too() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        body = record(b"wanted", tags="Aa") + record(b"same hash", tags="BB") + record(b"none")
        cluster.brokers["a"].answers[PULL] = pulled(ResponseCode.SUCCESS, body=body)
        found = await client.pull_consumer().read(QUEUE, 0, tags="Aa || C")
        assert [message.body for message in found.messages] == [b"wanted"]
        assert header_of(cluster.brokers["a"].of(PULL)[0]).subscription == "Aa || C"


async def test_waiting_is_asked_of_the_broker_and_outlasted() -> None:
    clock = ManualClock()
    async with running("a", orders=2) as cluster, client_of(cluster, clock) as client:
        cluster.brokers["a"].answers[PULL] = silent
        read = asyncio.create_task(client.pull_consumer().read(QUEUE, 0, wait=20))
        (command,) = await cluster.brokers["a"].received(PULL)
        asked = header_of(command)
        assert (asked.system_flag, asked.suspend_ms) == (6, 20_000)
        clock.advance(20)
        assert not read.done()
        clock.advance(11)
        with pytest.raises(RequestTimeout):
            await read


async def test_the_first_position_is_what_the_group_committed() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        answers = cluster.brokers["a"].answers
        answers[RequestCode.QUERY_CONSUMER_OFFSET] = offset(17)
        assert await client.pull_consumer("g").position(QUEUE) == 17


async def test_a_group_that_committed_nothing_starts_at_the_oldest_message() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        answers = cluster.brokers["a"].answers
        answers[RequestCode.QUERY_CONSUMER_OFFSET] = refusing(ResponseCode.QUERY_NOT_FOUND)
        answers[RequestCode.GET_MIN_OFFSET] = offset(3)
        consumer = client.pull_consumer("g")
        assert await consumer.committed(QUEUE) is None
        assert await consumer.position(QUEUE) == 3


async def test_seeking() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        broker.answers[RequestCode.GET_MIN_OFFSET] = offset(3)
        broker.answers[RequestCode.GET_MAX_OFFSET] = offset(30)
        broker.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = offset(12)
        consumer = client.pull_consumer()
        assert await consumer.seek_to_start(QUEUE) == 3
        assert await consumer.seek_to_end(QUEUE) == 30
        assert await consumer.seek_to_time(QUEUE, datetime.fromtimestamp(1_700_000_000, UTC)) == 12
        assert await consumer.position(QUEUE) == 12
        (search,) = broker.of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        assert search.ext["timestamp"] == "1700000000000"


async def test_a_seek_during_a_pull_wins() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        consumer = client.pull_consumer()
        consumer.seek(QUEUE, 0)

        def answer(command: Command) -> Command:
            consumer.seek(QUEUE, 100)
            found = pulled(ResponseCode.SUCCESS, body=record(b"x"), next_offset=1)(command)
            assert found is not None
            return found

        cluster.brokers["a"].answers[PULL] = answer
        await consumer.pull(QUEUE)
        assert await consumer.position(QUEUE) == 100


async def test_commits_tell_the_position_unless_told_otherwise() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        consumer = client.pull_consumer("g")
        consumer.seek(QUEUE, 8)
        await consumer.commit(QUEUE)
        await consumer.commit(QUEUE, 5)
        commits = cluster.brokers["a"].of(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert [command.ext["commitOffset"] for command in commits] == ["8", "5"]
        assert {command.ext["consumerGroup"] for command in commits} == {"g"}


async def test_queues_of_a_topic_that_does_not_exist() -> None:
    async with running("a", TBW102=8) as cluster, client_of(cluster) as client:
        with pytest.raises(RouteNotFound, match="does not exist"):
            await client.pull_consumer().queues("new")
