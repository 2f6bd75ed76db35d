"""Dead letters as rows: whose they are, what they were, why they failed, how bodies look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ariane.protocol.properties import RETRY_TOPIC
from ariane.spark.pipelines.messages import ORIGIN_TOPIC
from ariane.topics import DEAD_LETTER_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

CAUSES: Final = ("cause", "error", "exception", "reason")
NO_CAUSE: Final = "unknown"
SHAPE_KEYS_MAX: Final = 12


def described(letters: DataFrame, causes: Sequence[str] = CAUSES) -> DataFrame:
    """The rows with four columns more: `group`, `originTopic`, `cause` and `shape`.

    The cause is the first of the properties `causes` that a letter has.
    """
    from pyspark.sql import functions as F

    properties = F.col("properties")
    told = [properties[name] for name in causes]
    return letters.select(
        "*",
        F.expr(f"substring(topic, {len(DEAD_LETTER_PREFIX) + 1})").alias("group"),
        F.coalesce(properties[RETRY_TOPIC], properties[ORIGIN_TOPIC], F.col("topic")).alias(
            "originTopic"
        ),
        F.coalesce(*told, F.lit(NO_CAUSE)).alias("cause"),
        body_shape().alias("shape"),
    )


def body_shape() -> Column:
    """A body in words that many bodies share: `json{amount,id}`, `text`, `binary`, `empty`."""
    from pyspark.sql import functions as F

    text = F.expr("try_validate_utf8(cast(body as string))")
    parsed = F.try_parse_json(text)
    names = F.array_sort(F.json_object_keys(text))
    some = F.array_join(F.slice(names, 1, SHAPE_KEYS_MAX), ",")
    more = F.when(F.size(names) > SHAPE_KEYS_MAX, F.lit(",…")).otherwise(F.lit(""))
    kind = F.schema_of_variant(parsed)
    return (
        F.when(F.length("body") == 0, F.lit("empty"))
        .when(text.isNull(), F.lit("binary"))
        .when(parsed.isNull(), F.lit("text"))
        .when(kind.startswith("OBJECT"), F.concat(F.lit("json{"), some, more, F.lit("}")))
        .when(kind.startswith("ARRAY"), F.lit("json[]"))
        .otherwise(F.lit("json"))
    )


def is_dead_letter_topic(topic: str) -> bool:
    """Whether a topic holds what a group gave up on."""
    return topic.startswith(DEAD_LETTER_PREFIX)
