"""The name server over real sockets: every request it serves, and every way it says no."""

from __future__ import annotations

import json
import struct
import zlib

import msgspec
import pytest

from ariane.codes import RequestCode, ResponseCode
from ariane.config import NameServerConfig, parse_properties
from ariane.nameserver.dispatch import HANDLERS
from ariane.protocol.bodies import (
    DataVersion,
    QueueData,
    TopicList,
    TopicRouteData,
)
from ariane.protocol.command import Command, Serializer, request
from ariane.protocol.fastjson import decode, encode
from ariane.protocol.headers.nameserver import (
    BrokerHeader,
    BrokerHeartbeatHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicHeader,
    MemberGroupHeader,
    NamespaceHeader,
    PutSettingHeader,
    SettingHeader,
)
from ariane.protocol.headers.topics import TopicHeader
from tests.unit.nameserver.world import Peer, World, registration, topic_table

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def get_route(topic: str) -> Command:
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=topic))


def broker(name: str, address: str, cluster: str = "DefaultCluster") -> BrokerHeader:
    return BrokerHeader(broker_name=name, broker_address=address, cluster=cluster, broker_id=0)


async def topics_in(peer: Peer, code: RequestCode) -> list[str]:
    answer = await peer.ask(request(code))
    assert answer.code == ResponseCode.SUCCESS, answer
    return decode(answer.body, TopicList).topics


# Registration.


async def test_two_brokers_of_one_cluster(peer: Peer) -> None:
    assert (await peer.register("broker-a", A, "orders", "bills")).code == ResponseCode.SUCCESS
    assert (await peer.register("broker-b", B, "orders", "mail")).code == ResponseCode.SUCCESS
    answer = await peer.ask(get_route("orders"))
    assert answer.body == (
        b'{"brokerDatas":['
        b'{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false},'
        b'{"brokerAddrs":{"0":"10.0.0.2:10911"},"brokerName":"broker-b",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4},'
        b'{"brokerName":"broker-b","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4}]}'
    )
    answer = await peer.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert json.loads(answer.body)["clusterAddrTable"] == {
        "DefaultCluster": ["broker-a", "broker-b"]
    }


