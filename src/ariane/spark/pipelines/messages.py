"""Messages as rows: reading them, what pipelines compute of them, and sending them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from ariane.client.messages import OWN_PROPERTIES
from ariane.protocol.properties import SHARDING_KEY
from ariane.spark.offsets import Queue, nested
from ariane.spark.pipelines.layout import DAY_US
from ariane.spark.pipelines.ranges import Span, Spans
from ariane.spark.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

FORMAT: Final = "rocketmq"
DDL: Final = ddl()

# Where a message that is sent on came from, told in its properties.
ORIGIN_TOPIC: Final = "ORIGIN_TOPIC"
ORIGIN_QUEUE: Final = "ORIGIN_QUEUE"  # BROKER/QUEUE
ORIGIN_OFFSET: Final = "ORIGIN_OFFSET"
ORIGIN_ID: Final = "ORIGIN_ID"
ORIGIN_BORN_MS: Final = "ORIGIN_BORN_MS"


def source_options(namesrv: str, further: Mapping[str, str]) -> dict[str, str]:
    """Options of the source; a store's files need no name server."""
    return ({"namesrv": namesrv} if namesrv else {}) | dict(further)


def read_spans(
    spark: SparkSession, options: Mapping[str, str], spans: Spans, schema: str = DDL
) -> DataFrame:
    """Exactly these offsets of exactly these queues, by a batch read."""
    if not spans:
        return spark.createDataFrame([], schema)
    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(spans):
        assigned.setdefault(queue.topic, {}).setdefault(queue.broker, []).append(queue.queue_id)
    first = {queue: span.first for queue, span in spans.items()}
    end = {queue: span.end for queue, span in spans.items()}
    return (
        spark.read.format(FORMAT)
        .options(**options)
        .option("assign", _json(assigned))
        .option("startingOffsets", _json(nested(first)))
        .option("endingOffsets", _json(nested(end)))
        .schema(schema)
        .load()
    )


def starting_offsets(offsets: Mapping[Queue, int]) -> str:
    """Offsets as the source's options spell them."""
    return _json(nested(offsets))


def within(spans: Mapping[Queue, Span]) -> Column:
    """A condition: the row lies in one of the spans."""
    from pyspark.sql import functions as F

    condition = F.lit(False)
    for queue, span in sorted(spans.items()):
        condition |= (
            (F.col("topic") == queue.topic)
            & (F.col("brokerName") == queue.broker)
            & (F.col("queueId") == queue.queue_id)
            & (F.col("queueOffset") >= span.first)
            & (F.col("queueOffset") < span.end)
        )
    return condition


def utc_day() -> Column:
    """The day on which a message was stored, in UTC whatever the session's time zone is."""
    from pyspark.sql import functions as F

    days = F.expr(f"cast(unix_micros(storeTimestamp) div {DAY_US} as int)")
    return F.date_from_unix_date(days).cast("string")


def checksum() -> Column:
    """One number for a set of messages: of their offsets and the CRC-32 of their bodies."""
    from pyspark.sql import functions as F

    return F.bit_xor(F.xxhash64("queueOffset", F.crc32("body")))


def kept_properties(told: Mapping[str, Column]) -> Column:
    """Properties to send a message on with: the user's own, and `told` where it is not null."""
    from pyspark.sql import functions as F

    # What brokers and clients wrote into it tells of a journey that is over. Keys, tags and the
    # sharding key have columns of their own.
    dropped = [*sorted(OWN_PROPERTIES), *told]
    own = F.map_filter("properties", lambda name, _: ~name.isin(*dropped))
    pairs = [part for name, value in told.items() for part in (F.lit(name), value)]
    added = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    return F.when(F.col("properties").isNull(), added).otherwise(F.map_concat(own, added))


def origin() -> dict[str, Column]:
    """What tells where a message came from."""
    from pyspark.sql import functions as F

    return {
        ORIGIN_TOPIC: F.col("topic"),
        ORIGIN_QUEUE: F.concat_ws("/", "brokerName", "queueId"),
        ORIGIN_OFFSET: F.col("queueOffset").cast("string"),
        ORIGIN_ID: F.col("msgId"),
        ORIGIN_BORN_MS: F.unix_millis("bornTimestamp").cast("string"),
    }


def sharding_key() -> Column:
    """The sharding key a message was sent with, or null."""
    from pyspark.sql import functions as F

    return F.col("properties")[SHARDING_KEY]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
