"""The pipelines by name; a module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ariane.errors import ConfigError
from ariane.spark.pipelines.outcome import Outcome, Report
from ariane.spark.pipelines.settings import PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARIES: Final = {
    "archive": "Topics to a lake of Parquet files by topic and day, each message exactly once.",
    "audit": "Produced against archived against consumed: gaps, duplicates, bodies that differ.",
    "compact": "Small files of a lake into large ones, sorted, with nothing dropped.",
    "dlq": "Dead letters sorted by group, topic, tag, cause, shape of body and age.",
    "hybrid": "A lake's past and a topic's present as one table; the seam is an offset.",
    "metrics": "Rates, sizes and latencies of topics by time windows.",
    "mirror": "Topics to another cluster or into more queues, in order; groups move over.",
    "quality": "JSON bodies that keep rules to one topic, the others to quarantine.",
    "replay": "Messages of a lake or a topic to a topic again, by time, offset, key or tag.",
    "trace": "The trace topic as one row a message: costs, orphans, double deliveries.",
}


class Pipeline(Protocol):
    """What the module of a pipeline has."""

    Config: type[PipelineConfig]

    def run(self, spark: SparkSession, config: Any, report: Report) -> Outcome:
        """Do it."""
        ...


def pipeline_of(name: str) -> Pipeline:
    """The module of that name; raises ConfigError when there is none."""
    if name not in SUMMARIES:
        raise ConfigError(f"there is no pipeline {name!r}; there are {', '.join(SUMMARIES)}")
    return cast(Pipeline, import_module(f"ariane.spark.pipelines.{name}"))
