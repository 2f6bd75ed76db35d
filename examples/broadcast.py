"""Consume by all: every member of the group gets every message.

.venv/bin/python examples/broadcast.py [NAME_SERVER]
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from ariane import Client, ReceivedMessage, Start

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    def member(name: str):
        async def hear(message: ReceivedMessage) -> None:
            await told.put(f"{name} heard {message.text}")

        return hear

    # Each member keeps its own progress, in a file; here in a directory of the example's own.
    with tempfile.TemporaryDirectory() as home:
        async with Client(NAME_SERVER) as one, Client(NAME_SERVER) as other:
            await one.admin.create_topic("news")
            await one.send("news", "the sun has risen")
            for client, name in ((one, "Ariane"), (other, "Theseus")):
                consumer = client.push_consumer(
                    "listeners",
                    member(name),
                    broadcast=True,
                    start=Start.FIRST,
                    offsets_directory=Path(home, name),
                )
                consumer.subscribe("news")
                await consumer.start()
            for line in sorted([await told.get(), await told.get()]):
                print(line)


asyncio.run(main())
