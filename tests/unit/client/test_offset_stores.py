"""Offsets with brokers and in Java's file; what cannot be read is never made up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ariane.client import MessageQueue
from ariane.client.local_offsets import LocalOffsets, decode_offsets, encode_offsets, local_offsets
from ariane.client.offset_stores import RemoteOffsets
from ariane.codes import RequestCode, ResponseCode
from ariane.disk import SimulatedDisk
from ariane.errors import CorruptFile, RequestFailed
from ariane.protocol.command import reply
from ariane.protocol.headers.offsets import OffsetReply
from tests.unit.client.fake import client_of, refusing, running

QUERY = RequestCode.QUERY_CONSUMER_OFFSET
UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET
QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=1)
OTHER = MessageQueue(topic="orders", broker_name="a", queue_id=0)

# As Java's client 5.5.0 wrote it.
JAVA_FILE = (
    '{\n\t"offsetTable":{\n\t\t{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"orders"'
    '\n\t\t}:12,\n\t\t{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"orders"\n\t\t}:7'
    "\n\t}\n}"
)


async def test_a_broker_knows_an_offset_or_does_not_or_cannot_be_asked() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        store = RemoteOffsets(client.session, "g")
        broker.answers[QUERY] = lambda command: reply(command, header=OffsetReply(offset=17))
        assert await store.read(QUEUE) == 17
        broker.answers[QUERY] = refusing(ResponseCode.QUERY_NOT_FOUND)
        assert await store.read(QUEUE) is None
        broker.answers[QUERY] = refusing(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestFailed):
            await store.read(QUEUE)


async def test_only_what_changed_is_told_and_nobody_waits_for_it() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        store = RemoteOffsets(client.session, "g")
        await store.write({QUEUE: 5, OTHER: 1})
        await store.write({QUEUE: 5, OTHER: 2})
        told = await broker.received(UPDATE, 3)
        assert [(t.ext["queueId"], t.ext["commitOffset"]) for t in told] == [
            ("1", "5"), ("0", "1"), ("0", "2"),
        ]  # fmt: skip
        assert all(command.is_one_way for command in told)


async def test_the_last_word_is_waited_for() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        store = RemoteOffsets(client.session, "g")
        await store.write({QUEUE: 5})
        await store.write({QUEUE: 5}, wait=True)
        told = cluster.brokers["a"].of(UPDATE)
        assert [command.is_one_way for command in told] == [True, False]


async def test_what_a_broker_did_not_take_is_told_again() -> None:
    async with running("a", orders=2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        store = RemoteOffsets(client.session, "g")
        broker.answers[UPDATE] = refusing(ResponseCode.SYSTEM_ERROR)
        await store.write({QUEUE: 5}, wait=True)
        del broker.answers[UPDATE]
        await store.write({QUEUE: 5})
        assert len(await broker.received(UPDATE, 2)) == 2


def test_the_file_is_javas_to_the_byte() -> None:
    assert decode_offsets(JAVA_FILE.encode()) == {OTHER: 12, QUEUE: 7}
    assert encode_offsets({OTHER: 12, QUEUE: 7}).decode() == JAVA_FILE


async def test_offsets_stay_in_the_file() -> None:
    disk = SimulatedDisk()
    store = LocalOffsets(disk, "me/g/offsets.json")
    assert await store.read(QUEUE) is None
    await store.write({QUEUE: 7})
    await store.write({OTHER: 12})
    assert disk.read("me/g/offsets.json").decode() == JAVA_FILE
    again = LocalOffsets(disk, "me/g/offsets.json")
    assert (await again.read(QUEUE), await again.read(OTHER)) == (7, 12)


async def test_a_file_that_did_not_change_is_not_written() -> None:
    disk = SimulatedDisk()
    store = LocalOffsets(disk, "me/g/offsets.json")
    await store.write({QUEUE: 7})
    disk.plant("write_atomic", OSError(5, "broken"))
    await store.write({QUEUE: 7})


async def test_a_damaged_file_has_a_backup_and_without_it_is_an_error() -> None:
    disk = SimulatedDisk()
    path = "me/g/offsets.json"
    disk.make_directory("me/g")
    disk.write(path, b'{"offsetTable":{{"bro')
    with pytest.raises(CorruptFile, match="restore one of them"):
        await LocalOffsets(disk, path).read(QUEUE)
    disk.write(f"{path}.bak", JAVA_FILE.encode())
    assert await LocalOffsets(disk, path).read(QUEUE) == 7


def test_the_file_lies_where_java_looks_for_it(tmp_path: Path) -> None:
    asyncio.run(local_offsets("g", tmp_path).write({QUEUE: 7}))
    (path,) = tmp_path.glob("*@DEFAULT/g/offsets.json")
    assert decode_offsets(path.read_bytes()) == {QUEUE: 7}
