"""Which batch of which streaming query a task works for, as Spark tells its tasks."""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

from ariane.errors import ClientError

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


def running_batch() -> tuple[str, int]:
    """The query's id and the batch's number: the same when the batch is run again."""
    context = TaskContext.get()
    query = context and context.getLocalProperty(QUERY_PROPERTY)
    number = context and context.getLocalProperty(BATCH_PROPERTY)
    if not query or not number:
        raise ClientError(
            f"Spark did not say which batch this is: {QUERY_PROPERTY}={query!r},"
            f" {BATCH_PROPERTY}={number!r}; Spark 4.1 to 4.3 do"
        )
    return query, int(number)
