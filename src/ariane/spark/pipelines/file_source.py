"""A stream whose rows are files: tasks write what they read to a lake, and yield what they wrote.

It plans batches as the source does, and keeps the same offsets in its checkpoint. What differs is
the executors' part: instead of messages Spark gets a description of each file, and the driver
decides what becomes of them. The lake must be a directory that executors and driver share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from ariane.spark.source import MessageSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from ariane.spark.options import SourceOptions

# ruff: noqa: PLC0415, N802 - imported when used, as in `source.py`; the method names are Spark's

FORMAT: Final = "ariane_lake_files"
COLUMN: Final = "file"  # a LakeFile as JSON


class FileSource(MessageSource):
    """Topics as files of a lake; the option `path` is the lake's directory on a local disk."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return FORMAT

    def schema(self) -> str:
        """One column."""
        return f"{COLUMN} string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Plans as the source does."""
        from ariane.spark.options import includes_properties, source_options
        from ariane.spark.schema import COLUMNS, PROPERTIES
        from ariane.spark.stream_reader import StreamReader

        left_out = {"topic"} if includes_properties(self.options) else {"topic", PROPERTIES}
        columns = tuple(name for name in COLUMNS if name not in left_out)
        options = source_options(self.options, is_stream=True)
        return StreamReader(options, _FileWriter(options, columns, self.options["path"]))


class _FileWriter:
    """Turns partitions into files."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], root: str) -> None:
        self._options = options
        self._columns = columns
        self._root = root

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the partition's messages; a row for each file."""
        if partition.value is None:  # Spark makes one of its own when there are none
            return
        import msgspec
        import pyarrow as pa

        from ariane.spark.bytes import read_batches
        from ariane.spark.pipelines.drafts import Drafts
        from ariane.spark.pipelines.layout import STAGING, job_of
        from ariane.spark.planning import queue_of
        from ariane.spark.running import running_batch

        drafts = Drafts(Path(self._root), f"{STAGING}/{job_of(*running_batch())}")
        for queues in partition.value:
            for batch in read_batches(
                self._options.access,
                (queues,),
                self._columns,
                self._options.message_filter,
                fail_on_data_loss=self._options.fails_on_data_loss,
            ):
                drafts.add(queue_of(queues), batch)
        files = [msgspec.json.encode(file).decode() for file in drafts.finish()]
        yield pa.record_batch([pa.array(files, pa.string())], names=[COLUMN])
