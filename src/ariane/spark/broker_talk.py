"""What the sink says to brokers: stage, send, publish; again and again while a reason may pass.

One connection to each broker serves a process for as long as it lives, whichever tasks it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import lru_cache
from random import SystemRandom  # noqa: TID251 - the sink's dice
from typing import Any, Final, TypeVar

from ariane.client.loop_thread import LoopThread
from ariane.client.routes import MASTER_ID, Address
from ariane.client.session import Session
from ariane.clock import SystemClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    BrokerBusy,
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
)
from ariane.protocol import fastjson
from ariane.protocol.bodies import ClusterInfo, MessageQueue
from ariane.protocol.command import Command, request
from ariane.protocol.headers import Header
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.headers.staging import BatchHeader
from ariane.protocol.message import decode_batch
from ariane.spark.rows import NewChunk
from ariane.topics import AUTO_CREATE_TOPIC

T = TypeVar("T")

log = logging.getLogger("ariane.spark")

REQUEST_TIMEOUT_S: Final = 30.0
ABSENT_TIMEOUT_S: Final = 20.0  # for which to wait for a topic that no broker seems to have
FIRST_PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
GROUP: Final = "ariane-spark-sink"
QUEUE_COUNT: Final = 4
PASSING_CODES: Final = (
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.FLOW_CONTROL,
)
STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class BrokerTalk:
    """A cluster, as the sink of one process sees it."""

    def __init__(self, name_servers: tuple[str, ...]) -> None:
        self._session = Session(name_servers, clock=SystemClock(), random=SystemRandom())
        self._thread = LoopThread()
        self._thread.run(self._session.open())
        self._can_stage: bool | None = None

    def close(self) -> None:
        """Take leave of the brokers and end the thread."""
        if self._thread.is_running:
            self._thread.run(self._session.close())
            self._thread.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the loop, and wait for it."""
        return self._thread.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin the work on the loop."""
        return self._thread.submit(work)

    def can_stage(self, timeout_s: float) -> bool:
        """Whether every broker of the cluster publishes batches; asked once, and remembered."""
        if self._can_stage is None:
            self._can_stage = self.run(self.persist(self._ask_all, timeout_s))
        return self._can_stage

    def queues_of(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        """The queues of a topic that may be written to, in the order that Java's clients know.

        A broker that is away takes its topics along, so one that is not there is waited for. But
        where brokers are there and do not have it, it will hardly come.
        """

        async def look() -> tuple[MessageQueue, ...]:
            return (await self._session.routes.for_writing(topic)).writable

        async def has_brokers() -> bool:
            return bool(await self.masters())

        try:
            return self.run(self.persist(look, min(timeout_s, ABSENT_TIMEOUT_S)))
        except RouteNotFound:
            if self.run(self.persist(has_brokers, timeout_s)):
                raise
        return self.run(self.persist(look, timeout_s))

    async def masters(self) -> dict[str, Address]:
        """Every broker that can be written to, by name."""
        answer = await self._session.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        info = fastjson.decode(answer.body, ClusterInfo)
        return {
            name: broker.addresses[MASTER_ID]
            for name, broker in info.brokers.items()
            if MASTER_ID in broker.addresses
        }

    async def ask(
        self, broker: str, code: RequestCode, header: Header, body: bytes = b""
    ) -> Command:
        """Ask a broker by name."""
        address = (await self.masters()).get(broker)
        if address is None:
            raise ConnectionLost(
                f"broker {broker!r} has a part in this write and is not registered; is it running?"
            )
        return await self.call(address, code, header, body)

    async def stage(self, queue: MessageQueue, header: Header, body: bytes) -> Command:
        """Ask the broker that has a queue."""
        route = await self._session.routes.for_writing(queue.topic)
        address = route.master(queue.broker_name)
        try:
            return await self.call(address, RequestCode.STAGE_CHUNK, header, body)
        except (ConnectionLost, RouteNotFound):
            await self._session.routes.refresh(queue.topic)  # it may come back elsewhere
            raise

    async def send(self, chunk: NewChunk) -> None:
        """Send the rows of a chunk as any producer would."""
        if not chunk.is_late:
            await self._send(chunk.queue, RequestCode.SEND_BATCH_MESSAGE, chunk.body, "", 0)
            return
        for entry in decode_batch(chunk.body):  # brokers delay no batches
            await self._send(
                chunk.queue,
                RequestCode.SEND_MESSAGE_V2,
                entry.body,
                entry.properties,
                entry.flag,
            )

    async def call(
        self, address: Address, code: RequestCode, header: Header, body: bytes = b""
    ) -> Command:
        """Ask one broker; an answer that is an error raises RequestFailed."""
        command = request(code, header, body)
        return await self._session.call(address, command, timeout_s=REQUEST_TIMEOUT_S)

    async def persist(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Do the work, and again while it fails for a reason that may pass and there is time."""
        clock = self._session.clock
        until_s = clock.monotonic_s() + timeout_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await work()
            except ClientError as error:
                if not may_pass(error) or clock.monotonic_s() + pause_s > until_s:
                    raise
                log.info("trying again in %.1f s: %s", pause_s, error)
            await self._session.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _send(
        self, queue: MessageQueue, code: RequestCode, body: bytes, properties: str, flag: int
    ) -> None:
        route = await self._session.routes.for_writing(queue.topic)
        header = SendHeaderV2(
            group=GROUP,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_queue_count=QUEUE_COUNT,
            queue_id=queue.queue_id,
            system_flag=0,
            born_at_ms=self._session.clock.wall_ms(),
            flag=flag,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            is_batch=code == RequestCode.SEND_BATCH_MESSAGE,
            broker_name=queue.broker_name,
        )
        try:
            await self._session.call(
                route.master(queue.broker_name),
                request(code, header, body),
                timeout_s=REQUEST_TIMEOUT_S,
                accept=STORED,
            )
        except (ConnectionLost, RouteNotFound):
            await self._session.routes.refresh(queue.topic)
            raise

    async def _ask_all(self) -> bool:
        masters = await self.masters()
        if not masters:
            raise ConnectionLost("no broker is registered with the name server; is one running?")
        answers = await asyncio.gather(*(self._knows_staging(it) for it in masters.values()))
        return all(answers)

    async def _knows_staging(self, address: Address) -> bool:
        header = BatchHeader(query_id="probe", batch_id=0)
        try:
            await self.call(address, RequestCode.PUBLISHED_BATCH, header)
        except RequestFailed as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False
            raise
        return True


def may_pass(error: ClientError) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, RequestFailed):
        return error.code in PASSING_CODES or isinstance(error, BrokerBusy | BrokerUnavailable)
    return isinstance(error, ConnectionLost | RequestTimeout | RouteNotFound)


@lru_cache(maxsize=8)
def talk_to(name_servers: tuple[str, ...]) -> BrokerTalk:
    """The one connection of this process to a cluster."""
    return BrokerTalk(name_servers)
