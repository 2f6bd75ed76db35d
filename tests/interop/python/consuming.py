"""How messages are consumed: again after failures, filtered, by all, from where, answered."""

import asyncio
import json
import tempfile
import time
from pathlib import Path

from ariane import Client
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry
from ariane.client.starting import Start
from ariane.codes import ResponseCode
from ariane.errors import ArianeError, RequestFailed, RequestTimeout
from ariane.protocol.message import StoredMessage
from tests.interop.python.cluster import LATE_S, Cluster, Receiver, feature, until

QUEUES = 2


class Unwilling(Exception):
    """What a handler of a test raises."""


@feature("retry")
async def retry(cluster: Cluster) -> None:
    topic = await cluster.topic("retried", QUEUES)
    receipt = await cluster.client.send(
        topic, "fails twice", tags="T", keys="k", properties={"colour": "blue"}
    )
    await cluster.client.send(topic, "fine")

    async def fail_twice(message: ReceivedMessage) -> None:
        if message.body == b"fails twice" and message.reconsume_times < 2:
            raise Unwilling

    async with Receiver(cluster, cluster.fresh("group"), topic, fail_twice) as receiver:
        await receiver.expect("fine", *["fails twice"] * 3)
    tries = receiver.of("fails twice")
    for number, delivery in enumerate(tries):
        message = delivery.message
        assert delivery.retries == number
        assert message.message_id == receipt.message_id
        assert (message.topic, message.tags, message.keys) == (topic, "T", ["k"])
        assert message.properties["colour"] == "blue"
        if number:
            assert message.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_message_id
            waited_s = delivery.at_s - tries[number - 1].at_s
            delay_s = cluster.delays_s[2 + number - 1]  # levels 3, 4, ...
            assert delay_s - 0.005 <= waited_s < delay_s + LATE_S


@feature("dead-letter")
async def dead_letter(cluster: Cluster) -> None:
    topic, group = await cluster.topic("dead", QUEUES), cluster.fresh("group")
    receipt = await cluster.client.send(topic, "hopeless", keys="k", properties={"colour": "blue"})
    mourned: list[ReceivedMessage] = []

    async def fail(message: ReceivedMessage) -> None:
        raise Unwilling

    async with Receiver(
        cluster, group, topic, fail, retry=Retry(max=2), dead_letter=mourned.append
    ) as receiver:
        await receiver.wait(3)
        dead = await cluster.found(f"%DLQ%{group}", receipt.message_id)
        await receiver.expect(*["hopeless"] * 3)
    assert (dead.body, dead.message_id, dead.keys) == (b"hopeless", receipt.message_id, ["k"])
    assert dead.properties["RETRY_TOPIC"] == topic
    assert dead.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_message_id
    assert dead.properties["colour"] == "blue"
    assert dead.reconsume_times == 3
    assert [message.message_id for message in mourned] == [receipt.message_id]


@feature("dead-letter-at-once")
async def dead_letter_at_once(cluster: Cluster) -> None:
    topic, group = await cluster.topic("straight", 1), cluster.fresh("group")
    receipt = await cluster.client.send(topic, "poison")

    async def fail(message: ReceivedMessage) -> None:
        raise Unwilling

    async with Receiver(cluster, group, topic, fail, retry=Retry(max=0)) as receiver:
        assert (await cluster.found(f"%DLQ%{group}", receipt.message_id)).body == b"poison"
        await receiver.expect("poison")


@feature("broadcast")
async def broadcast(cluster: Cluster) -> None:
    topic, group = await cluster.topic("broadcast", QUEUES), cluster.fresh("group")

    async def fail_some(message: ReceivedMessage) -> None:
        if message.body.endswith(b"3"):
            raise Unwilling

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        async with (
            Receiver(
                cluster, group, topic, fail_some, broadcast=True, offsets_directory=Path(one)
            ) as first,
            Receiver(
                cluster, group, topic, fail_some, broadcast=True, offsets_directory=Path(other)
            ) as second,
        ):
            sent = [f"to all {number}" for number in range(6)]
            for body in sent:
                await cluster.client.send(topic, body)
            await first.expect(*sent)
            await second.expect(*sent)


@feature("filter-tags")
async def filter_tags(cluster: Cluster) -> None:
    topic = await cluster.topic("tags", QUEUES)
    for tag in ("Aa", "BB", "C", "D"):  # the first two have the same hash
        await cluster.client.send(topic, tag, tags=tag)
    await cluster.client.send(topic, "none")
    async with (
        Receiver(cluster, cluster.fresh("group"), topic, tags="Aa || C") as two,
        Receiver(cluster, cluster.fresh("group"), topic) as everything,
    ):
        await two.expect("Aa", "C")
        await everything.expect("Aa", "BB", "C", "D", "none")
        await cluster.client.send(topic, "BB late", tags="BB")
        await cluster.client.send(topic, "C late", tags="C")  # while pulls are held
        await two.expect("Aa", "C", "C late")


