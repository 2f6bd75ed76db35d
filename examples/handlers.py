"""Consume with handlers: functions that are called for each message, until Ctrl-C.

.venv/bin/python examples/handlers.py [NAME_SERVER]
"""

import asyncio
import sys
from dataclasses import dataclass

from ariane import Client, ReceivedMessage, Retry, RetryLater, Start

client = Client(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")


@dataclass
class Order:
    id: int
    item: str


@client.consumer("orders", group="billing", start=Start.FIRST, retry=Retry(max=3, delays=[1, 5]))
async def bill(message: ReceivedMessage) -> None:
    order = message.json(Order)
    if message.reconsume_times == 0:
        raise RetryLater(1)  # pretend that the bank does not answer at first
    print(f"billed order {order.id}: {order.item}", flush=True)


async def main() -> None:
    async with client:
        await client.admin.create_topic("orders")
        for number, item in enumerate(("apples", "pears"), 1):
            await client.send("orders", f'{{"id": {number}, "item": "{item}"}}', keys=str(number))
        await client.run()


asyncio.run(main())
