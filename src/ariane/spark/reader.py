"""Batch reads: partitions are planned in the driver, read in the executors.

A reader is pickled on its way to the executors, so it holds options and nothing that is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ariane.spark.batch_plan import batch_partitions
from ariane.spark.bytes.contract import QueueRange
from ariane.spark.options import SourceOptions
from ariane.spark.schema import projection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Reads what the options ask for, as it is when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._rows = RowReader(options, schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster where queues begin and end, and divide what lies between."""
        from ariane.spark.cluster import cluster_of  # noqa: PLC0415 - a driver's; executors never

        cluster = cluster_of(self._options.access)
        try:
            return partitions_of(batch_partitions(self._options, cluster))
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return self._rows.read(partition)


class RowReader:
    """Turns partitions into Arrow batches of a schema; the same for batches and streams."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._columns = projection(schema)
        self._schema = schema
        self._access = options.access
        self._filter = options.message_filter
        self._fails_on_data_loss = options.fails_on_data_loss

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the partition's ranges, in order."""
        if partition.value is None:  # Spark makes one of its own when there are none
            return
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - executors only

        from ariane.spark.bytes import read_batches  # noqa: PLC0415 - executors only

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for batch in read_batches(
            self._access,
            partition.value,
            self._columns,
            self._filter,
            fail_on_data_loss=self._fails_on_data_loss,
        ):
            # A user's NOT NULL is part of the Arrow schema that Spark insists on.
            yield batch if batch.schema.equals(wanted) else batch.cast(wanted)


def partitions_of(divided: list[list[QueueRange]]) -> list[InputPartition]:
    """Ranges as Spark carries them to the executors."""
    return [InputPartition(tuple(ranges)) for ranges in divided]
