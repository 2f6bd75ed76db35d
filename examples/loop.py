"""Consume in a loop: messages one after the other, each acknowledged at the end of its block.

.venv/bin/python examples/loop.py [NAME_SERVER]
"""

import asyncio
import sys

from ariane import Client, Start

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Client(NAME_SERVER) as client:
        await client.admin.create_topic("letters")
        for text in ("dear", "reader", "goodbye"):
            await client.send("letters", text, sharding_key="one letter")
        subscription = client.subscribe("letters", group="readers", start=Start.FIRST)
        async with subscription as messages:
            async for message in messages:
                async with message:  # given back if the block raises
                    print(message.text, flush=True)
                if message.text == "goodbye":
                    break


asyncio.run(main())
