"""What `import ariane` gives, and what it costs."""

import subprocess
import sys

import pytest

import ariane
from ariane.client import Client


def test_names_are_found_when_asked_for() -> None:
    assert ariane.Client is Client
    assert ariane.sync.Client is not Client
    for name in ariane.__all__:
        assert getattr(ariane, name) is not None
    assert ariane.strategies.Average().name == "AVG"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ariane.nonsense  # type: ignore[attr-defined]


def test_everything_that_the_client_gives_is_found_at_the_top() -> None:
    made = {
        "Admin",
        "LitePullConsumer",
        "Producer",
        "PullConsumer",
        "PushConsumer",
        "SimpleConsumer",
    }
    used = {"Limits", "Start", "Strategy", "Subscription", "Transaction", "Retry", "RetryLater"}
    assert made | used | set(ariane.client.__all__) <= set(ariane.__all__)


def test_the_import_alone_brings_nothing_heavy() -> None:
    program = "import sys, ariane; print({'asyncio', 'msgspec'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert output.stdout.strip() == b"set()"
