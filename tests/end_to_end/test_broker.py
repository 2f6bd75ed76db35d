"""A broker on real sockets and real files, asked by real clients' frames.

Each captured request must get an answer equal in meaning to the one Apache's broker gave: the same
code and fields, the same messages; addresses, offsets in the log and times are the broker's own.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from ariane.broker.broker import Broker
from ariane.clock import SystemClock, Timers
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.disk import RealDisk
from ariane.errors import ConnectionLost, CorruptFile, StoreLocked
from ariane.protocol.command import Command
from ariane.protocol.message import (
    StoredMessage,
    decode_offset_id,
    decode_records,
    encode_properties,
)
from ariane.remoting.client import connect
from ariane.remoting.connection import Connection
from ariane.remoting.loop_timers import drive
from tests.golden.frames import GoldenFrame, golden_frames
from tests.harness.processes import free_port
from tests.unit.broker.rig import SMALL_STORE, pull_fields, send_fields

DEADLINE_S = 10.0
SAME = (
    "topic", "queue_id", "queue_offset", "flag", "system_flag", "stored_body", "properties",
    "body_crc32", "reconsume_times", "prepared_offset", "size",
)  # fmt: skip
BROKER_KEYS = ("MSG_REGION", "TRACE_ON", "CLUSTER")


class World:
    """One broker and one client."""

    def __init__(self, broker: Broker, timers: Timers, connection: Connection) -> None:
        self.broker = broker
        self.timers = timers
        self.connection = connection

    async def call(self, code: int, ext: dict[str, Any], body: bytes = b"") -> Command:
        fields = {name: str(value) for name, value in ext.items()}
        return await self.connection.request(Command(code, ext=fields, body=body), DEADLINE_S)

    async def replay(self, frame: GoldenFrame) -> Command:
        """Send a captured request and take the answer."""
        return await self.connection.request(frame.command(), DEADLINE_S)

    async def store_again(self, message: StoredMessage) -> Command:
        """Send a captured message as its producer did."""
        properties = {k: v for k, v in message.properties.items() if k not in BROKER_KEYS}
        return await self.call(
            RequestCode.SEND_MESSAGE_V2,
            send_fields(
                topic=message.topic,
                queue_id=message.queue_id,
                properties=encode_properties(properties),
                system_flag=message.system_flag,
            ),
            message.stored_body,
        )


@asynccontextmanager
async def running(root: Path, *, port: int = 0, **store_settings: Any) -> AsyncIterator[World]:
    clock = SystemClock()
    timers = Timers(clock)
    driver = drive(timers, asyncio.get_running_loop())
    broker = Broker(
        BrokerConfig(port=port),
        msgspec.structs.replace(SMALL_STORE, **store_settings),
        clock=clock,
        disk=RealDisk(root),
        random=Random(1),
        timers=timers,
    )
    await broker.start()
    connection = await connect("127.0.0.1", broker.port, timers=timers)
    try:
        yield World(broker, timers, connection)
    finally:
        connection.close("done")
        await broker.stop()
        driver.stop()


def pairs(code: int) -> list[tuple[GoldenFrame, GoldenFrame]]:
    """Captured requests of a code with the answers they got."""
    answers = {
        (frame.capture, frame.answers, frame.header["opaque"]): frame
        for frame in golden_frames()
        if frame.answers == code and frame.sender == "broker"
    }
    found = []
    for frame in golden_frames():
        key = (frame.capture, frame.code, frame.header["opaque"])
        if frame.answers is None and frame.code == code and key in answers and frame.body_is_whole:
            found.append((frame, answers[key]))
    assert found
    return found


def same_frame(ours: Command, golden: GoldenFrame) -> None:
    assert ours.code == golden.header["code"]
    assert (ours.remark or "") == (golden.header.get("remark") or "")
    assert list(ours.ext) == list(golden.ext)
    assert ours.is_response


@pytest.mark.parametrize("code", [10, 310, 320])
async def test_sends_of_java_and_go_are_answered_as_apache_did(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as world:
        for request, golden in pairs(code):
            ours = await world.replay(request)
            same_frame(ours, golden)
            for name in golden.ext.keys() - {"msgId"}:
                assert ours.ext[name] == golden.ext[name], name
            host, _ = decode_offset_id(ours.ext["msgId"].split(",")[0])
            assert host == ("127.0.0.1", world.broker.port)
            assert ours.ext["msgId"].count(",") == golden.ext["msgId"].count(",")


async def test_pulls_of_java_get_what_apache_gave(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for request, golden in pairs(11):
            theirs = decode_records(golden.body)
            for message in theirs:
                assert (await world.store_again(message)).code == ResponseCode.SUCCESS
            if not int(request.ext["sysFlag"]) & 4:
                await heartbeat(world, request.ext["consumerGroup"], request.ext["topic"])
            ours = await world.replay(request)
            same_frame(ours, golden)
            assert ours.ext == golden.ext
            for mine, his in zip(decode_records(ours.body), theirs, strict=True):
                same_message(mine, his)


def same_message(ours: StoredMessage, theirs: StoredMessage) -> None:
    for name in SAME:
        assert getattr(ours, name) == getattr(theirs, name), name


async def heartbeat(world: World, group: str, topic: str) -> None:
    subscription = f'{{"topic":"{topic}","subString":"*","subVersion":0,"expressionType":"TAG"}}'
    consumer = f'{{"groupName":"{group}","subscriptionDataSet":[{subscription}]}}'
    body = f'{{"clientID":"c@1","consumerDataSet":[{consumer}],"producerDataSet":[]}}'
    answer = await world.call(RequestCode.HEART_BEAT, {}, body.encode())
    assert answer.code == ResponseCode.SUCCESS


async def test_queries_of_java_are_answered_as_apache_did(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for request, golden in pairs(12)[:1]:
            theirs = decode_records(golden.body)
            for message in theirs:
                await world.store_again(message)
            now = world.timers.clock.wall_ms()
            span = {"beginTimestamp": now - 60_000, "endTimestamp": now + 60_000}
            ours = await world.call(12, request.ext | span)
            assert (ours.code, set(ours.ext)) == (0, set(golden.ext))
            found = sorted(message.stored_body for message in decode_records(ours.body))
            assert found == sorted(message.stored_body for message in theirs)


@pytest.mark.parametrize("code", [30, 31])
async def test_ends_of_queues(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as world:
        for request, golden in pairs(code):
            for _ in range(10):
                fields = send_fields(
                    topic=request.ext["topic"], queue_id=int(request.ext["queueId"])
                )
                assert (await world.call(310, fields, b"x")).code == 0
            ours = await world.replay(request)
            assert (ours.code, ours.ext) == (golden.header["code"], golden.ext)


async def test_a_long_poll_is_answered_when_a_message_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.call(310, send_fields(), b"old")
        waiting = asyncio.ensure_future(world.call(11, pull_fields("T", 0, 1, sysFlag=6)))
        await world.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})  # it is held now
        await world.call(310, send_fields(), b"new")
        async with asyncio.timeout(DEADLINE_S):
            answer = await waiting
        assert [message.stored_body for message in decode_records(answer.body)] == [b"new"]


async def test_properties_are_measured_as_stored_not_as_escaped(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for text, code in {
            "k\x01v\x02" * 8_000: ResponseCode.SUCCESS,  # 112,000 bytes of JSON
            "k\x01v\x02" * 8_500: ResponseCode.MESSAGE_ILLEGAL,
            f"k\x01{'v' * 200_000}\x02": ResponseCode.MESSAGE_ILLEGAL,
        }.items():
            sent = await world.call(RequestCode.SEND_MESSAGE_V2, send_fields(properties=text), b"x")
            assert sent.code == code


async def test_sync_flush_answers_after_the_disk_has_it(tmp_path: Path) -> None:
    async with running(tmp_path, flush_mode="SYNC_FLUSH") as world:
        answers = await asyncio.gather(
            *(world.call(310, send_fields(queue_id=n % 4), b"%d" % n) for n in range(100))
        )
        assert {answer.code for answer in answers} == {0}
        assert world.broker.state.store.flushed == world.broker.state.store.written
        answer = await world.call(11, pull_fields("T", 0, 0))
        assert len(decode_records(answer.body)) == 25


async def test_a_stop_answers_for_every_message_it_keeps(tmp_path: Path) -> None:
    async with running(tmp_path, flush_mode="SYNC_FLUSH") as world:
        await world.call(RequestCode.SEND_MESSAGE_V2, send_fields(), b"first")
        commands = [
            Command(310, ext={k: str(v) for k, v in send_fields().items()}, body=b"more")
            for _ in range(500)
        ]
        sends = [world.connection.start_request(command, DEADLINE_S) for command in commands]
        store = world.broker.state.store
        # Until some answers wait for the disk.
        while store.written == store.flushed and not sends[-1].done():  # noqa: ASYNC110 - the next turn
            await asyncio.sleep(0)
        await world.broker.stop()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        kept = world.broker.state.store.max_offset("T", 0)
    answered = [outcome for outcome in outcomes if isinstance(outcome, Command)]
    assert {answer.code for answer in answered} == {ResponseCode.SUCCESS}
    assert len(answered) == kept - 1


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for n in range(10):
            await world.call(310, send_fields(topic="kept"), b"%d" % n)
        await world.call(11, pull_fields("kept", 0, 0, sysFlag=5, commitOffset=7))
    async with running(tmp_path) as world:
        topic = world.broker.state.topics.get("kept")
        assert topic is not None
        assert topic.write_queue_count == 4
        answer = await world.call(11, pull_fields("kept", 0, 0))
        assert len(decode_records(answer.body)) == 10
        assert world.broker.state.offsets.get("kept", "readers", 0) == 7


@pytest.mark.parametrize(("ending", "offset"), [("kill", 1), ("stop", 7)])
async def test_progress_beyond_what_a_kill_left_is_brought_back(
    tmp_path: Path, ending: str, offset: int
) -> None:
    """A kill may have taken what was consumed; after a clean stop nobody but the group knows."""
    async with running(tmp_path) as world:
        await world.call(310, send_fields(topic="kept"), b"x")
        await world.call(11, pull_fields("kept", 0, 0, sysFlag=5, commitOffset=7))
    if ending == "kill":
        (tmp_path / "abort").write_text("1")  # what a stop would have removed
    async with running(tmp_path) as world:
        assert world.broker.state.offsets.get("kept", "readers", 0) == offset


@pytest.mark.parametrize("is_picked", [False, True], ids=["given", "picked"])
async def test_the_vip_port_is_served_two_below(tmp_path: Path, *, is_picked: bool) -> None:
    async with running(tmp_path, port=0 if is_picked else free_port(-2)) as world:
        port = world.broker.port
        connection = await connect("127.0.0.1", port - 2, timers=world.timers)
        fields = {name: str(value) for name, value in send_fields().items()}
        answer = await connection.request(Command(310, ext=fields, body=b"x"), DEADLINE_S)
        assert answer.code == ResponseCode.SUCCESS
        assert decode_offset_id(answer.ext["msgId"])[0] == ("127.0.0.1", port)


async def test_a_taken_vip_port_is_done_without(tmp_path: Path) -> None:
    port = free_port(-2)
    async with running(tmp_path / "other", port=port - 2), running(tmp_path, port=port) as world:
        assert (await world.call(310, send_fields(), b"x")).code == ResponseCode.SUCCESS


async def test_a_damaged_table_stops_the_start_and_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text('{"topicConfigTable": {')
    with pytest.raises(CorruptFile, match="topics"):
        async with running(tmp_path):
            pass
    assert path.read_text() == '{"topicConfigTable": {'
    path.unlink()
    async with running(tmp_path) as world:  # the store and the port were let go
        assert (await world.call(310, send_fields(), b"x")).code == ResponseCode.SUCCESS


async def test_two_brokers_never_share_a_store(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        with pytest.raises(StoreLocked):
            async with running(tmp_path):
                pass
        assert (await world.call(310, send_fields(), b"x")).code == ResponseCode.SUCCESS


async def test_hostile_bytes_do_not_disturb_a_good_client(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for frame in (
            b"\x00\x00\x00\x00",
            b"\xff\xff\xff\xff" * 4,
            struct.pack(">iI", 2**31 - 1, 8) + b"{}",
            struct.pack(">iI", 10, 6) + b'{"a":1',
            struct.pack(">iI", 8, 4 | 7 << 24) + b"junk",
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.broker.port)
            writer.write(frame)
            writer.write_eof()
            async with asyncio.timeout(DEADLINE_S):
                await reader.read()  # closed by the broker
            writer.close()
            assert (await world.call(310, send_fields(), b"x")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_log_that_cannot_be_written_is_never_a_success(
    tmp_path: Path, flush_mode: str
) -> None:
    async with running(tmp_path, flush_mode=flush_mode) as world:
        for body in (b"by the handler", b"by the lane"):
            assert (await world.call(310, send_fields(topic="kept"), body)).code == 0
        many = [
            await connect("127.0.0.1", world.broker.port, timers=world.timers) for _ in range(9)
        ]
        world.broker.state.store.log.write_by(os.open(os.devnull, os.O_RDONLY))
        lost = [
            World(world.broker, world.timers, connection).call(
                310, send_fields(topic="kept"), b"nobody is told of this"
            )
            for connection in (world.connection, *many)
        ]
        outcomes = await asyncio.gather(*lost, return_exceptions=True)
        assert any(isinstance(outcome, ConnectionLost) for outcome in outcomes)
        assert all(  # an answer says that the store is closed
            isinstance(outcome, ConnectionLost)
            or (isinstance(outcome, Command) and outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE)
            for outcome in outcomes
        )
        for connection in many:
            connection.close("done")
        connection = await connect("127.0.0.1", world.broker.port, timers=world.timers)
        other = World(world.broker, world.timers, connection)
        refused = await other.call(310, send_fields(topic="kept"), b"nor of this")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "cannot be written" in refused.remark
        answer = await other.call(11, pull_fields("kept", 0, 0))
        assert [message.body for message in decode_records(answer.body)] == [
            b"by the handler",
            b"by the lane",
        ]
        connection.close("done")
    async with running(tmp_path) as world:
        answer = await world.call(11, pull_fields("kept", 0, 0))
        assert len(decode_records(answer.body)) == 2
        sent = await world.call(310, send_fields(topic="kept"), b"after the repair")
        assert sent.ext["queueOffset"] == "2"
