"""Request and reply over sockets: who must know us, what travels, and what comes back."""

import asyncio
import zlib

import pytest

from ariane.client import Client, MessageQueue, StoredMessage
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import InvalidMessage, RequestFailed, RequestTimeout
from ariane.protocol.command import Command, request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.replies import PushReplyHeader
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import decode_properties, decode_records, encode_properties
from tests.unit.client.fake import FakeServer, client_of, record, refusing, running, settled, stored

SEND = RequestCode.SEND_MESSAGE_V2
REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
BEAT = RequestCode.HEART_BEAT
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


def pushed(properties: dict[str, str], body: bytes = b"42", system_flag: int = 0) -> Command:
    header = PushReplyHeader(
        group="server",
        topic="c_REPLY_TOPIC",
        default_topic="TBW102",
        default_queue_count=4,
        queue_id=0,
        system_flag=system_flag,
        born_at_ms=1,
        flag=0,
        properties=encode_properties(properties),
        born_host="10.0.0.9:5000",
        store_host="/127.0.0.1:10911",
        stored_at_ms=2,
    )
    return request(PUSH, header, body)


async def asked(broker: FakeServer, count: int = 1) -> dict[str, str]:
    command = (await broker.received(SEND, count))[-1]
    return decode_properties(decode_header(SendHeaderV2, command.ext).properties or "")


async def test_a_request_is_answered_by_the_reply_with_its_correlation() -> None:
    async with running("a", "b", rpc=1, c_REPLY_TOPIC=1) as cluster, client_of(cluster) as client:
        queue = MessageQueue(topic="rpc", broker_name="b", queue_id=0)
        asking = client.request("rpc", b"6 * 7", tags="sum", queue=queue, timeout=5)
        task = asyncio.create_task(asking)
        broker = cluster.brokers["b"]
        properties = await asked(broker)
        assert cluster.brokers["a"].of(BEAT)  # the reply may come by any broker
        assert properties["REPLY_TO_CLIENT"] == client.session.client_id
        assert (properties["TTL"], properties["TAGS"]) == ("5000", "sum")
        correlation = properties["CORRELATION_ID"]
        broker.tell_all(pushed({"CORRELATION_ID": "another's"}, b"not ours"))
        broker.tell_all(pushed({"CORRELATION_ID": correlation, "a": "b"}))
        reply = await task
        assert (reply.body, reply.properties["a"]) == (b"42", "b")
        assert (reply.born_host, reply.store_host) == (("10.0.0.9", 5000), ("127.0.0.1", 10911))
        broker.tell_all(pushed({"CORRELATION_ID": correlation}))  # twice: nobody waits any more
        await client.send("rpc", b"x")


async def test_brokers_know_us_before_the_request_leaves_and_are_asked_once() -> None:
    async with running("a", rpc=1, c_REPLY_TOPIC=1) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        for number in (1, 2, 3):
            task = asyncio.create_task(client.request("rpc", b"x"))
            correlation = (await asked(broker, number))["CORRELATION_ID"]
            broker.tell_all(pushed({"CORRELATION_ID": correlation}))
            await task
        codes = [command.code for command in broker.requests]
        assert codes.index(BEAT) < codes.index(SEND)
        first = codes.index(SEND)
        assert BEAT not in codes[first:]


async def test_no_reply_is_a_timeout_that_says_what_is_missing() -> None:
    clock = ManualClock()
    async with running("a", rpc=1, c_REPLY_TOPIC=1) as cluster, client_of(cluster, clock) as client:
        task = asyncio.create_task(client.request("rpc", b"x", timeout=2))
        await asked(cluster.brokers["a"])
        await settled(client)
        clock.advance(2)
        with pytest.raises(RequestTimeout, match="does anybody consume"):
            await task


async def test_a_request_that_cannot_be_sent_says_so() -> None:
    async with running("a", rpc=1, c_REPLY_TOPIC=1) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[SEND] = refusing(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(RequestFailed, match="not now"):
            await client.request("rpc", b"x")


async def test_replies_may_be_compressed() -> None:
    async with running("a", rpc=1, c_REPLY_TOPIC=1) as cluster, client_of(cluster) as client:
        task = asyncio.create_task(client.request("rpc", b"x"))
        correlation = (await asked(cluster.brokers["a"]))["CORRELATION_ID"]
        body = zlib.compress(b"x" * 1000)
        cluster.brokers["a"].tell_all(pushed({"CORRELATION_ID": correlation}, body, 0x301))
        assert (await task).body == b"x" * 1000


def question(**properties: str) -> StoredMessage:
    return decode_records(record(b"?", properties=properties))[0]


async def test_a_reply_goes_to_the_clusters_reply_topic() -> None:
    async with running("a", c_REPLY_TOPIC=1) as cluster, client_of(cluster) as client:
        cluster.brokers["a"].answers[REPLY] = stored
        await client.reply(
            question(CORRELATION_ID="C", REPLY_TO_CLIENT="X", CLUSTER="c", TTL="3000"),
            b"!",
            properties={"a": "b"},
        )
        (command,) = cluster.brokers["a"].of(REPLY)
        header = decode_header(SendHeaderV2, command.ext)
        assert (header.topic, command.body) == ("c_REPLY_TOPIC", b"!")
        properties = decode_properties(header.properties or "")
        assert properties.items() >= {
            "MSG_TYPE": "reply", "CORRELATION_ID": "C", "REPLY_TO_CLIENT": "X", "TTL": "3000",
            "a": "b",
        }.items()  # fmt: skip


async def test_only_requests_can_be_replied_to() -> None:
    async with Client("127.0.0.1:9876") as client:
        with pytest.raises(InvalidMessage, match="lacks CORRELATION_ID, REPLY_TO_CLIENT"):
            await client.reply(question(CLUSTER="c"), b"")
