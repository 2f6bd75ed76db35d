"""Ariane's client at work: MODE NAME-SERVER TOPIC SECONDS-OR-COUNT."""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import ariane.sync
from ariane import Client, ReceivedMessage, Start
from benchmarks.programs.timing import (
    BODY,
    IN_FLIGHT,
    WARM_COUNT,
    Stopwatch,
    send_awaited,
    send_submitted,
)

LINGER_MS = 5
TIMERS_AHEAD_S = 10.0  # time to send them all before the first is due


def awaited(address: str, topic: str, seconds: float) -> None:
    """Each send awaited, 64 in flight."""

    async def run() -> None:
        async with Client(address) as client:
            await send_awaited(lambda: client.send(topic, BODY), seconds)

    asyncio.run(run())


def batched(address: str, topic: str, seconds: float) -> None:
    """Messages handed over and sent in batches; the future of each is waited for."""

    async def run() -> None:
        async with Client(address, linger=LINGER_MS / 1000) as client:
            await send_submitted(lambda: client.submit(topic, BODY), seconds)

    asyncio.run(run())


def consume(address: str, topic: str, count: float) -> None:
    """All messages of a topic, to a handler that does nothing but count them."""

    async def run() -> None:
        seen = 0
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                done.set()

        async with Client(address) as client:
            group = f"bench_{secrets.token_hex(8)}"
            consumer = client.push_consumer(group, handle, start=Start.FIRST)
            consumer.subscribe(topic)
            watch = Stopwatch()
            async with consumer:
                await done.wait()
                watch.report(seen)

    asyncio.run(run())


def blocking(address: str, topic: str, seconds: float) -> None:
    """One thread, one message at a time."""
    with ariane.sync.Client(address) as client:
        for _ in range(WARM_COUNT):
            client.send(topic, BODY)
        watch, count = Stopwatch(), 0
        while watch.elapsed_s < seconds:
            client.send(topic, BODY)
            count += 1
        watch.report(count)


def fill(address: str, topic: str, count: float) -> None:
    """So many messages, for others to consume."""

    async def run() -> None:
        async with Client(address, linger=LINGER_MS / 1000) as client:
            watch = Stopwatch()
            for future in [await client.submit(topic, BODY) for _ in range(int(count))]:
                await future
            watch.report(int(count))

    asyncio.run(run())


def timers(address: str, topic: str, per_s: float) -> None:
    """Messages due evenly spread over ten seconds, and how late each of them came."""
    count = int(per_s * 10)

    async def run() -> None:
        late_s: list[float] = []
        done = asyncio.Event()
        first_s = round(time.time()) + TIMERS_AHEAD_S
        numbers = iter(range(count))

        async def handle(message: ReceivedMessage) -> None:
            late_s.append(time.time() - float(message.body))
            if len(late_s) == count:
                done.set()

        async def send_some(client: Client) -> None:
            for number in numbers:
                due_s = round(first_s + number / per_s, 3)
                moment = datetime.fromtimestamp(due_s, UTC)
                await client.send(topic, b"%.3f" % due_s, deliver_at=moment)

        async with Client(address) as client:
            consumer = client.push_consumer(
                f"bench_{secrets.token_hex(8)}", handle, start=Start.FIRST
            )
            consumer.subscribe(topic)
            watch = Stopwatch()
            async with consumer:
                await asyncio.gather(*(send_some(client) for _ in range(IN_FLIGHT)))
                ahead_s = first_s - time.time()
                await asyncio.wait_for(done.wait(), TIMERS_AHEAD_S + 60)
                watch.report(count, ahead_s=ahead_s, late_s_min=min(late_s), late_s_max=max(late_s))

    asyncio.run(run())


MODES: dict[str, Callable[[str, str, float], None]] = {
    "awaited": awaited,
    "batched": batched,
    "blocking": blocking,
    "consume": consume,
    "fill": fill,
    "timers": timers,
}

if __name__ == "__main__":
    mode, address, topic, limit = sys.argv[1:]
    MODES[mode](address, topic, float(limit))
