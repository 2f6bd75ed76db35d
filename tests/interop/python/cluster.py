"""The system under test and the few helpers every feature needs: topics, a receiver, waiting."""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from ariane import Client
from ariane.client.push_consumer import PushConsumer
from ariane.client.received import ReceivedMessage
from ariane.client.starting import Start
from ariane.config import parse_properties
from ariane.protocol.message import StoredMessage
from tests.harness.wire import Answer, Wire

PATIENCE_S = 60.0
LATE_S = 10.0  # how late the machine may make us; a broker's punctuality is measured elsewhere
NOBODY = "harness"  # the group of reads that are nobody's progress

Feature = Callable[["Cluster"], Awaitable[None]]
FEATURES: dict[str, Feature] = {}


class NotThere(Exception):
    """A feature that the server does not have, with the reason."""


def feature(name: str) -> Callable[[Feature], Feature]:
    """Let the function below check the feature of that name."""

    def register(check: Feature) -> Feature:
        FEATURES[name] = check
        return check

    return register


class Cluster:
    """A broker, Ariane's or Apache's, and a client connected to it."""

    def __init__(self, name_server: str, broker: str, kind: str) -> None:
        self.name_server = name_server
        host, _, port = broker.rpartition(":")
        self.broker = (host, int(port))
        self.is_apache = kind == "apache"
        self.client = Client(name_server)
        self.settings: dict[str, str] = {}
        self._names = itertools.count()

    async def __aenter__(self) -> Self:
        await self.client.open()
        self.settings = parse_properties((await self.call(26)).body.decode())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    def fresh(self, what: str) -> str:
        """A name no other run on this broker has used."""
        return f"InteropPy_{what}_{time.time_ns() // 1_000_000:x}_{next(self._names)}"

    async def topic(self, what: str, queues: int = 4) -> str:
        """A new topic that clients can find."""
        topic = self.fresh(what)
        await self.client.admin.create_topic(topic, write_queue_count=queues)

        async def is_routed() -> bool:
            return bool((await self.client.admin.topic_route(topic)).writable)

        await until(is_routed, f"route of {topic}")
        return topic

    async def call(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, check: bool = True
    ) -> Answer:
        """One request to the broker as an operator's tool makes it."""

        def ask() -> Answer:
            with Wire(self.broker) as wire:
                return wire.call(code, ext or {}, body, check=check)

        return await asyncio.to_thread(ask)

    async def make_group(self, group: str, **settings: object) -> None:
        """A new group, made before anybody consumes in it."""
        await self.call(200, body=json.dumps({"groupName": group, **settings}).encode())

    @property
    def delays_s(self) -> list[float]:
        """The delays of the levels, the first level's first."""
        units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
        levels = self.settings["messageDelayLevel"].split()
        return [float(level[:-1]) * units[level[-1]] for level in levels]

    @property
    def timer_precision_s(self) -> float:
        """How early or late a timed message may be."""
        return int(self.settings["timerPrecisionMs"]) / 1000

    async def count(self, topic: str) -> int:
        """How many messages the topic holds."""
        stats = await self.client.admin.topic_stats(topic)
        return sum(each.max_offset - each.min_offset for each in stats)

    async def progress(self, group: str, topic: str, queues: int) -> int:
        """The sum of a group's offsets in the queues of a topic."""
        total = 0
        for queue_id in range(queues):
            place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
            answer = await self.call(14, place, check=False)
            total += int(answer.ext["offset"]) if answer.code == 0 else 0
        return total

    async def found(self, topic: str, message_id: str) -> StoredMessage:
        """The message with that id, once it is there; found by its key, if not readable."""
        messages: list[StoredMessage] = []

        async def is_there() -> bool:
            messages[:] = await self.client.admin.find_by_id(topic, message_id)
            return bool(messages)

        await until(is_there, f"{message_id} in {topic}")
        return messages[0]


@dataclass(frozen=True)
class Delivery:
    """One message as a consumer got it: the how manieth time, and when."""

    body: str
    retries: int
    at_s: float
    message: ReceivedMessage


Handler = Callable[[ReceivedMessage], Awaitable[None]]


async def take(message: ReceivedMessage) -> None:
    """A handler that is content."""


class Receiver:
    """A push consumer in a client of its own that notes every delivery, good or bad."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        handler: Handler = take,
        *,
        tags: str = "*",
        sql: str | None = None,
        **choices: Any,
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.client = Client(cluster.name_server)
        self._handler = handler
        self.consumer: PushConsumer = self.client.push_consumer(
            group, self._handle, **{"start": Start.FIRST, **choices}
        )
        self.consumer.subscribe(topic, tags=tags, sql=sql)

    async def _handle(self, message: ReceivedMessage) -> None:
        body = message.body.decode(errors="replace")
        self.deliveries.append(Delivery(body, message.reconsume_times, time.time(), message))
        await self._handler(message)

    async def __aenter__(self) -> Self:
        await self.client.open()
        try:
            await self.consumer.start()
        except BaseException:
            await self.client.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    @property
    def bodies(self) -> list[str]:
        """Everything given so far, in the order it came."""
        return [delivery.body for delivery in self.deliveries]

    def of(self, body: str) -> list[Delivery]:
        """The deliveries of one body."""
        return [delivery for delivery in self.deliveries if delivery.body == body]

    async def wait(self, count: int) -> None:
        """Wait for that many deliveries."""
        await until(lambda: len(self.deliveries) >= count, lambda: f"{count}, got {self.bodies}")

    async def expect(self, *bodies: str) -> None:
        """Wait for exactly these in any order, and long enough to see whether more come."""
        await self.wait(len(bodies))
        await asyncio.sleep(1.5)
        assert Counter(self.bodies) == Counter(bodies), self.bodies


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str | Callable[[], str],
    *,
    within_s: float = PATIENCE_S,
) -> None:
    """Wait until the condition holds; an error counts as not yet."""
    deadline_s = time.monotonic() + within_s
    last: Exception | None = None
    while time.monotonic() < deadline_s:
        try:
            result = condition()
            if result if isinstance(result, bool) else await result:
                return
        except Exception as error:  # not yet
            last = error
        await asyncio.sleep(0.02)
    words = what if isinstance(what, str) else what()
    raise AssertionError(f"waited {within_s:g} s in vain for {words}") from last


def check_time(delivery: Delivery, due_s: float, *, early_s: float = 0.0) -> None:
    """Fail unless the delivery came when it was due."""
    late_s = delivery.at_s - due_s
    assert -early_s - 0.001 <= late_s < LATE_S, (
        f"{delivery.body} came {late_s:.3f} s after its time"
    )
