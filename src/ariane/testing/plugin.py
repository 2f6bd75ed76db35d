"""The pytest plug-in: fixtures of a broker and of its clients, and the mark that sets it up."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import ariane
    from ariane import sync
    from ariane.testing import EmbeddedBroker

MARK = "ariane"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(**settings): settings of the broker that the fixture ariane_broker gives,"
        " under RocketMQ's names",
    )


@pytest.fixture
def ariane_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker of its own for one test: real, empty, on a free port, with time standing still."""
    from ariane.testing.embedded import EmbeddedBroker  # noqa: PLC0415 - only its users pay for it

    settings: dict[str, object] = {}
    for mark in reversed(list(request.node.iter_markers(MARK))):  # the nearest mark wins
        settings |= mark.kwargs
    with EmbeddedBroker(**settings) as broker:
        yield broker


@pytest.fixture
def ariane_client(
    request: pytest.FixtureRequest, ariane_broker: EmbeddedBroker
) -> Iterator[ariane.Client | sync.Client]:
    """A client of the test's broker; `advance` turns its clock too.

    A test that awaits gets one that awaits, and opens it: `async with ariane_client:`.
    """
    if inspect.iscoroutinefunction(request.function):
        yield ariane_broker.client()
    else:
        with ariane_broker.blocking_client() as client:
            yield client
