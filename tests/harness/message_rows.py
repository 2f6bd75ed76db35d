"""Rows as the source gives them, made by hand."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ariane.spark.schema import COLUMNS, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 16, tzinfo=UTC)


def message(
    topic: str = "orders",
    queue_id: int = 0,
    offset: int = 0,
    body: bytes = b"{}",
    *,
    broker: str = "broker-a",
    properties: Mapping[str, str] | None = None,
    keys: str | None = None,
    tags: str | None = None,
    message_id: str | None = None,
    stored_s: float = 0,
    late_ms: int = 0,
) -> tuple[object, ...]:
    """One row; its times count from `START`."""
    stored = START + timedelta(seconds=stored_s)
    values = {
        "topic": topic,
        "brokerName": broker,
        "queueId": queue_id,
        "queueOffset": offset,
        "msgId": message_id or f"{topic}-{queue_id}-{offset}",
        "keys": keys,
        "tags": tags,
        "body": body,
        "properties": dict(properties or {}),
        "bornTimestamp": stored - timedelta(milliseconds=late_ms),
        "storeTimestamp": stored,
        "bornHost": "10.0.0.1:4000",
        "reconsumeTimes": 0,
        "sysFlag": 0,
        "physicalOffset": offset * 100,
    }
    return tuple(values[name] for name in COLUMNS)


def frame(spark: "SparkSession", *rows: tuple[object, ...]) -> "DataFrame":
    """The rows as a table."""
    return spark.createDataFrame(list(rows), ddl())
