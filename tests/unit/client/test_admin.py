"""Administration: who is asked, and what becomes of the answers."""

from collections.abc import Callable

import msgspec
import pytest

from ariane.client import MessageQueue
from ariane.client.tracking import TrackType
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ArianeError, ClientError, RequestFailed
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumerConnections,
    ConsumeStats,
    GroupList,
    OffsetProgress,
    SubscriptionData,
    TopicList,
    TopicOffset,
    TopicStats,
)
from ariane.protocol.command import Command, reply
from ariane.protocol.message import decode_records, encode_offset_id
from tests.unit.client.fake import client_of, record, refusing, running


async def test_a_topic_is_created_on_every_master() -> None:
    async with running("a", "b") as cluster, client_of(cluster) as client:
        made = await client.admin.create_topic("orders", write_queue_count=3, permission=4)
        assert made == ["a", "b"]
        for broker in cluster.brokers.values():
            (command,) = broker.of(RequestCode.UPDATE_AND_CREATE_TOPIC)
            assert command.ext["topic"] == "orders"
            assert command.ext["writeQueueNums"] == command.ext["readQueueNums"] == "3"
            assert command.ext["perm"] == "4"


async def test_a_refusal_of_one_broker_is_told() -> None:
    async with running("a", "b") as cluster, client_of(cluster) as client:
        create = RequestCode.UPDATE_AND_CREATE_TOPIC
        cluster.brokers["b"].answers[create] = refusing(ResponseCode.INVALID_PARAMETER)
        with pytest.raises(RequestFailed, match=cluster.brokers["b"].address):
            await client.admin.create_topic("orders")
        assert cluster.brokers["a"].of(create)


async def test_names_that_cannot_be_never_leave() -> None:
    async with running("a") as cluster, client_of(cluster) as client:
        with pytest.raises(ClientError, match="may only hold"):
            await client.admin.create_topic("../x")
        assert not cluster.name_server.requests


async def test_a_cluster_that_is_not_there_is_answered_with_those_that_are() -> None:
    async with running("a") as cluster, client_of(cluster) as client:
        with pytest.raises(ClientError, match="there is: c"):
            await client.admin.create_topic("orders", cluster="d")


async def test_a_topic_is_deleted_on_brokers_then_on_name_servers() -> None:
    async with running("a", "b", orders=1) as cluster, client_of(cluster) as client:
        await client.admin.delete_topic("orders")
        for broker in cluster.brokers.values():
            assert broker.of(RequestCode.DELETE_TOPIC_IN_BROKER)
        assert cluster.name_server.of(RequestCode.DELETE_TOPIC_IN_NAMESRV)


async def test_topics_come_sorted() -> None:
    async with running("a") as cluster, client_of(cluster) as client:
        body = fastjson.encode(TopicList(topics=["b", "a"]))
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        cluster.name_server.answers[code] = lambda command: reply(command, body=body)
        assert await client.admin.topics() == ["a", "b"]


async def test_stats_are_gathered_from_all_brokers() -> None:
    async with running("a", "b", orders=1) as cluster, client_of(cluster) as client:
        for name, broker in cluster.brokers.items():
            queue = MessageQueue(topic="orders", broker_name=name, queue_id=0)
            offsets = {queue: TopicOffset(min_offset=1, max_offset=4, last_update_ms=9)}
            body = fastjson.encode(TopicStats(offsets=offsets))

            def answer(command: Command, body: bytes = body) -> Command:
                return reply(command, body=body)

            broker.answers[RequestCode.GET_TOPIC_STATS_INFO] = answer
        stats = await client.admin.topic_stats("orders")
        assert [(entry.queue.broker_name, entry.max_offset) for entry in stats] == [
            ("a", 4),
            ("b", 4),
        ]


async def test_a_message_is_fetched_from_the_address_in_its_id() -> None:
    async with running("a") as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        broker.answers[RequestCode.VIEW_MESSAGE_BY_ID] = lambda command: reply(
            command, body=record(b"found")
        )
        host, port = broker.address.split(":")
        message = await client.admin.message(encode_offset_id((host, int(port)), 4096))
        assert message.body == b"found"
        (command,) = broker.of(RequestCode.VIEW_MESSAGE_BY_ID)
        assert command.ext["offset"] == "4096"


