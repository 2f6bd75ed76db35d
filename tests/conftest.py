"""What all tests share: the `quick` mark, by which `make check` and `make test` divide the work."""

from pathlib import Path

import pytest

QUICK = ("unit", "property")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick: seconds at most and no process; set by directory")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        kind = item.path.relative_to(here).parts[0]
        if kind in QUICK and item.get_closest_marker("slow") is None:
            item.add_marker("quick")
