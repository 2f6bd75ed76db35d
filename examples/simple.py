"""Consume by pop: messages are lent, to any number of consumers, and given back or done with.

.venv/bin/python examples/simple.py [NAME_SERVER]
"""

import sys

from ariane.sync import Client, Start

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with Client(NAME_SERVER) as client:
    client.admin.create_topic("pictures")
    for name in ("sunrise", "noon", "sunset"):
        client.send("pictures", name)
    consumer = client.simple_consumer("painters", start=Start.FIRST)
    consumer.subscribe("pictures")
    painted: list[str] = []
    with consumer:
        while len(painted) < 3:
            for message in consumer.receive(2, invisible=60, wait=5):
                message.extend(120)  # this one takes longer
                painted.append(message.text)
                message.ack()
    print(*sorted(painted))