SQL = {
    "number > 4": {"1", "2"},
    "number >= 10 OR number < 0": {"2", "3"},
    "number NOT BETWEEN 5 AND 10": {"3"},
    "name IN ('abc', 'it''s')": {"1", "2"},
    "name IS NULL": {"3", "5"},
    "flag = TRUE": {"3"},
    "name CONTAINS 'abc'": {"1", "4"},
    "TAGS = 'T' AND (number = 5 OR name = 'xabcy')": {"1", "4"},
    "NOT (number > 4)": {"3"},
}


@feature("filter-sql92")
async def filter_sql(cluster: Cluster) -> None:
    topic = await cluster.topic("sql", QUEUES)
    for body, properties in {
        "1": {"number": "5", "name": "abc"},
        "2": {"number": "10", "name": "it's"},
        "3": {"number": "-2", "flag": "true"},
        "4": {"name": "xabcy", "flag": "false"},
        "5": {},
    }.items():
        await cluster.client.send(topic, body, tags="T", properties=properties)

    async def check(expression: str, expected: set[str]) -> None:
        async with Receiver(cluster, cluster.fresh("group"), topic, sql=expression) as receiver:
            await receiver.wait(len(expected))
            await asyncio.sleep(0.5)
            assert set(receiver.bodies) == expected, f"{expression}: {receiver.bodies}"

    await asyncio.gather(*(check(*each) for each in SQL.items()))
    async with Receiver(cluster, cluster.fresh("group"), topic, sql="number = 7") as receiver:
        await cluster.client.send(topic, "6", properties={"number": "6"})
        await cluster.client.send(topic, "7", properties={"number": "7"})  # while pulls are held
        await receiver.expect("7")


@feature("filter-sql92-refused")
async def filter_sql_refused(cluster: Cluster) -> None:
    topic = await cluster.topic("sql_bad", 1)
    for expression in ("number >", "number = 'a' AND", "name IN ()", "BETWEEN"):
        try:
            async with Receiver(cluster, cluster.fresh("group"), topic, sql=expression):
                raise AssertionError(f"a consumer started with: {expression}")
        except RequestFailed as refusal:
            assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED, refusal


async def send_halves(cluster: Cluster, topic: str) -> int:
    """Ten messages, a moment, and ten more; gives the moment."""
    queues = await cluster.client.producer().queues(topic)
    for number in range(10):
        await cluster.client.send(topic, f"first-{number}", queue=queues[number % len(queues)])
    await asyncio.sleep(0.05)
    moment_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.05)
    for number in range(10):
        await cluster.client.send(topic, f"second-{number}", queue=queues[number % len(queues)])
    return moment_ms


async def reset(cluster: Cluster, group: str, topic: str, moment_ms: int) -> None:
    order = {"topic": topic, "group": group, "timestamp": str(moment_ms), "isForce": "true"}
    await cluster.call(222, order)


@feature("offset-reset-online")
async def offset_reset_online(cluster: Cluster) -> None:
    topic, group = await cluster.topic("reset", QUEUES), cluster.fresh("group")
    moment_ms = await send_halves(cluster, topic)
    async with Receiver(cluster, group, topic) as receiver:
        await receiver.wait(20)
        await reset(cluster, group, topic, moment_ms)
        await receiver.wait(30)
        first = [body for body in receiver.bodies if body.startswith("first-")]
        assert len(first) == 10, receiver.bodies
        await receiver.consumer.commit()


@feature("offset-reset-offline")
async def offset_reset_offline(cluster: Cluster) -> None:
    topic, group = await cluster.topic("reset_off", QUEUES), cluster.fresh("group")
    moment_ms = await send_halves(cluster, topic)
    async with Receiver(cluster, group, topic) as receiver:
        await receiver.wait(20)
    assert await cluster.progress(group, topic, QUEUES) == 20
    await reset(cluster, group, topic, moment_ms)
    async with Receiver(cluster, group, topic) as receiver:
        await receiver.expect(*(f"second-{number}" for number in range(10)))


@feature("offset-skip")
async def offset_skip(cluster: Cluster) -> None:
    topic, group = await cluster.topic("skip", QUEUES), cluster.fresh("group")
    await cluster.make_group(group)
    await send_halves(cluster, topic)
    await reset(cluster, group, topic, -1)  # to the end
    await cluster.client.send(topic, "after")
    async with Receiver(cluster, group, topic) as receiver:
        await receiver.expect("after")


