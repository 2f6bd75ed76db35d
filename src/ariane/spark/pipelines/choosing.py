"""Choosing messages: by time and offset, by key, by tag, and by any condition Spark can say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ariane.errors import ConfigError
from ariane.spark.pipelines.history import RangeConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter


class ChoiceConfig(RangeConfig, frozen=True, kw_only=True):
    """Options that choose messages; without any it is all."""

    keys: Annotated[tuple[str, ...], Meta(description="Only messages with one of these keys.")] = ()
    key_from: Annotated[str, Meta(description="Only messages with a key from this on.")] = ""
    key_to: Annotated[str, Meta(description="Only messages with a key before this.")] = ""
    tags: Annotated[tuple[str, ...], Meta(description="Only messages with one of these tags.")] = ()
    where: Annotated[
        str, Meta(description="Only messages for which this is true, in Spark's SQL.")
    ] = ""


def chosen(messages: DataFrame, config: ChoiceConfig) -> DataFrame:
    """The messages that the options choose, their ranges aside."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    words = F.split(F.coalesce("keys", F.lit("")), " ")
    found = F.filter(words, lambda word: word != "")
    if config.keys:
        messages = messages.where(F.arrays_overlap(found, F.array(*map(F.lit, config.keys))))
    if config.key_from or config.key_to:
        end = F.lit(config.key_to)
        in_range = F.exists(
            found, lambda key: (key >= config.key_from) & ((end == "") | (key < end))
        )
        messages = messages.where(in_range)
    if config.tags:
        messages = messages.where(F.col("tags").isin(*config.tags))
    if config.where:
        try:
            messages = messages.where(config.where)
        except (AnalysisException, ParseException) as error:
            columns = ", ".join(messages.columns)
            said = str(error).split("\n", 1)[0]
            raise ConfigError(f"--where {config.where!r}: {said}; columns are {columns}") from None
    return messages
