"""A home for Spark with links to PySpark's parts, and PySpark itself where its zip would be."""

from pathlib import Path

import pytest

from ariane.spark.home import quick_home


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Something like PySpark as pip installs it."""
    package = tmp_path / "site-packages/pyspark"
    (package / "python/lib").mkdir(parents=True)
    for name in ("python/lib/pyspark.zip", "python/lib/py4j-src.zip", "__init__.py"):
        (package / name).write_text(name)
    for name in ("jars", "bin"):
        (package / name).mkdir()
        (package / name / "part").write_text(name)
    return package


def test_a_home_with_the_package_in_place_of_its_zip(package: Path, tmp_path: Path) -> None:
    home = quick_home(package, "4.3.0", tmp_path / "cache")

    assert home is not None
    assert (home / "jars/part").read_text() == "jars"
    assert (home / "bin/part").read_text() == "bin"
    assert (home / "python/lib/py4j-src.zip").read_text() == "python/lib/py4j-src.zip"
    assert (home / "python/lib/pyspark.zip/pyspark/__init__.py").read_text() == "__init__.py"


def test_made_once_for_each_installation(package: Path, tmp_path: Path) -> None:
    first = quick_home(package, "4.3.0", tmp_path / "cache")

    assert quick_home(package, "4.3.0", tmp_path / "cache") == first
    assert quick_home(package, "4.3.1", tmp_path / "cache") != first
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_none_for_another_kind_of_installation(package: Path, tmp_path: Path) -> None:
    (package / "python/lib/pyspark.zip").unlink()

    assert quick_home(package, "4.3.0", tmp_path / "cache") is None


def test_none_where_nothing_can_be_written(package: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where a directory would be")

    assert quick_home(package, "4.3.0", tmp_path / "cache") is None
