"""Consume in order: what has the same sharding key is handled one after the other.

.venv/bin/python examples/orderly.py [NAME_SERVER]
"""

import asyncio
import sys

from ariane import Client, ReceivedMessage, Start

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
STEPS = ("ordered", "paid", "sent")


async def main() -> None:
    done = asyncio.Event()
    seen: dict[str, list[str]] = {}

    async def follow(message: ReceivedMessage) -> None:
        order = message.sharding_key or ""
        seen.setdefault(order, []).append(message.text)
        if sum(map(len, seen.values())) == 2 * len(STEPS):
            done.set()

    async with Client(NAME_SERVER) as client:
        await client.admin.create_topic("steps", message_type="FIFO")
        for step in STEPS:
            for order in ("order-1", "order-2"):
                await client.send("steps", step, sharding_key=order)
        consumer = client.push_consumer("follower", follow, orderly=True, start=Start.FIRST)
        consumer.subscribe("steps")
        async with consumer:
            await done.wait()
    for order in sorted(seen):
        print(order, *seen[order])


asyncio.run(main())