async def test_compressed_registration_whatever_its_flag_says(peer: Peer) -> None:
    def part(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    table = topic_table("orders", "bills", counter=9)
    parts = part(encode(table.data_version)) + struct.pack(">i", 2)
    parts += part(b'orders 3 5 6 SINGLE_TAG {"+message.type":"FIFO"}')
    parts += part(b"bills 1 1 4 SINGLE_TAG")
    parts += part(b"[]") + struct.pack(">i", 0)
    body = zlib.compress(parts, 9)
    for name, address, is_compressed in (("broker-a", A, True), ("broker-b", B, False)):
        command = registration(
            name, address, is_compressed=is_compressed, body_crc32=zlib.crc32(body) & 0x7FFFFFFF
        )
        command.body = body
        assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    route = await peer.route("orders")
    assert route is not None
    assert [
        (q.broker_name, q.read_queue_count, q.write_queue_count, q.permission) for q in route.queues
    ] == [("broker-a", 3, 5, 6), ("broker-b", 3, 5, 6)]
    answer = await peer.ask(
        request(RequestCode.QUERY_DATA_VERSION, broker("broker-a", A), encode(table.data_version))
    )
    assert answer.ext == {"changed": "false"}


async def test_registration_of_a_very_old_broker_is_a_bare_table(peer: Peer) -> None:
    command = registration("broker-a", A)
    command.version, command.body = 36, encode(topic_table("orders", "bills"))
    assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    assert await peer.route("orders") is not None


async def test_registration_without_a_body_has_no_topics(peer: Peer) -> None:
    command = registration("broker-a", A)
    command.body = b""
    assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    assert await topics_in(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == []


async def test_registration_with_the_crc_it_says(peer: Peer) -> None:
    command = registration("broker-a", A, "orders", "bills")
    command.ext["bodyCrc32"] = str(zlib.crc32(command.body) & 0x7FFFFFFF)
    assert (await peer.ask(command)).code == ResponseCode.SUCCESS


async def test_a_replica_is_told_its_master(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    answer = await peer.register("broker-a", B, "orders", "bills", broker_id=1)
    assert answer.ext == {"masterAddr": A, "haServerAddr": A + "+ha"}
    route = await peer.route("orders")
    assert route is not None
    assert route.brokers[0].addresses == {0: A, 1: B}


async def test_the_same_address_under_another_id(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills", broker_id=1)
    await peer.register("broker-a", A, "orders", "bills", broker_id=0)
    answer = await peer.ask(
        request(
            RequestCode.GET_BROKER_MEMBER_GROUP,
            MemberGroupHeader(cluster="DefaultCluster", broker_name="broker-a"),
        )
    )
    assert json.loads(answer.body) == {
        "brokerMemberGroup": {
            "brokerAddrs": {"0": A},
            "brokerName": "broker-a",
            "cluster": "DefaultCluster",
        }
    }


async def test_registrations_are_merged_unless_set_otherwise(world: World, peer: Peer) -> None:
    listed = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    await peer.register("broker-a", A, "orders", "bills")
    await peer.register("broker-a", A, "bills", "mail", counter=2)
    assert await topics_in(peer, listed) == ["bills", "mail", "orders"]
    await peer.ask(
        request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"deleteTopicWithBrokerRegistration=true")
    )
    await peer.register("broker-a", A, "bills", "mail", counter=3)
    assert await topics_in(peer, listed) == ["bills", "mail"]


# Leaving.


async def test_a_closed_connection_takes_its_broker_along(world: World, peer: Peer) -> None:
    leaving = await world.peer()
    await leaving.register("broker-a", A, "orders", "bills")
    await peer.register("broker-b", B, "mail", "post")
    assert await peer.route("orders") is not None
    await leaving.leave()
    await peer.route_is_gone("orders")
    assert await peer.route("mail") is not None


async def test_silence_for_two_minutes_and_a_scan(world: World, peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    world.clock.advance(115)
    await peer.register("broker-b", B, "mail", "post")
    assert await peer.route("orders") is not None
    world.clock.advance(14.9)  # 129.9 s: the scan of 120 s found it just in time
    assert await peer.route("orders") is not None
    world.clock.advance(0.1)
    assert await peer.route("orders") is None
    assert await peer.route("mail") is not None


async def test_a_jump_of_the_wall_clock_expires_nobody(world: World, peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    world.clock.step_wall(86_400_000)
    world.clock.advance(20)
    assert await peer.route("orders") is not None


@pytest.mark.parametrize("way", ["heartbeat", "one-way heartbeat", "data version"])
async def test_signs_of_life(world: World, peer: Peer, way: str) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    world.clock.advance(100)
    if way == "data version":
        command = request(
            RequestCode.QUERY_DATA_VERSION, broker("broker-a", A), encode(DataVersion())
        )
        assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    else:
        header = BrokerHeartbeatHeader(
            broker_name="broker-a", broker_address=A, cluster="DefaultCluster"
        )
        is_one_way = way == "one-way heartbeat"
        command = request(RequestCode.BROKER_HEARTBEAT, header, one_way=is_one_way)
        if is_one_way:
            peer.connection.send(command)
        else:
            assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    assert await peer.route("orders") is not None
    world.clock.advance(100)
    assert await peer.route("orders") is not None


async def test_a_broker_may_ask_to_be_dropped_sooner(world: World, peer: Peer) -> None:
    await peer.ask(registration("broker-a", A, "orders", "bills", heartbeat_timeout_ms=5_000))
    world.clock.advance(11)
    assert await peer.route("orders") is None


async def test_the_scan_follows_its_setting(world: World, peer: Peer) -> None:
    await peer.ask(registration("broker-a", A, "orders", "bills", heartbeat_timeout_ms=12_000))
    await peer.ask(
        request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"scanNotActiveBrokerInterval=1000")
    )
    world.clock.advance(10)
    assert await peer.route("orders") is not None
    world.clock.advance(3)
    assert await peer.route("orders") is None


async def test_unregistering(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    stranger = request(RequestCode.UNREGISTER_BROKER, broker("broker-a", B))
    assert (await peer.ask(stranger)).code == ResponseCode.SUCCESS
    assert await peer.route("orders") is not None
    command = request(RequestCode.UNREGISTER_BROKER, broker("broker-a", A))
    assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    assert await peer.route("orders") is None


async def test_data_versions_are_compared(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills", counter=5)

    async def ask(address: str, counter: int) -> tuple[str, bytes]:
        version = encode(DataVersion(counter=counter, timestamp=7))
        header = broker("broker-a", address)
        answer = await peer.ask(request(RequestCode.QUERY_DATA_VERSION, header, version))
        return answer.ext["changed"], answer.body

    known = encode(DataVersion(counter=5, timestamp=7))
    assert await ask(A, 5) == ("false", known)
    assert await ask(A, 6) == ("true", known)
    assert await ask(B, 5) == ("true", b"")


# Lists and permissions.


async def test_lists(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    await peer.register("broker-b", B, "orders", "mail", cluster="Second")
    assert await topics_in(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == [
        "bills",
        "mail",
        "orders",
    ]
    for cluster, topics in {"Second": ["mail", "orders"], "nowhere": []}.items():
        answer = await peer.ask(
            request(RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader(cluster=cluster))
        )
        assert decode(answer.body, TopicList).topics == topics
    answer = await peer.ask(request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
    assert json.loads(answer.body) == {
        "brokerAddr": A,
        "topicList": ["DefaultCluster", "broker-a", "Second", "broker-b"],
    }


async def test_unit_lists(peer: Peer) -> None:
    command = registration("broker-a", A)
    table = {
        name: {"topicName": name, "topicSysFlag": flag}
        for name, flag in (("plain", 0), ("unit", 1), ("subscribed", 2), ("both", 3))
    }
    command.body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()
    await peer.ask(command)
    assert {
        code.name: await topics_in(peer, code)
        for code in (
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        )
    } == {
        "GET_UNIT_TOPIC_LIST": ["both", "unit"],
        "GET_HAS_UNIT_SUB_TOPIC_LIST": ["both", "subscribed"],
        "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST": ["subscribed"],
    }


async def test_write_permission_is_wiped_and_added(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    for code, field, permission in (
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount", 4),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount", 6),
    ):
        answer = await peer.ask(request(code, BrokerNameHeader(broker_name="broker-a")))
        assert answer.ext == {field: "2"}
        route = await peer.route("orders")
        assert route is not None
        assert route.queues[0].permission == permission


async def test_topics_are_added_and_deleted(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    queues = QueueData(
        broker_name="broker-a", permission=6, read_queue_count=2, write_queue_count=2
    )
    body = encode(TopicRouteData(queues=[queues]))
    command = request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicHeader(topic="new"), body)
    assert (await peer.ask(command)).code == ResponseCode.SUCCESS
    route = await peer.route("new")
    assert route is not None
    assert route.queues == [queues]
    for topic, cluster in (("new", "DefaultCluster"), ("orders", ""), ("bills", None)):
        header = DeleteTopicHeader(topic=topic, cluster=cluster)
        command = request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        assert (await peer.ask(command)).code == ResponseCode.SUCCESS
        assert await peer.route(topic) is None


# Key-values and settings.


async def test_key_values_are_kept_over_a_restart(world: World, peer: Peer) -> None:
    for key in ("one", "two"):
        header = PutSettingHeader(namespace="n", key=key, value=key.upper())
        answer = await peer.ask(request(RequestCode.PUT_KV_CONFIG, header))
        assert answer.code == ResponseCode.SUCCESS
    await world.restart()
    peer = await world.peer()
    one = SettingHeader(namespace="n", key="one")
    answer = await peer.ask(request(RequestCode.GET_KV_CONFIG, one))
    assert answer.ext == {"value": "ONE"}
    answer = await peer.ask(
        request(RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceHeader(namespace="n"))
    )
    assert json.loads(answer.body) == {"table": {"one": "ONE", "two": "TWO"}}
    answer = await peer.ask(request(RequestCode.DELETE_KV_CONFIG, one))
    assert answer.code == ResponseCode.SUCCESS
    answer = await peer.ask(request(RequestCode.GET_KV_CONFIG, one))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_order_topics_reach_brokers_and_when_enabled_clients(peer: Peer) -> None:
    header = PutSettingHeader(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
    await peer.ask(request(RequestCode.PUT_KV_CONFIG, header))
    answer = await peer.register("broker-a", A, "orders", "bills")
    assert json.loads(answer.body) == {"table": {"orders": "broker-a:4"}}
    assert b"orderTopicConf" not in (await peer.ask(get_route("orders"))).body
    settings = b"orderMessageEnable=true\nreturnOrderTopicConfigToBroker=false"
    await peer.ask(request(RequestCode.UPDATE_NAMESRV_CONFIG, body=settings))
    route = await peer.route("orders")
    assert route is not None
    assert route.order_config == "broker-a:4"
    assert b"orderTopicConf" not in (await peer.ask(get_route("bills"))).body
    assert (await peer.register("broker-a", A, "orders", "bills")).body == b""


async def test_every_setting_of_apaches_name_server_is_shown_as_it_is(
    world: World, peer: Peer
) -> None:
    answer = await peer.ask(request(RequestCode.GET_NAMESRV_CONFIG))
    found = parse_properties(answer.body.decode())
    assert found["listenPort"] == str(world.server.port) != "0"
    assert found["bindAddress"] == "127.0.0.1"
    assert found["configBlackList"] == "bindAddress;kvConfigPath;listenPort"
    assert found["serverChannelMaxIdleTimeSeconds"] == "120"
    assert {"clientRequestThreadPoolNums", "enableTopicList", "supportActingMaster"} <= found.keys()
    assert {"serverWorkerThreads", "serverSocketBacklog", "useEpollNativeSelector"} <= found.keys()


async def test_settings_are_shown_and_changed(world: World, peer: Peer) -> None:
    answer = await peer.ask(request(RequestCode.GET_NAMESRV_CONFIG))
    assert parse_properties(answer.body.decode())["brokerChannelExpiredTime"] == "120000"
    answer = await peer.ask(
        request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"brokerChannelExpiredTime=60000")
    )
    assert answer.code == ResponseCode.SUCCESS
    answer = await peer.ask(request(RequestCode.GET_NAMESRV_CONFIG))
    assert parse_properties(answer.body.decode())["brokerChannelExpiredTime"] == "60000"
    assert world.server.config.broker_expiry_ms == 60_000


# Saying no.

JSON_BODY = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}'
KEY_VALUE = {"namespace": "n", "key": "k", "value": "v"}
BROKER = {"brokerName": "a", "brokerAddr": A, "clusterName": "c", "brokerId": "0"}
REGISTRATION = BROKER | {"haServerAddr": A}

REFUSALS: dict[str, tuple[Command, ResponseCode, str]] = {
    "unknown topic": (
        get_route("nothing"),
        ResponseCode.TOPIC_NOT_EXIST,
        "No topic route info in name server for the topic: nothing\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
    ),
    "unknown code": (
        Command(9999),
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "request type 9999 not supported",
    ),
    "a broker's code": (
        Command(RequestCode.SEND_MESSAGE),
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "request type 10 not supported",
    ),
    "route without a topic": (
        Command(RequestCode.GET_ROUTEINFO_BY_TOPIC),
        ResponseCode.SYSTEM_ERROR,
        "missing required field `topic`",
    ),
    "crc": (
        Command(RequestCode.REGISTER_BROKER, ext=REGISTRATION | {"bodyCrc32": "1"}, body=JSON_BODY),
        ResponseCode.SYSTEM_ERROR,
        "crc32 not match",
    ),
    "one topic alone": (
        registration("broker-a", A, "orders"),
        ResponseCode.SYSTEM_ERROR,
        "register broker failed: ",
    ),
    "registration that is neither JSON nor zlib": (
        Command(RequestCode.REGISTER_BROKER, ext=REGISTRATION, body=b"rubbish"),
        ResponseCode.SYSTEM_ERROR,
        "",
    ),
    "registration with torn JSON": (
        Command(RequestCode.REGISTER_BROKER, ext=REGISTRATION, body=JSON_BODY[:-3]),
        ResponseCode.SYSTEM_ERROR,
        "",
    ),
    "registration with a bomb": (
        Command(RequestCode.REGISTER_BROKER, ext=REGISTRATION, body=zlib.compress(bytes(1 << 26))),
        ResponseCode.SYSTEM_ERROR,
        "",
    ),
    "registration cut short": (
        Command(RequestCode.REGISTER_BROKER, ext=REGISTRATION, body=zlib.compress(b"\0\0\1\0{")),
        ResponseCode.SYSTEM_ERROR,
        "register-broker body",
    ),
    "registration without an id": (
        Command(RequestCode.REGISTER_BROKER, ext={"brokerName": "a"}, body=JSON_BODY),
        ResponseCode.SYSTEM_ERROR,
        "RegisterBrokerHeader",
    ),
    "registration with a word for an id": (
        Command(RequestCode.REGISTER_BROKER, ext=REGISTRATION | {"brokerId": "x"}, body=JSON_BODY),
        ResponseCode.SYSTEM_ERROR,
        "brokerId",
    ),
    "unregistration without an address": (
        Command(RequestCode.UNREGISTER_BROKER, ext={"brokerName": "a"}),
        ResponseCode.SYSTEM_ERROR,
        "BrokerHeader",
    ),
    "heartbeat without a name": (
        Command(RequestCode.BROKER_HEARTBEAT),
        ResponseCode.SYSTEM_ERROR,
        "BrokerHeartbeatHeader",
    ),
    "version without a body": (
        Command(RequestCode.QUERY_DATA_VERSION, ext=BROKER),
        ResponseCode.SYSTEM_ERROR,
        "",
    ),
    "topic without a body": (
        Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext={"topic": "t"}),
        ResponseCode.SYSTEM_ERROR,
        "",
    ),
    "unknown key": (
        Command(RequestCode.GET_KV_CONFIG, ext={"namespace": "n", "key": "k"}),
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: n Key: k",
    ),
    "unknown namespace": (
        Command(RequestCode.GET_KVLIST_BY_NAMESPACE, ext={"namespace": "n"}),
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: n",
    ),
    "value without a key": (
        Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "n", "value": "v"}),
        ResponseCode.SYSTEM_ERROR,
        "missing required field `key`",
    ),
    "a path": (
        Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/tmp/x"),
        ResponseCode.NO_PERMISSION,
        "kvConfigPath",
    ),
    "a value that does not fit": (
        Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=3.7"),
        ResponseCode.SYSTEM_ERROR,
        "orderMessageEnable='3.7'",
    ),
    "settings that are not text": (
        Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"\xff\xfe"),
        ResponseCode.SYSTEM_ERROR,
        "not UTF-8",
    ),
}


@pytest.mark.parametrize(("command", "code", "remark"), REFUSALS.values(), ids=REFUSALS)
async def test_refusal(peer: Peer, command: Command, code: ResponseCode, remark: str) -> None:
    answer = await peer.ask(command)
    assert answer.code == code
    assert answer.remark
    assert remark in answer.remark
    assert "internal error" not in answer.remark
    assert await topics_in(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == []


async def test_a_hidden_topic_list(peer: Peer) -> None:
    await peer.ask(request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=false"))
    answer = await peer.ask(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "disable" in (answer.remark or "")


@pytest.mark.parametrize("code", [RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG])
async def test_a_disk_that_fails_is_admitted(world: World, peer: Peer, code: RequestCode) -> None:
    await peer.ask(Command(RequestCode.PUT_KV_CONFIG, ext=dict(KEY_VALUE)))
    world.disk.plant("write", OSError(5, "input/output error"))
    answer = await peer.ask(Command(code, ext=KEY_VALUE | {"value": "new"}))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "could not be kept" in (answer.remark or "")
    answer = await peer.ask(Command(RequestCode.GET_KV_CONFIG, ext=dict(KEY_VALUE)))
    assert answer.ext == {"value": "v"}


async def test_one_way_requests_are_never_answered(peer: Peer) -> None:
    for code in [*HANDLERS, 9999]:
        peer.connection.send(Command(code, flag=2, opaque=1))
    answer = await peer.ask(get_route("nothing"))  # the first answer there is
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


# Spelling.


async def test_beyond_ascii_is_escaped_in_routes(peer: Peer) -> None:
    await peer.register("bröker-😀", A, "orders", "bills", cluster="集群")
    for command in (get_route("orders"), request(RequestCode.GET_BROKER_CLUSTER_INFO)):
        answer = await peer.ask(command)
        assert answer.body.isascii()
        assert b" " not in answer.body
        assert "bröker-😀" in str(json.loads(answer.body))
        assert "集群" in str(json.loads(answer.body))


async def test_binary_headers_are_answered_in_kind(peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    command = get_route("orders")
    command.serializer = Serializer.ROCKETMQ
    answer = await peer.ask(command)
    assert answer.serializer == Serializer.ROCKETMQ
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in answer.body


async def test_it_stops_and_starts_again_knowing_nothing(world: World, peer: Peer) -> None:
    await peer.register("broker-a", A, "orders", "bills")
    await world.restart()
    assert await (await world.peer()).route("orders") is None


async def test_a_port_that_is_taken_is_said(world: World) -> None:
    world.config = msgspec.structs.replace(NameServerConfig(), port=world.server.port)
    second = world.new_server()
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.stop()
