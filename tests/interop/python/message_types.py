"""What can be sent: in order, for later, in transactions, in batches, compressed."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from ariane import Client, Message, SendReceipt
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry, RetryLater
from ariane.client.transactions import Transaction
from ariane.codes import ResponseCode, SystemFlag
from ariane.errors import RequestFailed
from ariane.protocol.message import StoredMessage
from tests.interop.python.cluster import (
    Cluster,
    NotThere,
    Receiver,
    check_time,
    feature,
    until,
)


@feature("ordered-by-key")
async def ordered_by_key(cluster: Cluster) -> None:
    topic, group = await cluster.topic("by_key"), cluster.fresh("group")
    seen: list[str] = []

    async def note(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with (
        Receiver(cluster, group, topic, note, orderly=True),
        Receiver(cluster, group, topic, note, orderly=True),
    ):
        for step in range(12):
            for order in range(10):
                body = f"{order}:{step}"
                await cluster.client.send(topic, body, sharding_key=f"order-{order}")
        await until(lambda: len(set(seen)) == 120, lambda: f"120 steps, got {len(set(seen))}")
    last: dict[str, int] = {}
    for body in seen:  # a rebalance may repeat, never skip
        key, _, number = body.partition(":")
        assert int(number) <= last.get(key, -1) + 1, f"{body} came too early in {seen}"
        last[key] = int(number)


@feature("ordered-globally")
async def ordered_globally(cluster: Cluster) -> None:
    topic = await cluster.topic("global", 1)
    async with Receiver(cluster, cluster.fresh("group"), topic, orderly=True) as receiver:
        for number in range(100):
            await cluster.client.send(topic, f"g-{number}")
        await receiver.wait(100)
    assert receiver.bodies == [f"g-{number}" for number in range(100)]


@feature("ordered-suspended")
async def ordered_suspended(cluster: Cluster) -> None:
    topic = await cluster.topic("suspended", 1)
    for number in range(4):
        await cluster.client.send(topic, str(number))

    async def fail_twice(message: ReceivedMessage) -> None:
        if message.body == b"1" and message.reconsume_times < 2:
            raise RetryLater(0.3)

    group = cluster.fresh("group")
    async with Receiver(cluster, group, topic, fail_twice, orderly=True) as receiver:
        await receiver.wait(6)
    assert receiver.bodies == ["0", "1", "1", "1", "2", "3"]
    tries = receiver.of("1")
    assert [delivery.retries for delivery in tries] == [0, 1, 2]
    assert tries[1].at_s - tries[0].at_s >= 0.29


@feature("ordered-dead-letter")
async def ordered_dead_letter(cluster: Cluster) -> None:
    topic, group = await cluster.topic("orderly_dead", 1), cluster.fresh("group")
    receipts = [await cluster.client.send(topic, str(number)) for number in range(4)]

    async def fail(message: ReceivedMessage) -> None:
        if message.body == b"1":
            raise RetryLater(0.05)

    async with Receiver(cluster, group, topic, fail, orderly=True, retry=Retry(max=2)) as receiver:
        await receiver.wait(6)
        assert receiver.bodies == ["0", "1", "1", "1", "2", "3"]
        dead = await cluster.found(f"%DLQ%{group}", receipts[1].message_id)
    assert dead.body == b"1"


@feature("delay-levels")
async def delay_levels(cluster: Cluster) -> None:
    topic = await cluster.topic("levels")
    due_s: dict[str, float] = {}
    sent: dict[str, SendReceipt] = {}
    async with Receiver(cluster, cluster.fresh("group"), topic) as receiver:
        for level in (0, 1, 2, 5, 18, 40):
            body = f"level-{level}"
            delays_s = cluster.delays_s
            delay_s = delays_s[min(level, len(delays_s)) - 1] if level else 0.0
            due_s[body] = time.time() + delay_s
            sent[body] = await cluster.client.send(
                topic, body, tags="Later", delay_level=level, properties={"colour": "blue"}
            )
        await receiver.wait(6)
    for delivery in receiver.deliveries:
        message = delivery.message
        check_time(delivery, due_s[delivery.body])
        assert message.message_id == sent[delivery.body].message_id
        assert message.queue_id == sent[delivery.body].queue.queue_id
        assert (message.topic, message.tags) == (topic, "Later")
        assert message.properties["colour"] == "blue"
        assert message.reconsume_times == 0


@feature("timer")
async def timer(cluster: Cluster) -> None:
    topic = await cluster.topic("timer")
    async with Receiver(cluster, cluster.fresh("group"), topic) as receiver:
        now_s = time.time()
        moment = datetime.fromtimestamp(now_s + 2.345)
        due_s = {"delay": now_s + 1.234, "moment": now_s + 2.345, "past": now_s, "whole": now_s + 2}
        await cluster.client.send(topic, "delay", delay=1.234, keys="k")
        await cluster.client.send(topic, "whole", delay=timedelta(seconds=2), keys="k")
        await cluster.client.send(topic, "moment", deliver_at=moment, keys="k")
        await cluster.client.send(topic, "past", deliver_at=moment - timedelta(days=1), keys="k")
        await receiver.wait(4)
    for delivery in receiver.deliveries:
        check_time(delivery, due_s[delivery.body], early_s=cluster.timer_precision_s)
        assert (delivery.message.topic, delivery.message.keys) == (topic, ["k"])


@feature("timer-recall")
async def timer_recall(cluster: Cluster) -> None:
    topic = await cluster.topic("recall", 1)
    async with Receiver(cluster, cluster.fresh("group"), topic) as receiver:
        await cluster.client.send(topic, "kept", delay=4)
        recalled = await cluster.client.send(topic, "recalled", delay=4)
        assert await cluster.client.recall(recalled) == recalled.message_id
        await receiver.expect("kept")


@feature("timer-too-far-refused")
async def timer_too_far(cluster: Cluster) -> None:
    topic = await cluster.topic("too_far", 1)
    await refused_with(
        ResponseCode.MESSAGE_ILLEGAL,
        cluster.client.send(topic, "in a year", delay=timedelta(days=365)),
    )


async def refused_with(code: int, sending: Awaitable[object]) -> None:
    try:
        await sending
    except RequestFailed as refusal:
        assert refusal.code == code, refusal
    else:
        raise AssertionError("it was accepted")


class Deciding:
    """A producer group whose checker decides by what a body ends with."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self.client = Client(cluster.name_server)
        self.group = group
        self.topic = topic
        self.checks: list[StoredMessage] = []
        self.sent: dict[str, SendReceipt] = {}
        self.client.checker(group)(self._check)

    def _check(self, message: StoredMessage) -> bool | None:
        self.checks.append(message)
        return decision(message.body.decode().split("-")[-1])

    async def send(self, *bodies: str) -> None:
        for body in bodies:
            begun = self.client.transaction(
                self.topic,
                body,
                group=self.group,
                keys=f"key-{body}",
                properties={"colour": "blue"},
            )
            async with begun as transaction:
                self.sent[body] = transaction.receipt
                wanted = decision(body.split("-")[0])
                if wanted is None:
                    transaction.unknown()
                elif not wanted:
                    transaction.rollback()

    @property
    def checked(self) -> list[str]:
        return [message.body.decode() for message in self.checks]


