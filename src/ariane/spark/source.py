"""The data source as Spark sees it. Imports nothing but Spark before it is used.

Spark imports every module named `pyspark_*` in a fresh interpreter to find sources by name; ours
(`pyspark_rocketmq`, `pyspark_ariane`) only name this class, so a session that never uses them pays
next to nothing. There is no `pushFilters`: in Spark 4.3 a filter pushed for one query stays on
for the next one over the same data frame. Ranges and expressions are options instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

# ruff: noqa: PLC0415, N802 - imported when used, see above; the method names are Spark's


class MessageSource(DataSource):
    """Topics of a RocketMQ cluster, or of a broker's store, as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "rocketmq"

    def schema(self) -> str:
        """All columns; a schema of the user's own is a choice among them."""
        from ariane.spark.options import check_names, includes_properties
        from ariane.spark.schema import ddl

        check_names(self.options)
        return ddl(with_properties=includes_properties(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For batch queries."""
        from ariane.spark.options import source_options
        from ariane.spark.reader import BatchReader

        return BatchReader(source_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For streaming queries."""
        from ariane.spark.options import source_options
        from ariane.spark.reader import RowReader
        from ariane.spark.stream_reader import StreamReader

        options = source_options(self.options, is_stream=True)
        return StreamReader(options, RowReader(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For batch writes."""
        from ariane.spark.writer import writer

        return writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For streaming writes."""
        from ariane.spark.writer import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)
