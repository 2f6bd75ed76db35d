"""aiokafka at work, in an environment of its own: MODE BOOTSTRAP-SERVER TOPIC SECONDS-OR-COUNT."""

import asyncio
import secrets
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-not-found]

from benchmarks.programs.timing import BODY, Stopwatch, send_awaited, send_submitted

LINGER_MS = 5
BATCH_BYTES = 256 << 10  # as ours; its own default of 16 KiB is slower


async def awaited(address: str, topic: str, seconds: float) -> None:
    """Each send awaited, 64 in flight, with the producer's own settings."""
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await send_awaited(lambda: producer.send_and_wait(topic, BODY), seconds)


async def batched(address: str, topic: str, seconds: float) -> None:
    """Messages handed over and sent in batches; the future of each is waited for."""
    async with AIOKafkaProducer(
        bootstrap_servers=address, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    ) as producer:
        await send_submitted(lambda: producer.send(topic, BODY), seconds)


async def consume(address: str, topic: str, count: float) -> None:
    """All messages of a topic, in its loop over messages, as a member of a group."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=f"bench_{secrets.token_hex(8)}",
        auto_offset_reset="earliest",
    )
    watch = Stopwatch()
    seen = 0
    async with consumer:
        async for _ in consumer:
            seen += 1
            if seen == count:
                break
        watch.report(seen)


async def fill(address: str, topic: str, count: float) -> None:
    """So many messages, for others to consume."""
    async with AIOKafkaProducer(
        bootstrap_servers=address, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    ) as producer:
        watch = Stopwatch()
        for future in [await producer.send(topic, BODY) for _ in range(int(count))]:
            await future
        watch.report(int(count))


MODES: dict[str, Callable[[str, str, float], Coroutine[Any, Any, None]]] = {
    "awaited": awaited,
    "batched": batched,
    "consume": consume,
    "fill": fill,
}

if __name__ == "__main__":
    mode, address, topic, limit = sys.argv[1:]
    asyncio.run(MODES[mode](address, topic, float(limit)))