@feature("offset-clone")
async def offset_clone(cluster: Cluster) -> None:
    topic = await cluster.topic("clone", QUEUES)
    source, copy = cluster.fresh("group_source"), cluster.fresh("group_copy")
    await send_halves(cluster, topic)
    async with Receiver(cluster, source, topic) as receiver:
        await receiver.wait(20)
    await cluster.make_group(copy)
    order = {"srcGroup": source, "destGroup": copy, "topic": topic, "offline": "true"}
    await cluster.call(314, order)
    await cluster.client.send(topic, "after")
    async with Receiver(cluster, copy, topic) as receiver:
        await receiver.expect("after")


@feature("offset-first-start")
async def offset_first_start(cluster: Cluster) -> None:
    topic = await cluster.topic("first", 1)
    for number in range(5):
        await cluster.client.send(topic, f"early-{number}")
    group = cluster.fresh("group")
    async with Receiver(cluster, group, topic, start=Start.LAST) as receiver:
        await receiver.expect(*(f"early-{number}" for number in range(5)))


@feature("offset-corrected")
async def offset_corrected(cluster: Cluster) -> None:
    topic, group = await cluster.topic("corrected", 1), cluster.fresh("group")
    await cluster.make_group(group)
    await send_halves(cluster, topic)
    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    await cluster.call(15, {**place, "commitOffset": "1000"})
    async with Receiver(cluster, group, topic) as receiver:

        async def goes_on() -> bool:
            await cluster.client.send(topic, "late")
            await asyncio.sleep(0.3)
            return "late" in receiver.bodies

        await until(goes_on, "the consumer to go on")
    assert set(receiver.bodies) == {"late"}


@feature("request-reply")
async def request_reply(cluster: Cluster) -> None:
    topic = await cluster.topic("request", QUEUES)

    async def answer(message: ReceivedMessage) -> None:
        if message.body != b"silence":
            await cluster.client.reply(message, b"re: " + message.body)

    async with (
        Client(cluster.name_server) as asking,
        Receiver(cluster, cluster.fresh("group"), topic, answer) as receiver,
    ):
        for number in range(5):
            reply = await asking.request(topic, f"question {number}", timeout=15)
            assert reply.body == f"re: question {number}".encode()
        replies = await asyncio.gather(
            *(asking.request(topic, f"at once {number}", timeout=15) for number in range(8))
        )
        assert [reply.body for reply in replies] == [b"re: at once %d" % n for n in range(8)]
        try:
            await asking.request(topic, "silence", timeout=1)
        except RequestTimeout:
            assert "silence" in receiver.bodies
        else:
            raise AssertionError("an answer to what nobody answered")


@feature("request-reply-apart")
async def replies_apart(cluster: Cluster) -> None:
    topic = await cluster.topic("apart", 1)

    async def answer(message: ReceivedMessage) -> None:
        await cluster.client.reply(message, b"re: " + message.body)

    async with (
        Client(cluster.name_server) as one,
        Client(cluster.name_server) as other,
        Receiver(cluster, cluster.fresh("group"), topic, answer),
    ):
        replies = await asyncio.gather(
            one.request(topic, "from one", timeout=15),
            other.request(topic, "from other", timeout=15),
        )
    assert [reply.body for reply in replies] == [b"re: from one", b"re: from other"]


@feature("trace")
async def trace(cluster: Cluster) -> None:
    topic = await cluster.topic("trace", 1)
    producers = cluster.fresh("producers")
    async with Client(cluster.name_server, group=producers, trace=True) as client:
        receipt = await client.send(topic, "traced", tags="Seen", keys="traced-key")

        async def is_traced() -> bool:
            traces = await cluster.client.admin.find("RMQ_SYS_TRACE_TOPIC", receipt.message_id)
            return any(producers in body_of(each) for each in traces)

        await until(is_traced, "the trace")


def body_of(message: StoredMessage) -> str:
    return message.body.decode()


@feature("consumer-status")
async def consumer_status(cluster: Cluster) -> None:
    topic, group = await cluster.topic("status_of", 1), cluster.fresh("group")
    async with Receiver(cluster, group, topic) as receiver:
        receipt = await cluster.client.send(topic, "once more")
        await receiver.wait(1)
        client_id = receiver.client.session.client_id
        who = {"consumerGroup": group, "clientId": client_id}
        info = await cluster.call(307, {**who, "jstackEnable": "false"})
        assert topic.encode() in info.body
        result = await cluster.call(
            309, {**who, "msgId": receipt.offset_message_id, "topic": topic}
        )
        assert json.loads(result.body)["consumeResult"] == "CR_SUCCESS"
        assert receiver.bodies == ["once more"] * 2


@feature("no-such-topic")
async def no_such_topic(cluster: Cluster) -> None:
    group = cluster.fresh("group")
    try:
        async with Receiver(cluster, group, cluster.fresh("unknown")):
            pass  # some day it may come to be
    except ArianeError as error:
        raise AssertionError("a consumer must wait for its topic") from error
