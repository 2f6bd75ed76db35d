"""Batches to the sink, each under a name of its own, so that none is published twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ariane.spark.pipelines.messages import FORMAT, source_options
from ariane.spark.pipelines.queries import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter


def publish(
    rows: DataFrame, namesrv: str, options: Mapping[str, str], *, job: str, batch_id: int
) -> int:
    """Send the rows, unless this batch of this job was published before; gives their number."""
    from pyspark.errors import PySparkException
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    observed = rows.observe(seen, F.count("*").alias("count"))
    try:
        (
            observed.write.format(FORMAT)
            .options(**source_options(namesrv, options))
            .option("queryId", job)
            .option("batchId", str(batch_id))
            .mode("append")
            .save()
        )
    except PySparkException as error:
        raise failure(error) from error
    return int(seen.get["count"])
