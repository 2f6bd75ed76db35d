"""The page about the sink names every option and every column."""

from pathlib import Path

from ariane.spark.sink_options import SINK_OPTIONS
from ariane.spark.sink_schema import COLUMNS

PAGE = Path(__file__).parents[3] / "docs/reference/spark_sink.md"


def test_the_page_names_every_option_and_column() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = [name.strip(" `") for row in rows for name in row[1].split(",")]
    assert sorted(told) == sorted([*SINK_OPTIONS, *COLUMNS])  # topic is one of each
    types = {row[1].strip(" `"): row[2].strip() for row in rows[: len(COLUMNS)]}
    assert types == {
        name: " or ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
        for name, kinds in COLUMNS.items()
    }