def decision(word: str) -> bool | None:
    return {"commit": True, "rollback": False}.get(word)


@asynccontextmanager
async def deciding(cluster: Cluster, group: str, topic: str) -> AsyncIterator[Deciding]:
    decider = Deciding(cluster, group, topic)
    async with decider.client:
        yield decider


@feature("transaction-commit-rollback")
async def transaction_ended(cluster: Cluster) -> None:
    topic = await cluster.topic("transaction")
    async with (
        deciding(cluster, cluster.fresh("producers"), topic) as decider,
        Receiver(cluster, cluster.fresh("group"), topic) as receiver,
    ):
        for number in range(5):
            await decider.send(f"commit-{number}", f"rollback-{number}")
        try:
            async with decider.client.transaction(topic, "raised", group=decider.group):
                raise KeyError("the work failed")
        except KeyError:
            pass
        await receiver.expect(*(f"commit-{number}" for number in range(5)))
        # Had the ends not counted, those would be asked about before this one, which is younger.
        await decider.send("unknown-then-rollback")
        await until(lambda: "unknown-then-rollback" in decider.checked, "the check")
        assert set(decider.checked) == {"unknown-then-rollback"}
    for delivery in receiver.deliveries:
        message, receipt = delivery.message, decider.sent[delivery.body]
        assert message.topic == topic
        assert message.message_id == receipt.message_id
        assert message.queue_id == receipt.queue.queue_id
        assert message.keys == [f"key-{delivery.body}"]
        assert message.properties["colour"] == "blue"


@feature("transaction-check-back")
async def transaction_checked(cluster: Cluster) -> None:
    topic = await cluster.topic("checked", 1)
    async with (
        deciding(cluster, cluster.fresh("producers"), topic) as decider,
        Receiver(cluster, cluster.fresh("group"), topic) as receiver,
    ):
        await decider.send("unknown-then-commit", "unknown-then-rollback")
        assert await cluster.count(topic) == 0
        await until(lambda: len(set(decider.checked)) == 2, "both checks")
        await receiver.expect("unknown-then-commit")
        for check in decider.checks:
            body = check.body.decode()
            assert (check.topic, check.keys) == (topic, [f"key-{body}"])
            assert check.message_id == decider.sent[body].message_id


