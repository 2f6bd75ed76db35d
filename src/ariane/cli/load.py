"""Load on a cluster, and what came of it.

A closed loop keeps a number of requests in flight: the next leaves when one is answered. An open
loop sends at a rate whatever happens, and counts each latency from the moment the message was due,
so a server that stalls cannot hide it by slowing its clients.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ariane.cli.histogram import Histogram
from ariane.client import Client, Message, MessageQueue, Producer, PullConsumer
from ariane.clock import Clock
from ariane.errors import ClientError
from ariane.protocol.message import StoredMessage

LATE_MAX: Final = 20_000  # messages of an open loop that may wait for an answer at once
PULL_WAIT_S: Final = 15.0
STAMP_BYTES: Final = 8


@dataclass(slots=True)
class Tally:
    """What has happened so far."""

    message_count: int = 0
    byte_count: int = 0
    latency: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, messages: int, size: int, latency_s: float) -> None:
        """One request that succeeded."""
        self.message_count += messages
        self.byte_count += size
        self.latency.record(round(latency_s * 1_000_000))

    def failed(self, error: ClientError) -> None:
        """One request that did not."""
        self.errors[type(error).__name__] += 1


@dataclass(frozen=True, slots=True)
class Plan:
    """How hard, how long."""

    topic: str
    body_bytes: int
    connection_count: int
    in_flight: int
    batch_count: int
    rate: float  # messages a second; 0: a closed loop
    duration_s: int


Work = Callable[[Tally], Awaitable[None]]


async def run_for(
    work: Work, tally: Tally, seconds: int, clock: Clock, watch: Callable[[Tally], None]
) -> float:
    """Let the work go on for so long, telling `watch` each second; returns how long it was."""
    start_s = clock.monotonic_s()
    task = asyncio.ensure_future(work(tally))
    try:
        for _ in range(seconds):
            done, _ = await asyncio.wait([task], timeout=1.0)
            watch(tally)
            if done:
                await task  # ended early: say why
        return clock.monotonic_s() - start_s
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ClientError):
            await task


@contextlib.asynccontextmanager
async def clients(namesrv: str, count: int) -> AsyncIterator[list[Client]]:
    """So many clients, each with connections of its own."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(namesrv)) for _ in range(count)]


