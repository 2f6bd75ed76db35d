"""Producers that remember what was acknowledged, so that a test can ask for it after a crash."""

import threading
from collections import deque
from dataclasses import dataclass

from tests.harness.wire import SEND_BATCH, SEND_V2, Wire, batch_body, send_header, sent_of

WINDOW = 32
BATCH = 8
QUEUES = 4
BODY_BYTES = 200


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One message the broker promised to keep, and where."""

    queue_id: int
    queue_offset: int
    body: bytes
    key: str


class Producer(threading.Thread):
    """Keeps requests in flight on one connection until the server goes away or it is told to stop.

    Every fourth request is a batch. What is in flight at the end may be kept or not.
    """

    def __init__(self, address: tuple[str, int], topic: str, prefix: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.topic = topic
        self.prefix = prefix  # of every key and body
        self.acknowledged: list[Acknowledged] = []
        self.refusals: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        in_flight: deque[tuple[int, list[bytes], list[str]]] = deque()
        number = 0
        try:
            with Wire(self.address) as wire:
                while not self.stopping.is_set() or in_flight:
                    while len(in_flight) < WINDOW and not self.stopping.is_set():
                        in_flight.append(self._send(wire, number))
                        number += 1
                    self._take(wire, in_flight)
        except OSError:
            pass  # killed under us, as the test intends

    def _send(self, wire: Wire, number: int) -> tuple[int, list[bytes], list[str]]:
        count = BATCH if number % 4 == 3 else 1
        keys = [f"{self.prefix}-{number}-{part}" for part in range(count)]
        bodies = [key.encode().ljust(BODY_BYTES, b".") for key in keys]
        queue_id = number % QUEUES
        if count == 1:
            header = send_header(self.topic, queue_id, key=keys[0], tag="T")
            return wire.write(SEND_V2, header, bodies[0]), bodies, keys
        header = {**send_header(self.topic, queue_id, key="", tag=""), "i": "", "m": "true"}
        return wire.write(SEND_BATCH, header, batch_body(bodies, keys)), bodies, keys

    def _take(self, wire: Wire, in_flight: deque[tuple[int, list[bytes], list[str]]]) -> None:
        answer = wire.read()
        opaque, bodies, keys = next(request for request in in_flight if request[0] == answer.opaque)
        in_flight.remove((opaque, bodies, keys))
        if answer.code != 0:
            self.refusals.append(f"{answer.code}: {answer.remark}")
            return
        place = sent_of(answer)
        for part, (body, key) in enumerate(zip(bodies, keys, strict=True)):
            self.acknowledged.append(
                Acknowledged(place.queue_id, place.queue_offset + part, body, key)
            )


def missing(wire: Wire, topic: str, promised: list[Acknowledged]) -> list[Acknowledged]:
    """The acknowledged messages that are not where the broker said it had put them."""
    lost = []
    by_queue: dict[int, list[Acknowledged]] = {}
    for message in promised:
        by_queue.setdefault(message.queue_id, []).append(message)
    for queue_id, messages in by_queue.items():
        first = min(message.queue_offset for message in messages)
        found = {
            record.queue_offset: record.body for record in wire.read_queue(topic, queue_id, first)
        }
        lost += [message for message in messages if found.get(message.queue_offset) != message.body]
    return lost
