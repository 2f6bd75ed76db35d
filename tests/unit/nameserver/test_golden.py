"""What Java and Go clients asked Apache's name server, asked of ours: the answers mean the same.

The frames in `tests/golden` were captured between Apache's Java client 5.5.0, rocketmq-client-go
2.1.2 and Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ariane.codes import RequestCode, ResponseCode
from ariane.protocol.bodies import RegisterBrokerBody, TopicConfig, TopicRouteData
from ariane.protocol.command import Command, CommandDecoder
from ariane.protocol.fastjson import decode, encode, loads
from tests.unit.nameserver.world import DEADLINE_S, World, registration, topic_table

GOLDEN = Path(__file__).parents[2] / "golden"
ADDRESS = "127.0.0.1:33911"


@dataclass(frozen=True)
class Exchange:
    """One captured request, as it was sent, and Apache's answer."""

    header: dict[str, Any]
    answer: dict[str, Any]
    body: bytes

    @property
    def topic(self) -> str:
        return str(self.header.get("extFields", {}).get("topic", ""))

    def frame(self) -> bytes:
        header = json.dumps(self.header, separators=(",", ":")).encode()
        return struct.pack(">ii", 4 + len(header), len(header)) + header


def exchanges(client: str, code: int) -> list[Exchange]:
    lines = (GOLDEN / f"{client}-client.jsonl").read_text().splitlines()
    frames = [json.loads(line) for line in lines]
    asked: dict[tuple[int, int], dict[str, Any]] = {}
    found = []
    for frame in frames:
        header = frame["header"]
        key = (frame["connection"], header["opaque"])
        if frame["to"] == "namesrv" and header["code"] == code:
            asked[key] = header
        elif frame["from"] == "namesrv" and frame.get("answers") == code and key in asked:
            body = frame.get("body", {}).get("text", "").encode()
            found.append(Exchange(asked.pop(key), header, body))
    return found


async def answer_of(world: World, frame: bytes) -> Command:
    """Send the bytes as a client would and read the one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port)
    decoder = CommandDecoder()
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(frame)
            while True:
                data = await reader.read(1 << 16)
                assert data, "the server closed the connection"
                if commands := decoder.feed(data):
                    return commands[0]
    finally:
        writer.close()
        await writer.wait_closed()


async def serve_topics(world: World, topics: list[TopicConfig]) -> None:
    """Let the broker of the capture register these topics, and one nobody asks for."""
    command = registration("broker-a", ADDRESS)
    table = topic_table("TBW102")
    table = msgspec.structs.replace(
        table, topics=table.topics | {topic.name: topic for topic in topics}
    )
    command.body = encode(RegisterBrokerBody(table=table))
    assert (await (await world.peer()).ask(command)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("client", ["java", "go"])
async def test_routes(world: World, client: str) -> None:
    captured = exchanges(client, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    found = [exchange for exchange in captured if exchange.answer["code"] == ResponseCode.SUCCESS]
    assert found
    topics = []
    for exchange in found:
        queues = decode(exchange.body, TopicRouteData).queues[0]
        topics.append(
            TopicConfig(
                name=exchange.topic,
                permission=queues.permission,
                read_queue_count=queues.read_queue_count,
                write_queue_count=queues.write_queue_count,
            )
        )
    await serve_topics(world, topics)
    for exchange in captured:
        answer = await answer_of(world, exchange.frame())
        assert (answer.opaque, answer.flag) == (exchange.header["opaque"], 1)
        assert answer.code == exchange.answer["code"]
        assert answer.remark == exchange.answer.get("remark")
        if exchange.body:
            assert json.loads(answer.body) == loads(exchange.body)
            assert b" " not in answer.body


@pytest.mark.parametrize("client", ["java", "go"])
async def test_no_route(world: World, client: str) -> None:
    """Requests that found nothing were not all captured; the remark names the topic."""
    lines = (GOLDEN / f"{client}-client.jsonl").read_text().splitlines()
    remarks = [
        frame["header"]["remark"]
        for frame in map(json.loads, lines)
        if frame.get("answers") == RequestCode.GET_ROUTEINFO_BY_TOPIC
        and frame["header"]["code"] == ResponseCode.TOPIC_NOT_EXIST
    ]
    assert remarks
    for remark in remarks:
        topic = remark.split("\n")[0].removeprefix(
            "No topic route info in name server for the topic: "
        )
        header = {"code": 105, "opaque": 3, "flag": 0, "extFields": {"topic": topic}}
        answer = await answer_of(world, Exchange(header, {}, b"").frame())
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, remark)


async def test_cluster_info(world: World) -> None:
    captured = exchanges("java", RequestCode.GET_BROKER_CLUSTER_INFO)
    assert captured
    await serve_topics(world, [TopicConfig(name="orders")])
    for exchange in captured:
        answer = await answer_of(world, exchange.frame())
        assert answer.code == ResponseCode.SUCCESS
        assert json.loads(answer.body) == loads(exchange.body)


async def test_topic_list(world: World) -> None:
    captured = exchanges("go", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert captured
    for exchange in captured:
        names = json.loads(exchange.body)["topicList"]
        await serve_topics(world, [TopicConfig(name=name) for name in names])
        answer = await answer_of(world, exchange.frame())
        assert sorted(json.loads(answer.body)["topicList"]) == sorted(names)
