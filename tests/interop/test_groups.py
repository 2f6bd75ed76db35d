"""Groups as `client.admin` sees and moves them: the same at either broker."""

import asyncio
import shutil
from collections.abc import Iterator

import pytest

import ariane
from ariane import Retry, Start, StoredMessage
from tests.harness.apache import Apache
from tests.harness.processes import Ariane, Server

pytestmark = pytest.mark.interop

PATIENCE_S = 60
TOPIC, GROUP = "group-orders", "group-billing"


@pytest.fixture(scope="module", params=["ariane", "apache"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Either broker."""
    directory = tmp_path_factory.mktemp("groups")
    kind = Ariane if request.param == "ariane" else Apache
    with kind(directory).start() as started:
        yield started
    shutil.rmtree(directory, ignore_errors=True)


async def consumed(client: ariane.Client, count: int) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    async with client.subscribe(TOPIC, group=GROUP, start=Start.FIRST) as messages:
        async with asyncio.timeout(PATIENCE_S):
            async for message in messages:
                await message.ack()
                found.append((message.topic, message.text, message.reconsume_times))
                if len(found) == count:
                    [member] = await client.admin.members(GROUP)
                    assert member.client_id == client.session.client_id
                    return sorted(found)
    raise AssertionError


async def given_up(client: ariane.Client, count: int) -> list[StoredMessage]:
    async def bill(message: ariane.ReceivedMessage) -> None:
        raise ariane.RetryLater

    consumer = client.push_consumer(GROUP, bill, retry=Retry(max=0))
    consumer.subscribe(TOPIC)
    letters: list[StoredMessage] = []
    async with consumer, asyncio.timeout(PATIENCE_S):
        while len(letters) < count:
            letters = await client.admin.dead_letters(GROUP)
    return letters


async def wait_for_topic(client: ariane.Client) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while TOPIC not in await client.admin.topics():
            pass  # Apache's broker registers when it comes to it


async def test_a_group_is_made_moved_and_mended(server: Server) -> None:
    async with ariane.Client(server.namesrv_address) as client:
        admin = client.admin
        await admin.create_topic(TOPIC, write_queue_count=2)
        await admin.create_group(GROUP, retries=3)
        assert GROUP in await admin.groups()
        await wait_for_topic(client)
        for text in ("a", "b", "c"):
            await client.send(TOPIC, text)
        every = [(TOPIC, text, 0) for text in ("a", "b", "c")]

        assert len(await consumed(client, 2)) == 2
        lag = await admin.lag(GROUP, topic=TOPIC)
        assert lag.messages == 1
        assert 0 <= lag.seconds < PATIENCE_S
        assert await admin.members(GROUP) == []

        await admin.reset_offsets(GROUP, TOPIC, to=Start.FIRST, preview=True)
        assert (await admin.lag(GROUP, topic=TOPIC)).messages == 1
        moves = await admin.reset_offsets(GROUP, TOPIC, to=Start.FIRST)
        assert sum(move.messages for move in moves) == 2
        assert (await admin.lag(GROUP, topic=TOPIC)).messages == 3
        await admin.reset_offsets(GROUP, TOPIC, to=Start.LAST)
        assert (await admin.lag(GROUP, topic=TOPIC)).messages == 0
        await admin.reset_offsets(GROUP, TOPIC, to=Start.FIRST)
        assert await consumed(client, 3) == every

        await admin.reset_offsets(GROUP, TOPIC, to=Start.FIRST)
        letters = await given_up(client, 3)
        assert sorted(letter.text for letter in letters) == ["a", "b", "c"]
        await admin.resend(GROUP, letters)
        assert await consumed(client, 3) == every

        await admin.delete_group(GROUP)
        assert GROUP not in await admin.groups()
        assert f"%DLQ%{GROUP}" not in await admin.topics()
