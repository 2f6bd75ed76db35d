"""The sink: rows to messages, exactly once where brokers can, at least once where they cannot.

A task stages its rows on the brokers, where nobody sees them, and returns which chunks they are.
The driver publishes the chunks of exactly one attempt of each task. What failed, was speculative or
ran before a restart stays staged until the log forgets it. Apache's brokers have no such thing:
there rows are sent as they come, with unique keys that are the same when a task runs again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from ariane.errors import ConfigError
from ariane.spark.parts import KEEP_JOB_HOURS, Batch, WrittenPart
from ariane.spark.running import running_batch
from ariane.spark.sink_options import SinkOptions, sink_options
from ariane.spark.sink_schema import check_schema

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

# ruff: noqa: PLC0415 - each micro-batch is planned in a fresh process, which should do little else


def writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """The sink of a batch query; raises ConfigError for what it cannot do."""
    if overwrite:
        raise ConfigError("topics are only added to; write with mode('append')")
    told = sink_options(options)
    columns = check_schema(schema, told.topic)
    from ariane.spark.writing import check_guarantee

    check_guarantee(told)
    if told.batch_name is not None and told.batch is not None:
        return BatchWriter(told, columns, Batch(told.batch_name, told.batch))
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
        from ariane.spark.writing import write_part

        return write_part(self.options, self._columns, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks succeeded: make their rows visible."""
        from ariane.spark.writing import parts_of, publish_parts

        publish_parts(self.options, self._batch, parts_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: publish nothing, ever; but one with a name may be run again."""
        if self.options.query is not None:
            return
        from ariane.spark.writing import discard_parts

        discard_parts(self.options, self._batch, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; a batch that is run again has the number it had before."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, str]) -> None:
        self.options = options
        self._columns = dict(columns)

    def write(self, iterator: Iterator[RecordBatch]) -> WrittenPart:
        """On an executor: stage the rows of one partition."""
        from ariane.spark.writing import write_part

        return write_part(self.options, self._columns, Batch(*running_batch()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, once all tasks succeeded: make their rows visible."""
        from ariane.spark.writing import parts_of, publish_parts

        parts = parts_of(messages)
        for query in {part.query for part in parts}:
            publish_parts(self.options, Batch(query, batchId), parts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: nothing was published, and the batch will be run again by its number."""
