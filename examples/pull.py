"""Read queues by hand: from any offset or moment, as a member of no group.

.venv/bin/python examples/pull.py [NAME_SERVER]
"""

import sys

from ariane.sync import Client

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with Client(NAME_SERVER) as client:
    client.admin.create_topic("history", write_queue_count=1)
    for year in (1789, 1848, 1968):
        client.send("history", str(year))
    reader = client.pull_consumer()
    [queue] = reader.queues("history")
    reader.seek(queue, 1)  # the second message
    for message in reader.pull(queue).messages:
        print(message.queue_offset, message.text)
