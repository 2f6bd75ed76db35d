"""Each program of `examples/` runs and prints what it should."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ariane.testing import EmbeddedBroker
from tests.harness.processes import ROOT

EXAMPLES = {
    "handlers": "billed order 1: apples\nbilled order 2: pears\n",
    "loop": "dear\nreader\ngoodbye\n",
    "orderly": "order-1 ordered paid sent\norder-2 ordered paid sent\n",
    "broadcast": "Ariane heard the sun has risen\nTheseus heard the sun has risen\n",
    "simple": "noon sunrise sunset\n",
    "lite_pull": "average: 21.0\n",
    "pull": "1 1848\n2 1968\n",
}
ON_SPARK = {"spark_quickstart"}  # run by tests/spark
ENDLESS = {"handlers"}


@pytest.fixture
def flying(ariane_broker: EmbeddedBroker) -> Iterator[None]:
    stopped = threading.Event()

    def fly() -> None:
        while not stopped.wait(0.02):
            ariane_broker.advance(1)

    thread = threading.Thread(target=fly)
    thread.start()
    yield
    stopped.set()
    thread.join()


def test_every_example_is_tried() -> None:
    there = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert there == set(EXAMPLES) | ON_SPARK


@pytest.mark.usefixtures("flying")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_should(name: str, ariane_broker: EmbeddedBroker) -> None:
    program = [sys.executable, str(ROOT / "examples" / f"{name}.py"), ariane_broker.name_server]
    wanted = EXAMPLES[name].splitlines()
    with subprocess.Popen(
        program,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(ROOT / ".cache")},
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        if name in ENDLESS:
            lines = [running.stdout.readline().rstrip("\n") for _ in wanted]
            running.send_signal(signal.SIGTERM)
            running.wait(60)
        else:
            lines = running.stdout.read().splitlines()
        errors = running.stderr.read()
    if name in ENDLESS:
        lines.sort()  # two orders, in no order
    else:
        assert errors == ""
    assert lines == wanted
    assert running.returncode == 0, errors
