"""What `import ariane` gives, and what it costs."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


def test_the_blocking_face_has_every_name() -> None:
    assert set(ariane.sync.__all__) == set(ariane.__all__) - {"sync"}
    for name in ariane.sync.__all__:
        assert getattr(ariane.sync, name) is not None
    assert ariane.sync.Message is ariane.Message
    assert ariane.sync.ReceivedMessage is not ariane.ReceivedMessage
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ariane.sync.nonsense


@pytest.mark.parametrize("module", [ariane, ariane.sync], ids=["ariane", "ariane.sync"])
def test_type_checkers_read_the_same_names(module: ModuleType) -> None:
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    imported = {
        name.asname for each in tree.body if isinstance(each, ast.ImportFrom) for name in each.names
    }
    assert imported == set(module.__all__)


def test_a_client_alone_brings_no_more_than_it_uses() -> None:
    unused = "admin consume_trace lite_pull_consumer simple_consumer sync sync_admin dedup tracking"
    program = (
        "import sys, ariane; ariane.Client; print(*(name for name in"
        f" {unused.split()!r} if 'ariane.client.' + name in sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert output.stdout.strip() == b""


def test_the_import_alone_brings_nothing_heavy() -> None:
    program = "import sys, ariane; print({'asyncio', 'msgspec'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert output.stdout.strip() == b"set()"
