"""What a task of the sink does with its rows, and the driver with what the tasks say.

Imported on executors, and by the driver when it commits; planning a query needs none of it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ariane.errors import ConfigError
from ariane.kernel.hashing import crc32
from ariane.protocol.headers.staging import StageHeader
from ariane.spark.broker_talk import BrokerTalk, talk_to
from ariane.spark.parts import Batch, StagedChunk, WrittenPart
from ariane.spark.publishing import discard, plan_of, publish
from ariane.spark.rows import Chunker, NewChunk, Queues
from ariane.spark.sink_options import Guarantee, SinkOptions, check_topic

log = logging.getLogger("ariane.spark")

ON_THE_WAY_MAX: Final = 8  # chunks of a task not answered yet


def write_part(
    options: SinkOptions, columns: Mapping[str, str], batch: Batch, batches: Iterator[Any]
) -> WrittenPart:
    """Stage the rows of one partition, or send them where brokers cannot stage."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    attempt = context.taskAttemptId() if context else 0
    talk = talk_to(options.name_servers)
    is_staged = stages(talk, options)
    outlet = Outlet(talk, options, batch, partition, attempt, is_staged=is_staged)

    brokers: set[str] = set()

    def queues_of(topic: str) -> Queues:
        check_topic(topic)
        queues = talk.queues_of(topic, options.timeout_s)
        brokers.update(queue.broker_name for queue in queues)
        return queues

    chunker = Chunker(
        columns,
        options.topic,
        queues_of,
        identity=f"{batch.query}/{batch.number}/{partition}",
        partition=partition,
    )
    for record_batch in batches:
        for chunk in chunker.add(record_batch):
            outlet.put(chunk)
    for chunk in chunker.finish():
        outlet.put(chunk)
    return WrittenPart(
        batch.query, partition, is_staged, chunker.row_count, outlet.finish(), brokers
    )


def check_guarantee(options: SinkOptions) -> None:
    """Raise ConfigError, before anything runs, if what was asked for cannot be had."""
    stages(talk_to(options.name_servers), options)


def stages(talk: BrokerTalk, options: SinkOptions) -> bool:
    """Whether rows are staged, by what was asked for and what the brokers can do."""
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return False
    if talk.can_stage(options.timeout_s):
        return True
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        raise ConfigError(
            "guarantee=exactly-once needs Ariane's brokers, and this cluster has others; use"
            " guarantee=at-least-once, and unique keys to tell what came twice"
        )
    warn_once()
    return False


_warned: Final[list[bool]] = []


def warn_once() -> None:
    """Say that rows may come twice, once in a process."""
    if not _warned:
        _warned.append(True)
        log.warning(
            "the brokers cannot publish batches: rows arrive at least once, and one that comes"
            " twice has the same unique key both times"
        )


def publish_parts(options: SinkOptions, batch: Batch, parts: Sequence[WrittenPart]) -> None:
    """Make the rows of these tasks visible, in the order of their partitions."""
    plan = plan_of(part.chunks for part in parts)
    if plan.brokers:
        talk = talk_to(options.name_servers)
        publish(talk, batch, plan, brokers_of(parts), options.timeout_s)


def discard_parts(
    options: SinkOptions, batch: Batch, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """See to it that the rows of a job are never published."""
    parts = parts_of(messages)
    if len(parts) == len(messages):  # else nothing can have been asked for
        talk = talk_to(options.name_servers)
        plan = plan_of(part.chunks for part in parts)
        discard(talk, batch, plan, brokers_of(parts), options.timeout_s)


def brokers_of(parts: Sequence[WrittenPart]) -> set[str]:
    """Every broker that the tasks might have had rows for."""
    return set().union(*(part.brokers for part in parts))


def parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenPart]:
    """What the tasks said, in the order of partitions; failed ones said nothing."""
    parts = [message for message in messages if isinstance(message, WrittenPart)]
    return sorted(parts, key=lambda part: part.partition)


class Outlet:
    """Chunks on their way to brokers, a few at a time."""

    def __init__(
        self,
        talk: BrokerTalk,
        options: SinkOptions,
        batch: Batch,
        partition: int,
        attempt: int,
        *,
        is_staged: bool,
    ) -> None:
        self._talk = talk
        self._options = options
        self._batch = batch
        self._partition = partition
        self._attempt = attempt
        self._is_staged = is_staged
        self._sequences: dict[str, int] = {}  # by broker
        self._on_the_way: deque[Future[StagedChunk | None]] = deque()
        self._staged: list[StagedChunk] = []

    def put(self, chunk: NewChunk) -> None:
        """Begin to hand a chunk over; waits while many are on their way."""
        while len(self._on_the_way) >= ON_THE_WAY_MAX:
            self._take_one()
        work = self._stage(chunk) if self._is_staged else self._send(chunk)
        self._on_the_way.append(self._talk.submit(work))
        if not self._is_staged:
            self._take_all()  # a chunk that is tried again must not come after the next one

    def finish(self) -> list[StagedChunk]:
        """Wait for all; the chunks that were staged, in order."""
        self._take_all()
        return self._staged

    async def _send(self, chunk: NewChunk) -> None:
        await self._talk.persist(lambda: self._talk.send(chunk), self._options.timeout_s)

    def _take_all(self) -> None:
        while self._on_the_way:
            self._take_one()

    def _take_one(self) -> None:
        staged = self._on_the_way.popleft().result()
        if staged is not None:
            self._staged.append(staged)

    def _stage(self, chunk: NewChunk) -> Any:
        broker = chunk.queue.broker_name
        sequence = self._sequences.get(broker, 0)
        self._sequences[broker] = sequence + 1
        checksum = crc32(chunk.body)
        header = StageHeader(
            query_id=self._batch.query,
            batch_id=self._batch.number,
            partition=self._partition,
            attempt=self._attempt,
            sequence=sequence,
            topic=chunk.queue.topic,
            queue_id=chunk.queue.queue_id,
            row_count=chunk.row_count,
            crc32=checksum,
        )

        async def stage() -> StagedChunk:
            answer = await self._talk.persist(
                lambda: self._talk.stage(chunk.queue, header, chunk.body), self._options.timeout_s
            )
            offset = int(answer.ext["chunkOffset"])
            return StagedChunk(broker, offset, chunk.row_count, checksum)

        return stage()
