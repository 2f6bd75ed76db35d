"""Messages that consumers fetch for themselves: by pop, by polling queues, and by blocking."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import ariane.sync
from ariane import Client, Reject, RetryLater, Start
from ariane.client.lite_pull_consumer import LitePullConsumer
from ariane.client.received import PolledMessage, ReceivedMessage
from ariane.client.retrying import Retry
from ariane.client.simple_consumer import SimpleConsumer
from ariane.client.tracking import TrackType
from tests.interop.python.cluster import Cluster, Receiver, feature, until


async def receive(
    consumer: SimpleConsumer, count: int, *, invisible: float
) -> list[ReceivedMessage]:
    """That many messages, however many requests it takes."""
    found: list[ReceivedMessage] = []

    async def is_enough() -> bool:
        wanted = min(32, count - len(found))
        found.extend(await consumer.receive(wanted, invisible=invisible, wait=1))
        return len(found) >= count

    await until(is_enough, lambda: f"{count} messages by pop, got {bodies_of(found)}")
    return found


def bodies_of(messages: Sequence[PolledMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


async def send(cluster: Cluster, topic: str, count: int) -> list[str]:
    bodies = [f"pop-{number}" for number in range(count)]
    for body in bodies:
        await cluster.client.send(topic, body)
    return bodies


@feature("pop-ack")
async def pop_ack(cluster: Cluster) -> None:
    topic, group = await cluster.topic("pop_ack", 2), cluster.fresh("group")
    await cluster.make_group(group)
    sent = await send(cluster, topic, 20)
    async with Client(cluster.name_server) as client:
        consumer = client.simple_consumer(group, start=Start.FIRST)
        consumer.subscribe(topic)
        messages = await receive(consumer, 20, invisible=3)
        assert sorted(bodies_of(messages)) == sorted(sent)
        for message in messages[:5]:
            await message.ack()
        await consumer.ack(messages[5:17])
        assert await consumer.receive(invisible=3, wait=0.1) == []
        again = await receive(consumer, 3, invisible=3)
        assert sorted(bodies_of(again)) == sorted(bodies_of(messages[17:]))
        for message in again:
            assert (message.reconsume_times, message.topic) == (1, topic)
            await message.ack()
        await asyncio.sleep(5)
        assert await consumer.receive(invisible=3, wait=0.1) == []


@feature("pop-change-invisible-time")
async def pop_change(cluster: Cluster) -> None:
    topic, group = await cluster.topic("pop_hide", 1), cluster.fresh("group")
    await cluster.make_group(group)
    await send(cluster, topic, 2)
    async with Client(cluster.name_server) as client:
        consumer = client.simple_consumer(group, start=Start.FIRST)
        consumer.subscribe(topic)
        longer, shorter = await receive(consumer, 2, invisible=4)
        await longer.extend(60)
        await shorter.nack(1)
        start_s = time.monotonic()
        [again] = await receive(consumer, 1, invisible=10)
        assert again.body == shorter.body
        assert time.monotonic() - start_s >= 0.9
        await again.ack()
        await asyncio.sleep(3)  # the other would be visible now
        assert await consumer.receive(invisible=10, wait=0.1) == []
        await longer.ack()


@feature("pop-fifo")
async def pop_fifo(cluster: Cluster) -> None:
    topic, group = await cluster.topic("pop_fifo", 1), cluster.fresh("group")
    await cluster.make_group(group, consumeMessageOrderly=True)
    await send(cluster, topic, 6)
    async with Client(cluster.name_server) as client:
        consumer = client.simple_consumer(group, orderly=True, start=Start.FIRST)
        consumer.subscribe(topic)
        first = await receive(consumer, 3, invisible=2)
        assert bodies_of(first) == ["pop-0", "pop-1", "pop-2"]
        assert await consumer.receive(3, invisible=2, wait=0.1) == []  # blocked
        await first[0].ack()
        second = await receive(consumer, 3, invisible=10)
        assert bodies_of(second) == ["pop-1", "pop-2", "pop-3"]
        await consumer.ack(second)
        third = await receive(consumer, 2, invisible=10)
        assert bodies_of(third) == ["pop-4", "pop-5"]
        await consumer.ack(third)


@feature("pop-long-polling")
async def pop_long_polling(cluster: Cluster) -> None:
    topic, group = await cluster.topic("pop_poll", 2), cluster.fresh("group")
    await cluster.make_group(group)
    async with Client(cluster.name_server) as client:
        consumer = client.simple_consumer(group, start=Start.FIRST)
        consumer.subscribe(topic)
        assert await consumer.receive(1, wait=0.3) == []
        waiting = asyncio.create_task(consumer.receive(1, wait=15))
        await asyncio.sleep(0.5)
        start_s = time.monotonic()
        await send(cluster, topic, 1)
        [message] = await waiting
        assert time.monotonic() - start_s < 2
        await message.ack()


@feature("pop-dead-letter")
async def pop_dead_letter(cluster: Cluster) -> None:
    topic, group = await cluster.topic("pop_dead", 1), cluster.fresh("group")
    await cluster.make_group(group)
    receipt = await cluster.client.send(topic, "hopeless")
    async with Client(cluster.name_server) as client:
        retry = Retry(max=1, delays=(1,))
        consumer = client.simple_consumer(group, start=Start.FIRST, retry=retry)
        consumer.subscribe(topic)
        for _ in range(2):
            [message] = await receive(consumer, 1, invisible=10)
            await message.nack()
        dead = await cluster.found(f"%DLQ%{group}", receipt.message_id)
        assert dead.body == b"hopeless"


@feature("lite-pull-subscribe")
async def lite_subscribe(cluster: Cluster) -> None:
    topic, group = await cluster.topic("lite"), cluster.fresh("group")
    sent = await send(cluster, topic, 100)

    async def poll(count: int) -> list[str]:
        found: list[str] = []

        async def is_enough() -> bool:
            found.extend(bodies_of(await consumer.poll(0.2)))
            return len(found) >= count

        async with Client(cluster.name_server) as client:
            consumer = client.lite_pull_consumer(group, start=Start.FIRST)
            consumer.subscribe(topic)
            async with consumer:
                await until(is_enough, lambda: f"{count} messages, got {len(found)}")
        return found

    assert sorted(await poll(100)) == sorted(sent)
    await cluster.client.send(topic, "later")
    assert await poll(1) == ["later"]


@feature("lite-pull-assign-and-seek")
async def lite_assign(cluster: Cluster) -> None:
    topic, group = await cluster.topic("assign", 1), cluster.fresh("group")
    sent = await send(cluster, topic, 30)
    await asyncio.sleep(0.02)
    middle = datetime.now(UTC)
    await asyncio.sleep(0.02)
    sent += await send(cluster, topic, 30)
    async with (
        Client(cluster.name_server) as client,
        client.lite_pull_consumer(group, auto_commit=False) as consumer,
    ):
        [queue] = await consumer.queues(topic)
        await consumer.assign([queue])
        assert await consumer.seek_to_start(queue) == 0
        assert await polled(consumer, 60) == sent
        await consumer.seek(queue, 45)
        assert await polled(consumer, 15) == sent[45:]
        assert await consumer.seek_to_time(queue, middle) == 30
        consumer.pause([queue])
        assert await consumer.poll(0.1) == []
        consumer.resume([queue])
        assert await polled(consumer, 30) == sent[30:]
        await consumer.seek_to_end(queue)
        await cluster.client.send(topic, "new")
        assert await polled(consumer, 1) == ["new"]
        await consumer.commit()
        assert await consumer.committed(queue) == 61
        assert consumer.assignment == [queue]
        assert consumer.position(queue) == 61


async def polled(consumer: LitePullConsumer, count: int) -> list[str]:
    found: list[str] = []

    async def is_enough() -> bool:
        found.extend(bodies_of(await consumer.poll(0.2)))
        return len(found) >= count

    await until(is_enough, lambda: f"{count} messages, got {len(found)}")
    return found


@feature("pull")
async def pull(cluster: Cluster) -> None:
    topic = await cluster.topic("pull", 1)
    sent = await send(cluster, topic, 40)
    async with Client(cluster.name_server) as client:
        consumer = client.pull_consumer(cluster.fresh("group"))
        [queue] = await consumer.queues(topic)
        await consumer.seek_to_start(queue)
        found: list[str] = []
        while len(found) < 40:
            found += [message.body.decode() for message in (await consumer.pull(queue)).messages]
    assert found == sent


@feature("blocking-client")
async def blocking(cluster: Cluster) -> None:
    topic, group = await cluster.topic("blocking", 1), cluster.fresh("group")

    def work() -> list[bytes]:
        with ariane.sync.Client(cluster.name_server) as client:
            client.send(topic, "sent")
            client.send_batch([ariane.Message(topic, f"batched {n}") for n in range(3)])
            producers = cluster.fresh("producers")
            client.checked_elsewhere(producers)
            with client.transaction(topic, "committed", group=producers):
                pass
            consumer = client.pull_consumer(group)
            [queue] = consumer.queues(topic)
            consumer.seek_to_start(queue)
            found: list[bytes] = []
            deadline_s = time.monotonic() + 20
            while len(found) < 5 and time.monotonic() < deadline_s:
                found += [message.body for message in consumer.pull(queue).messages]
            return found

    found = await asyncio.to_thread(work)
    assert found == [b"sent", b"batched 0", b"batched 1", b"batched 2", b"committed"]


@feature("track")
async def track(cluster: Cluster) -> None:
    topic = await cluster.topic("track", 1)
    done, behind, gone = (cluster.fresh(f"group_{name}") for name in ("done", "behind", "gone"))
    await cluster.client.send(topic, "before")
    async with Receiver(cluster, gone, topic) as leaver:
        await leaver.wait(1)

    async def dawdle(message: ReceivedMessage) -> None:
        if message.body == b"tracked":
            await asyncio.sleep(20)

    async with (
        Receiver(cluster, done, topic) as first,
        Receiver(cluster, behind, topic, dawdle, drain=0) as second,
    ):
        receipt = await cluster.client.send(topic, "tracked")
        await until(lambda: "tracked" in first.bodies and "tracked" in second.bodies, "both")
        await first.consumer.commit()
        message = await cluster.client.admin.message(receipt.offset_message_id)
        found: dict[str, TrackType] = {}

        async def is_known() -> bool:
            for each in await cluster.client.admin.track(message):
                found[each.group] = each.type
            return found.get(done) is TrackType.CONSUMED

        await until(is_known, lambda: f"the tracks, they are {found}")
        assert found[behind] is TrackType.NOT_CONSUME_YET
        assert found[gone] is TrackType.NOT_ONLINE


@feature("pop-handlers")
async def pop_handlers(cluster: Cluster) -> None:
    topic, group = await cluster.topic("pop_handled", 1), cluster.fresh("group")
    await cluster.make_group(group)
    sent = await send(cluster, topic, 30)
    taken: dict[str, list[str]] = {"one": [], "other": []}
    failed: set[str] = set()

    async def is_enough() -> bool:
        return len({body for bodies in taken.values() for body in bodies}) == 30

    async with Client(cluster.name_server) as one, Client(cluster.name_server) as other:
        for name, client in (("one", one), ("other", other)):

            @client.consumer(topic, group=group, pop=True, start=Start.FIRST, concurrency=2)
            async def handle(message: ReceivedMessage, name: str = name) -> None:
                body = message.body.decode()
                if body.endswith("7") and body not in failed:
                    failed.add(body)
                    raise RetryLater(1)
                taken[name].append(body)
                await asyncio.sleep(0.05)

            await client.start_consumers()
        await until(is_enough, lambda: f"30 messages, got {taken}")
    assert sorted(taken["one"] + taken["other"]) == sorted(sent)
    assert all(taken.values()), "one queue, and yet both members had some"
    assert len(failed) == 3


@feature("rejected")
async def rejected(cluster: Cluster) -> None:
    topic = await cluster.topic("rejected", 1)
    receipt = await cluster.client.send(topic, "poison")

    async def refuse(message: ReceivedMessage) -> None:
        raise Reject("no such customer")

    async with Client(cluster.name_server) as client:
        for make in (client.push_consumer, client.pop_consumer):
            group = cluster.fresh("group")
            await cluster.make_group(group)
            consumer = make(group, refuse, start=Start.FIRST)
            consumer.subscribe(topic)
            async with consumer:
                dead = await cluster.found(f"%DLQ%{group}", receipt.message_id)
            assert dead.body == b"poison"
            assert dead.properties["DEAD_LETTER_REASON"] == "no such customer"
