"""The Python client: producer and consumers on asyncio, with a blocking twin."""
