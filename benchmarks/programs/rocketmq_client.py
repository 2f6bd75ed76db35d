"""The official Python client at work, in an environment of its own: MODE PROXY TOPIC SECONDS."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    Credentials,
    Message,
    Producer,
)

from benchmarks.programs.timing import BODY, IN_FLIGHT, WARM_COUNT, Stopwatch


def message_to(topic: str) -> Message:
    message = Message()
    message.topic = topic
    message.body = BODY
    return message


def awaited(producer: Producer, topic: str, seconds: float) -> None:
    """Its asynchronous sends, 64 in flight."""
    slots = threading.Semaphore(IN_FLIGHT)
    failures: list[BaseException] = []

    def ended(future: Future[Any]) -> None:
        slots.release()
        if (error := future.exception()) is not None:
            failures.append(error)

    def send() -> None:
        slots.acquire()
        producer.send_async(message_to(topic)).add_done_callback(ended)

    for _ in range(WARM_COUNT):
        send()
    watch, count = Stopwatch(), 0
    while watch.elapsed_s < seconds:
        send()
        count += 1
    for _ in range(IN_FLIGHT):
        slots.acquire()
    if failures:
        raise failures[0]
    watch.report(count)


def threads(producer: Producer, topic: str, seconds: float) -> None:
    """Its blocking sends, by 64 threads."""
    for _ in range(WARM_COUNT):
        producer.send(message_to(topic))
    watch = Stopwatch()
    counts = [0] * IN_FLIGHT

    def one_after_the_other(number: int) -> None:
        while watch.elapsed_s < seconds:
            producer.send(message_to(topic))
            counts[number] += 1

    workers = [threading.Thread(target=one_after_the_other, args=(n,)) for n in range(IN_FLIGHT)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    watch.report(sum(counts))


MODES: dict[str, Callable[[Producer, str, float], None]] = {"awaited": awaited, "threads": threads}

if __name__ == "__main__":
    mode, address, topic, limit = sys.argv[1:]
    producer = Producer(ClientConfiguration(address, Credentials()), (topic,))
    producer.startup()
    MODES[mode](producer, topic, float(limit))
    producer.shutdown()
