"""JSON bodies against the captures, and registrations plain, compressed and hostile."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
import zlib

import msgspec
import pytest

from ariane.errors import ProtocolError
from ariane.protocol import bodies, fastjson
from ariane.protocol.bodies import (
    BrokerData,
    DataVersion,
    HeartbeatData,
    MessageQueue,
    OffsetProgress,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicRouteData,
    decode_register_body,
)
from tests.golden.frames import GoldenFrame, golden_frames
from tests.unit.protocol.record_bytes import compressed_register_bytes, register_bytes

REQUESTS: dict[int, type[msgspec.Struct]] = {
    34: bodies.HeartbeatData,
    41: bodies.LockRequest,
    42: bodies.LockRequest,
    46: bodies.CheckClientRequest,
    200: bodies.SubscriptionGroupConfig,
}
REPLIES: dict[int, type[msgspec.Struct]] = {
    38: bodies.ConsumerList,
    41: bodies.LockReply,
    105: bodies.TopicRouteData,
    106: bodies.ClusterInfo,
    201: bodies.SubscriptionGroupTable,
    202: bodies.TopicStats,
    203: bodies.ConsumerConnections,
    206: bodies.TopicList,
    208: bodies.ConsumeStats,
    351: bodies.TopicConfig,
}


def cases() -> list[tuple[GoldenFrame, type[msgspec.Struct]]]:
    found = []
    for golden in golden_frames():
        kinds = REQUESTS if golden.answers is None else REPLIES if golden.is_success else {}
        kind = kinds.get(golden.code)
        if kind is not None and golden.body and golden.body_is_whole:
            found.append((golden, kind))
    return found


def test_golden_bodies_decode_and_encode_to_equal_values() -> None:
    for golden, kind in cases():
        value = fastjson.decode(golden.body, kind)
        assert fastjson.decode(fastjson.encode(value), kind) == value
    assert len({(golden.answers is None, golden.code) for golden, _ in cases()}) >= 10


def test_bodies_java_wrote_come_back_byte_for_byte() -> None:
    compared = 0
    for golden, kind in cases():
        if golden.sender == "client" and golden.capture != "java-client":
            continue
        if b"{0:" in golden.body or golden.code == 46:
            continue  # we quote broker ids, and name the namespace
        assert fastjson.encode(fastjson.decode(golden.body, kind)) == golden.body
        compared += 1
    assert compared > 20


def test_cluster_info_reads_bare_and_quoted_ids_alike() -> None:
    bare = next(golden.body for golden, _ in cases() if golden.code == 106)
    assert b"{0:" in bare
    info = fastjson.decode(bare, bodies.ClusterInfo)
    assert info.brokers["broker-a"].addresses == {0: "127.0.0.1:33911"}
    assert fastjson.encode(info) == bare.replace(b"{0:", b'{"0":')


def test_route_is_compact_and_standard() -> None:
    queues = QueueData(
        broker_name="b", read_queue_count=4, write_queue_count=4, permission=6, system_flag=0
    )
    broker = BrokerData(cluster="c", broker_name="b", addresses={0: "10.0.0.1:10911", 1: "x:1"})
    route = TopicRouteData(queues=[queues], brokers=[broker])
    wire = fastjson.encode(route)
    assert wire == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"x:1"},"brokerName":"b",'
        b'"cluster":"c","enableActingMaster":false}],"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert json.loads(wire)
    ordered = TopicRouteData(queues=[queues], brokers=[broker], order_config="b:4")
    assert json.loads(fastjson.encode(ordered))["orderTopicConf"] == "b:4"


def test_consume_stats_has_objects_as_keys() -> None:
    queue = MessageQueue(broker_name="b", queue_id=0, topic="T")
    progress = OffsetProgress(broker_offset=5, consume_offset=3, pull_offset=4)
    assert fastjson.encode(bodies.ConsumeStats(offsets={queue: progress})) == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":5,"consumerOffset":3,"lastTimestamp":0,"pullOffset":4}}}'
    )


def test_heartbeat_with_too_many_subscriptions_is_refused() -> None:
    def heartbeat(consumers: int, subscriptions: int) -> bytes:
        subscription = [{"topic": f"T{n}"} for n in range(subscriptions)]
        consumer = [{"groupName": "g", "subscriptionDataSet": subscription}] * consumers
        return json.dumps({"clientID": "c", "consumerDataSet": consumer}).encode()

    assert fastjson.decode(heartbeat(1, 4096), HeartbeatData)
    for hostile in (heartbeat(1, 100_000), heartbeat(2000, 1)):
        with pytest.raises(ProtocolError):
            fastjson.decode(hostile, HeartbeatData)


REGISTRATION = RegisterBrokerBody(
    table=TopicConfigTable(
        data_version=DataVersion(counter=3, state_version=1, timestamp=1_700_000_000_000),
        topics={
            "TBW102": TopicConfig(
                name="TBW102", read_queue_count=8, write_queue_count=8, permission=7
            ),
            "T": TopicConfig(name="T", attributes={"+message.type": "NORMAL", "note": "a b  c"}),
        },
    ),
    filter_servers=["10.0.0.1:1"],
)


def test_registration_in_every_form() -> None:
    plain = fastjson.encode(REGISTRATION)
    assert plain.startswith(b'{"filterServerList":')
    assert decode_register_body(plain) == REGISTRATION
    assert decode_register_body(b"\n " + plain) == REGISTRATION
    assert decode_register_body(compressed_register_bytes(REGISTRATION)) == REGISTRATION
    assert (
        decode_register_body(compressed_register_bytes(REGISTRATION, mappings=True)) == REGISTRATION
    )


def test_registration_of_an_older_broker_has_no_attributes() -> None:
    parts = register_bytes(
        RegisterBrokerBody(table=TopicConfigTable(topics={"T": TopicConfig(name="T")}))
    )
    text = b"T 16 16 6 SINGLE_TAG {}"
    for shorter in (b"T 16 16 6 SINGLE_TAG", b"T 16 16 6 SINGLE_TAG "):
        old = parts.replace(
            struct.pack(">i", len(text)) + text, struct.pack(">i", len(shorter)) + shorter
        )
        assert decode_register_body(zlib.compress(old)).table.topics == {"T": TopicConfig(name="T")}


def part(data: bytes, size: int | None = None) -> bytes:
    return struct.pack(">i", len(data) if size is None else size) + data


BAD_PARTS = {
    "empty": b"",
    "version cut": part(b'{"counter":1}', 100),
    "negative version": part(b"", -1),
    "version not JSON": part(b"\xff"),
    "no topic count": part(b"{}"),
    "negative topic count": part(b"{}") + struct.pack(">i", -1),
    "2^31-1 topics": part(b"{}") + struct.pack(">i", 2**31 - 1),
    "topic cut": part(b"{}") + struct.pack(">i", 1) + part(b"T 1 1 6", 50),
    "topic with four words": part(b"{}") + struct.pack(">i", 1) + part(b"T 1 1 6") + part(b"[]"),
    "topic with a bad number": part(b"{}")
    + struct.pack(">i", 1)
    + part(b"T x 1 6 A {}")
    + part(b"[]"),
    "topic not UTF-8": part(b"{}") + struct.pack(">i", 1) + part(b"\xff 1 1 6 A {}") + part(b"[]"),
    "attributes not JSON": part(b"{}") + struct.pack(">i", 1) + part(b"T 1 1 6 A {") + part(b"[]"),
    "attributes nested": part(b"{}")
    + struct.pack(">i", 1)
    + part(b'T 1 1 6 A {"a":{}}')
    + part(b"[]"),
    "no filter servers": part(b"{}") + struct.pack(">i", 0),
    "filter servers not a list": part(b"{}") + struct.pack(">i", 0) + part(b"{}"),
}


@pytest.mark.parametrize("parts", BAD_PARTS.values(), ids=BAD_PARTS)
def test_bad_registration_is_refused(parts: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_register_body(zlib.compress(parts))


@pytest.mark.parametrize("body", [b"", b"\x00", b"{", b"[]", b"x\x9c", zlib.compress(b"abc")[:-3]])
def test_no_registration_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_register_body(body)


def test_an_inflate_bomb_is_refused_with_bounded_memory_and_time() -> None:
    stream = zlib.compressobj(1)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(256)) + stream.flush()
    assert len(bomb) < 2 << 20  # stands for 256 MiB
    started = time.perf_counter()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="inflates to more"):
            decode_register_body(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 160 << 20
    assert time.perf_counter() - started < 5


def test_a_good_ratio_of_a_small_registration_is_no_bomb() -> None:
    topics = {f"topic{n}": TopicConfig(name=f"topic{n}") for n in range(10_000)}
    body = RegisterBrokerBody(table=TopicConfigTable(topics=topics))
    assert decode_register_body(compressed_register_bytes(body)) == body
