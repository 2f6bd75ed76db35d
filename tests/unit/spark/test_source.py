"""The classes that Spark finds by name: quick to import, and without the method that misleads."""

import subprocess
import sys

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import LongType, StructType

import pyspark_ariane
import pyspark_rocketmq
from ariane.errors import ConfigError
from ariane.spark.reader import BatchReader
from ariane.spark.stream_reader import StreamReader

SCHEMA = StructType().add("queueOffset", LongType())
OPTIONS = {"subscribe": "orders", "namesrv": "127.0.0.1:9876"}
HEAVY = ("numpy", "pyarrow", "asyncio", "msgspec", "ariane.client", "ariane.spark.options")


@pytest.mark.parametrize(
    ("module", "name"), [(pyspark_rocketmq, "rocketmq"), (pyspark_ariane, "ariane")]
)
def test_both_formats(module: object, name: str) -> None:
    source = module.DefaultSource  # type: ignore[attr-defined]
    assert issubclass(source, DataSource)
    assert source.name() == name
    made = source(OPTIONS)
    assert isinstance(made.reader(SCHEMA), BatchReader)
    assert isinstance(made.streamReader(SCHEMA), StreamReader)
    assert made.schema().startswith("topic string, brokerName string")


def test_properties_may_be_dropped_and_wrong_options_are_refused_when_the_schema_is_asked_for() -> (
    None
):
    source = pyspark_rocketmq.DefaultSource({**OPTIONS, "includeProperties": "false"})
    assert "properties" not in source.schema()
    with pytest.raises(ConfigError, match="did you mean subscribe"):
        pyspark_rocketmq.DefaultSource({"subscribed": "orders"}).schema()


def test_filters_are_never_pushed() -> None:
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


def test_finding_the_formats_is_quick_and_imports_nothing_of_ours_that_is_not() -> None:
    # Spark gives a fresh interpreter ten seconds, on however loaded a machine.
    code = f"""
import sys, time
import pyspark.sql.datasource
before = set(sys.modules)
begun = time.perf_counter()
import pyspark_ariane, pyspark_rocketmq
spent_ms = (time.perf_counter() - begun) * 1000
heavy = [name for name in {HEAVY} if name in set(sys.modules) - before]
print(spent_ms, *heavy)
"""
    spent = []
    for _ in range(3):
        words = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
        assert words[1:] == []
        spent.append(float(words[0]))
    assert min(spent) < 50