@feature("transaction-given-up")
async def transaction_given_up(cluster: Cluster) -> None:
    topic = await cluster.topic("given_up", 1)
    most = int(cluster.settings["transactionCheckMax"])
    async with deciding(cluster, cluster.fresh("producers"), topic) as decider:
        await decider.send("unknown-for-ever")
        least = 1 if cluster.is_apache else most  # it counts questions that found nobody to answer
        await until(lambda: len(decider.checked) >= least, "the checks")
        seen = 0
        while seen != len(decider.checked):
            seen = len(decider.checked)
            await asyncio.sleep(3)  # rounds are a second apart
        assert least <= seen <= most
        assert await cluster.count(topic) == 0


@feature("transaction-other-producer")
async def transaction_of_others(cluster: Cluster) -> None:
    topic, group = await cluster.topic("restarted", 1), cluster.fresh("producers")
    async with deciding(cluster, group, topic) as first:
        await first.send("unknown-then-commit")
    async with (
        deciding(cluster, group, topic) as second,
        Receiver(cluster, cluster.fresh("group"), topic) as receiver,
    ):
        await receiver.expect("unknown-then-commit")
        assert set(second.checked) == {"unknown-then-commit"}


@feature("batch-with-properties")
async def batch(cluster: Cluster) -> None:
    topic = await cluster.topic("batch_properties", 2)
    messages = [
        Message(
            topic,
            f"batch-{number}",
            tags=("Even", "Odd")[number % 2],
            keys=f"key-{number}",
            properties={"number": str(number)},
        )
        for number in range(10)
    ]
    receipts = await cluster.client.send_batch(messages)
    async with Receiver(cluster, cluster.fresh("group"), topic, tags="Even") as receiver:
        await receiver.expect(*(f"batch-{number}" for number in range(0, 10, 2)))
    for delivery in receiver.deliveries:
        number = int(delivery.message.properties["number"])
        assert delivery.body == f"batch-{number}"
        assert delivery.message.keys == [f"key-{number}"]
        assert delivery.message.message_id == receipts[number].message_id
        assert delivery.message.queue_offset == receipts[number].queue_offset


@feature("linger-batches")
async def linger(cluster: Cluster) -> None:
    topic = await cluster.topic("linger", 2)
    lingering = cluster.client.producer(linger=0.005)
    receipts = await asyncio.gather(*(lingering.send(topic, f"l-{n}") for n in range(200)))
    places = {(receipt.queue.queue_id, receipt.queue_offset) for receipt in receipts}
    assert len(places) == 200
    async with Receiver(cluster, cluster.fresh("group"), topic) as receiver:
        await receiver.expect(*(f"l-{number}" for number in range(200)))


@feature("compressed-bodies")
async def compressed(cluster: Cluster) -> None:
    topic = await cluster.topic("compression", 1)
    text = "to be compressed by the client " * 1000
    for kind in ("zlib", "lz4", "zstd"):
        await cluster.client.producer(compression=kind).send(topic, text + kind, tags=kind)
    noise = os.urandom(10_000)
    await cluster.client.send(topic, noise, tags="noise")
    async with Receiver(cluster, cluster.fresh("group"), topic) as receiver:
        await receiver.wait(4)
    for delivery in receiver.deliveries:
        message = delivery.message
        if message.tags == "noise":
            assert message.body == noise
        else:
            assert message.body == f"{text}{message.tags}".encode()
            assert message.system_flag & SystemFlag.COMPRESSED
            assert len(message.stored_body) < 3_000


@feature("message-types")
async def types(cluster: Cluster) -> None:
    if cluster.is_apache:
        raise NotThere("Apache's broker takes every type, only its proxy refuses")
    kinds = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
    topics = {kind: await typed_topic(cluster, kind) for kind in kinds}
    cluster.client.checked_elsewhere("DEFAULT_PRODUCER")
    for kind, topic in topics.items():
        sends = {
            "NORMAL": cluster.client.send(topic, "plain"),
            "FIFO": cluster.client.send(topic, "in order", sharding_key="k"),
            "DELAY": cluster.client.send(topic, "later", delay_level=1),
            "TRANSACTION": commit(cluster.client.transaction(topic, "committed")),
        }
        for sent, sending in sends.items():
            if kind in (sent, "MIXED"):
                await sending
            else:
                await refused_with(ResponseCode.MESSAGE_ILLEGAL, sending)


async def commit(transaction: Transaction) -> None:
    async with transaction:
        pass


async def typed_topic(cluster: Cluster, kind: str) -> str:
    topic = cluster.fresh(f"typed_{kind}")
    await cluster.call(
        17,
        {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            "attributes": f"+message.type={kind}",
        },
    )  # fmt: skip
    return topic
