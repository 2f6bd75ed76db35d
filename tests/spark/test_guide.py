"""The code of the Spark guide runs and prints what the page says; so does the example."""

import contextlib
import io
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.guides import ADDRESS, GUIDES, blocks_of
from tests.harness.processes import ROOT, Ariane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = GUIDES / "spark.md"


def test_the_guide(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__guide__"}
    for block in blocks_of(PAGE):
        source = block.code.replace(ADDRESS, cluster.namesrv_address)
        # Spark's own files go where its JVM was started, so paths are given whole.
        source = source.replace('"lake/', f'"{tmp_path}/lake/')
        source = source.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + source, str(PAGE), "exec"), names)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{PAGE.name}:{block.line}"
    mirror = names["mirror"]
    spark.streams.removeListener(mirror)  # type: ignore[arg-type]
    mirror.close()  # type: ignore[attr-defined]


def test_the_example_draws_its_plot(
    spark: "SparkSession", cluster: Ariane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARIANE_NAMESRV", cluster.namesrv_address)
    monkeypatch.setenv("ARIANE_EXAMPLE_OUTPUT", str(tmp_path))

    found = runpy.run_path(str(ROOT / "examples/spark_quickstart.py"))

    plot = (tmp_path / "orders.svg").read_text()
    assert plot.startswith("<svg") and plot.rstrip().endswith("</svg>")
    assert plot.count("<polyline") == len(found["SHOPS"])
    assert sum(row["orders"] for row in found["per_minute"]) == found["ORDERS"]
