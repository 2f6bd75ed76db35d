"""The page about the source names every option and every column."""

from pathlib import Path

from ariane.spark.options import SOURCE_OPTIONS
from ariane.spark.schema import COLUMNS

PAGE = Path(__file__).parents[3] / "docs/reference/spark.md"


def test_the_page_names_every_option_and_column() -> None:
    first_cells = [
        line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")
    ]
    told = {name.strip(" `") for cell in first_cells for name in cell.split(",")}
    assert told == set(SOURCE_OPTIONS) | set(COLUMNS)
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    types = {row[1].strip(" `"): row[2].strip() for row in rows if row[1].strip(" `") in COLUMNS}
    assert types == dict(COLUMNS)