@pytest.mark.parametrize("text", ["", "xyz", "00" * 10])
async def test_what_is_no_id_is_refused(text: str) -> None:
    async with running("a") as cluster, client_of(cluster) as client:
        with pytest.raises(ArianeError, match="offset message id"):
            await client.admin.message(text)


async def test_a_key_is_looked_for_on_every_broker_and_not_finding_is_no_error() -> None:
    async with running("a", "b", orders=1) as cluster, client_of(cluster) as client:
        query = RequestCode.QUERY_MESSAGE
        for broker in cluster.brokers.values():
            broker.answers[query] = refusing(ResponseCode.QUERY_NOT_FOUND)
        assert await client.admin.find("orders", "k") == []
        assert await client.admin.find_by_id("orders", "AB" * 16) == []
        asked = [command.ext for broker in cluster.brokers.values() for command in broker.of(query)]
        assert len(asked) == 4
        assert [ext.get("_UNIQUE_KEY_QUERY") for ext in asked] == [None, "true"] * 2


async def test_a_message_is_tracked_on_the_broker_that_has_it() -> None:
    async with running("a", orders=1) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        host, port = broker.address.split(":")
        (message,) = decode_records(record(b"x", queue_offset=3))
        message = msgspec.structs.replace(message, store_host=(host, int(port)))
        queue = MessageQueue(topic="orders", broker_name="a", queue_id=0)
        stats = ConsumeStats(offsets={queue: OffsetProgress(consume_offset=4)})
        by_expression = SubscriptionData(
            topic="orders", expression="a > 5", expression_type="SQL92"
        )
        online = ConsumerConnections(
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            subscriptions={"orders": by_expression},
        )
        groups = GroupList(groups=["picky", "gone", "broken"])

        def members(command: Command) -> Command:
            if command.ext["consumerGroup"] == "gone":
                return reply(command, ResponseCode.CONSUMER_NOT_ONLINE, remark="not online")
            if command.ext["consumerGroup"] == "broken":
                return reply(command, ResponseCode.SYSTEM_ERROR, remark="out of order")
            return reply(command, body=fastjson.encode(online))

        def answering(body: bytes) -> Callable[[Command], Command]:
            return lambda command: reply(command, body=body)

        broker.answers |= {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: answering(fastjson.encode(groups)),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: members,
            RequestCode.GET_CONSUME_STATS: answering(fastjson.encode(stats)),
            RequestCode.PULL_MESSAGE: answering(record(b"x", queue_offset=4)),
        }
        tracks = await client.admin.track(message)
        assert [(track.group, track.type.value) for track in tracks] == [
            ("broken", "UNKNOWN"),
            ("gone", "NOT_ONLINE"),
            ("picky", "CONSUMED_BUT_FILTERED"),  # the pull began with a later one
        ]
        assert "out of order" in tracks[0].detail
        (pull,) = broker.of(RequestCode.PULL_MESSAGE)
        assert {pull.ext[name] for name in ("subscription", "expressionType", "queueOffset")} == {
            "a > 5", "SQL92", "3",
        }  # fmt: skip
        broker.answers[RequestCode.PULL_MESSAGE] = answering(record(b"x", queue_offset=3))
        assert (await client.admin.track(message))[2].type is TrackType.CONSUMED


async def test_a_transaction_is_resumed_where_it_was_given_up() -> None:
    async with running("a", "b") as cluster, client_of(cluster) as client:
        host, port = cluster.brokers["b"].address.split(":")
        message_id = encode_offset_id((host, int(port)), 77)
        await client.admin.resume_transaction(message_id)
        (command,) = cluster.brokers["b"].of(RequestCode.RESUME_CHECK_HALF_MESSAGE)
        assert command.ext == {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "msgId": message_id}
        assert not cluster.brokers["a"].of(RequestCode.RESUME_CHECK_HALF_MESSAGE)