class SendLoad:
    """Producers that send as the plan says."""

    def __init__(self, plan: Plan, opened: Sequence[Client], clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._producers = [client.producer("ariane-bench") for client in opened]
        self._message = Message(plan.topic, b"x" * plan.body_bytes)
        self._batch = [self._message] * plan.batch_count

    async def run(self, tally: Tally) -> None:
        """Send until cancelled."""
        await self._send(self._producers[0])  # creates the topic, and fails early if it must
        if self._plan.rate:
            await paced(self._clock, self._plan.rate / self._plan.batch_count, self._due(tally))
            return
        async with asyncio.TaskGroup() as tasks:
            for producer in self._producers:
                for _ in range(self._plan.in_flight):
                    tasks.create_task(self._closed(producer, tally))

    async def _closed(self, producer: Producer, tally: Tally) -> None:
        while True:
            await self._timed(producer, tally, self._clock.monotonic_s())

    def _due(self, tally: Tally) -> Callable[[int, float], Awaitable[None]]:
        def due(number: int, due_s: float) -> Awaitable[None]:
            return self._timed(self._producers[number % len(self._producers)], tally, due_s)

        return due

    async def _timed(self, producer: Producer, tally: Tally, start_s: float) -> None:
        try:
            await self._send(producer)
        except ClientError as error:
            tally.failed(error)
            return
        size = self._plan.body_bytes * self._plan.batch_count
        tally.count(self._plan.batch_count, size, self._clock.monotonic_s() - start_s)

    async def _send(self, producer: Producer) -> None:
        if self._plan.batch_count > 1:
            await producer.send_batch(self._batch)
        else:
            await producer.send(self._message)


class PullLoad:
    """Readers that go through the topic again and again."""

    def __init__(self, plan: Plan, opened: Sequence[Client], clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._consumers = [client.pull_consumer() for client in opened]

    async def run(self, tally: Tally) -> None:
        """Read until cancelled."""
        queues = await self._consumers[0].queues(self._plan.topic)
        filled = [queue for queue in queues if await self._consumers[0].max_offset(queue) > 0]
        if not filled:
            raise ClientError(
                f"topic {self._plan.topic!r} holds nothing to read; `ariane bench send` fills it"
            )
        async with asyncio.TaskGroup() as tasks:
            for consumer in self._consumers:
                for number in range(self._plan.in_flight):
                    tasks.create_task(self._read(consumer, filled[number % len(filled)], tally))

    async def _read(self, consumer: PullConsumer, queue: MessageQueue, tally: Tally) -> None:
        first = await consumer.min_offset(queue)
        position = first
        while True:
            start_s = self._clock.monotonic_s()
            try:
                pulled = await consumer.read(queue, position, count_max=self._plan.batch_count)
            except ClientError as error:
                tally.failed(error)
                continue
            size = sum(len(message.body) for message in pulled.messages)
            if pulled.messages:
                tally.count(len(pulled.messages), size, self._clock.monotonic_s() - start_s)
            position = pulled.next_offset if pulled.messages else first


class RoundTripLoad:
    """Messages sent at a rate, received by waiting pulls; a latency is from due to received."""

    def __init__(self, plan: Plan, opened: Sequence[Client], clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._producers = [client.producer("ariane-bench") for client in opened]
        self._consumer = opened[0].pull_consumer()
        self._padding = b"x" * (plan.body_bytes - STAMP_BYTES)

    async def run(self, tally: Tally) -> None:
        """Send and receive until cancelled."""
        await self._producers[0].send(self._stamped(0.0))  # creates the topic
        queues = await self._consumer.queues(self._plan.topic)
        for queue in queues:
            await self._consumer.seek_to_end(queue)
        async with asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(self._receive(queue, tally))
            tasks.create_task(paced(self._clock, self._plan.rate, self._due(tally)))

    def _due(self, tally: Tally) -> Callable[[int, float], Awaitable[None]]:
        async def due(number: int, due_s: float) -> None:
            try:
                producer = self._producers[number % len(self._producers)]
                await producer.send(self._stamped(due_s))
            except ClientError as error:
                tally.failed(error)

        return due

    async def _receive(self, queue: MessageQueue, tally: Tally) -> None:
        while True:
            try:
                pulled = await self._consumer.pull(queue, wait=PULL_WAIT_S)
            except ClientError as error:
                tally.failed(error)
                continue
            now_s = self._clock.monotonic_s()
            for message in pulled.messages:
                tally.count(1, len(message.body), now_s - _stamp_of(message))

    def _stamped(self, due_s: float) -> Message:
        stamp = round(due_s * 1_000_000_000).to_bytes(STAMP_BYTES, "big")
        return Message(self._plan.topic, stamp + self._padding)


async def paced(clock: Clock, rate: float, due: Callable[[int, float], Awaitable[None]]) -> None:
    """Start `due(number, due_s)` `rate` times a second, never waiting for one before the next."""
    start_s = clock.monotonic_s()
    number = 0
    running: set[asyncio.Future[None]] = set()
    try:
        while True:
            now_s = clock.monotonic_s()
            while (due_s := start_s + number / rate) <= now_s and len(running) < LATE_MAX:
                task = asyncio.ensure_future(due(number, due_s))
                running.add(task)
                task.add_done_callback(running.discard)
                number += 1
            await asyncio.sleep(max(due_s - clock.monotonic_s(), 0.0))
    finally:
        for left in running:
            left.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _stamp_of(message: StoredMessage) -> float:
    return int.from_bytes(message.body[:STAMP_BYTES], "big") / 1_000_000_000
