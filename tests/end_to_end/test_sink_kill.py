"""A broker process killed while it publishes: the sink goes on, and every row is there once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from ariane.spark import broker_talk
from ariane.spark.broker_talk import talk_to
from ariane.spark.parts import Batch
from ariane.spark.sink_options import sink_options
from ariane.spark.writing import publish_parts, write_part
from ariane.sync import Client
from tests.harness.processes import Ariane, wait_until

ROWS = 40_000
BATCHES = 2
KILLS = 2  # within each batch, while rows appear


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ariane]:
    with Ariane(tmp_path / "ariane").start() as server:
        yield server
        talk_to((server.namesrv_address,)).close()
        broker_talk.talk_to.cache_clear()
        server.stop()
        server.check_store()


def restart(server: Ariane) -> None:
    """kill -9, and start again where clients look for it."""
    ports = {"namesrv_port": server.namesrv[1], "broker_port": server.broker[1]}
    server.kill()
    output = server.launch({}, **ports)
    wait_until(lambda: server.is_ready(output), "the broker to be back")


def visible(client: Client) -> int:
    consumer = client.pull_consumer()
    return sum(consumer.max_offset(queue) for queue in consumer.queues("T"))


def test_kills_while_publishing_neither_lose_nor_double_a_row(server: Ariane) -> None:
    told = sink_options({"namesrv": server.namesrv_address, "topic": "T", "timeout": "60s"})
    with Client(server.namesrv_address) as client:
        client.admin.create_topic("T", write_queue_count=2)
    done = kills = 0
    for number in range(BATCHES):
        rows = [f"{number}/{row:06d}/{'x' * 100}" for row in range(ROWS)]
        batches = [pa.record_batch({"body": rows[at : at + 5000]}) for at in range(0, ROWS, 5000)]
        batch = Batch("killed-query", number)
        part = write_part(told, {"body": "body"}, batch, iter(batches))
        kills += publish_under_kills(server, partial(publish_parts, told, batch, [part]), done)
        done += ROWS
        with Client(server.namesrv_address) as client:
            assert visible(client) == done
    assert kills, "every batch was published before the broker could be killed"
    check_rows(server)


def has_come(client: Client, wanted: int, thread: threading.Thread) -> bool:
    return visible(client) >= wanted or not thread.is_alive()


def publish_under_kills(server: Ariane, publish: Callable[[], None], done: int) -> int:
    """Publish on another thread; whenever more rows are to be seen, kill; how often it was."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            publish()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    kills = 0
    for kill in range(KILLS):
        with Client(server.namesrv_address) as client:
            wanted = done + 1 + kill * ROWS // KILLS
            wait_until(partial(has_come, client, wanted, thread), "rows to appear")
        if thread.is_alive():
            restart(server)
            kills += 1
    thread.join(120)
    assert not thread.is_alive()
    assert not failures, failures
    return kills


def check_rows(server: Ariane) -> None:
    found: Counter[str] = Counter()
    with Client(server.namesrv_address) as client:
        consumer = client.pull_consumer()
        for queue in consumer.queues("T"):
            offset, last = 0, ""
            while offset < consumer.max_offset(queue):
                pulled = consumer.read(queue, offset, count_max=1024)
                offset = pulled.next_offset
                names = [message.body.decode()[:8] for message in pulled.messages]
                assert [last, *names] == sorted([last, *names]), "out of order"
                last = names[-1]
                found.update(names)
    assert len(found) == BATCHES * ROWS
    assert set(found.values()) == {1}
