"""The sink: rows to messages, exactly once where brokers can, at least once where they cannot.

A task stages its rows on the brokers, where nobody sees them, and returns which chunks they are.
The driver publishes the chunks of exactly one attempt of each task. What failed, was speculative or
ran before a restart stays staged until the log forgets it. Apache's brokers have no such thing:
there rows are sent as they come, with unique keys that are the same when a task runs again.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ariane.errors import ClientError, ConfigError
from ariane.kernel.hashing import crc32
from ariane.protocol.bodies.staging import ChunkReference
from ariane.protocol.headers.staging import StageHeader
from ariane.spark.broker_talk import BrokerTalk, talk_to
from ariane.spark.publishing import (
    KEEP_JOB_HOURS,
    Batch,
    StagedChunk,
    discard,
    plan_of,
    publish,
)
from ariane.spark.rows import Chunker, NewChunk, Queues
from ariane.spark.sink_options import Guarantee, SinkOptions, check_topic, sink_options
from ariane.spark.sink_schema import check_schema

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

log = logging.getLogger("ariane.spark")

ON_THE_WAY_MAX: Final = 8  # chunks of a task not answered yet
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass
class WrittenPart(WriterCommitMessage):
    """What one task did."""

    query: str
    partition: int
    is_staged: bool  # else its rows have been sent already
    row_count: int
    chunks: list[StagedChunk]
    brokers: set[str]  # that have queues of the topics


def writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """The sink of a batch query; raises ConfigError for what it cannot do."""
    if overwrite:
        raise ConfigError("topics are only added to; write with mode('append')")
    told = sink_options(options)
    columns = check_schema(schema, told.topic)
    stages(talk_to(told.name_servers), told)
    if told.query is not None and told.batch is not None:
        return BatchWriter(told, columns, Batch(told.query, told.batch))
    return BatchWriter(told, columns, Batch(f"job-{uuid.uuid4()}", 0, KEEP_JOB_HOURS))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> DataSourceStreamArrowWriter:
    """The sink of a stream. In complete mode each batch adds the whole result, as to Kafka."""
    told = sink_options(options)
    if told.query is not None:
        raise ConfigError(
            "queryId and batchId are for batch jobs; a stream names its batches itself"
        )
    return StreamWriter(told, check_schema(schema, told.topic))


class BatchWriter(DataSourceArrowWriter):
    """Writes one job: a batch of the name it was given, or the only one of a name of its own."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, str], batch: Batch) -> None:
        self.options = options
        self._columns = dict(columns)
        self._batch = batch

    def write(self, iterator: Iterator[RecordBatch]) -> WrittenPart:
        """On an executor: stage the rows of one partition."""
        return write_part(self.options, self._columns, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks succeeded: make their rows visible."""
        publish_parts(self.options, self._batch, parts_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: publish nothing, ever; but one with a name may be run again."""
        if self.options.query is not None:
            return
        parts = parts_of(messages)
        if len(parts) == len(messages):  # else nothing can have been asked for
            talk = talk_to(self.options.name_servers)
            plan = plan_of(part.chunks for part in parts)
            discard(talk, self._batch, plan, brokers_of(parts), self.options.timeout_s)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; a batch that is run again has the number it had before."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, str]) -> None:
        self.options = options
        self._columns = dict(columns)

    def write(self, iterator: Iterator[RecordBatch]) -> WrittenPart:
        """On an executor: stage the rows of one partition."""
        context = TaskContext.get()
        query = context and context.getLocalProperty(QUERY_PROPERTY)
        number = context and context.getLocalProperty(BATCH_PROPERTY)
        if not query or not number:
            raise ClientError(
                f"Spark did not say which batch this is: {QUERY_PROPERTY}={query!r},"
                f" {BATCH_PROPERTY}={number!r}; this sink knows Spark 4.1 to 4.3"
            )
        return write_part(self.options, self._columns, Batch(query, int(number)), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, once all tasks succeeded: make their rows visible."""
        parts = parts_of(messages)
        for query in {part.query for part in parts}:
            publish_parts(self.options, Batch(query, batchId), parts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: nothing was published, and the batch will be run again by its number."""


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
            return StagedChunk(broker, ChunkReference(offset, chunk.row_count, checksum))

        return stage()
