"""Consume by polling: take what is there, when it suits, and commit how far it got.

.venv/bin/python examples/lite_pull.py [NAME_SERVER]
"""

import sys

from ariane.sync import Client, Start

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with Client(NAME_SERVER) as client:
    client.admin.create_topic("readings")
    for degrees in (18, 21, 24):
        client.send("readings", str(degrees))
    consumer = client.lite_pull_consumer("statistics", auto_commit=False, start=Start.FIRST)
    consumer.subscribe("readings")
    found: list[int] = []
    with consumer:
        while len(found) < 3:
            found += [message.json(int) for message in consumer.poll(5)]
        consumer.commit()
    print("average:", sum(found) / len(found))
