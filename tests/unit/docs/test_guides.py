"""The guides' code runs, and prints what they say it prints.

Every ```python block of a page is run, in order and in one namespace, against a broker in this
process whose time flies: a second of its clock passes every few milliseconds. A block may await at
its top level. A ```text block right behind one is what it prints. Blocks that hold tests are run
by pytest instead.
"""

import ast
import asyncio
import contextlib
import io
import re
import sys
import threading
from collections.abc import Iterator
from inspect import CO_COROUTINE
from pathlib import Path
from types import ModuleType

import pytest

from ariane.sync import Client
from ariane.testing import EmbeddedBroker
from tests.harness.guides import ADDRESS, GUIDES, blocks_of

pytest_plugins = ["pytester"]

TOPIC = re.compile(r'\b(?:send|send_one_way|subscribe|consumer|Message|transaction)\(\s*"([\w-]+)"')
SECOND_S = 0.01  # how long a second of the broker takes
ON_SPARK = ("spark",)  # run by tests/spark, where a session is


PAGES = {
    page.stem: page
    for page in sorted(GUIDES.glob("*.md"))
    if page.stem not in ON_SPARK and blocks_of(page)
}


@contextlib.contextmanager
def flying(broker: EmbeddedBroker) -> Iterator[None]:
    """Let the broker's time pass by itself."""
    stopped = threading.Event()

    def fly() -> None:
        while not stopped.wait(SECOND_S):
            broker.advance(1)

    thread = threading.Thread(target=fly)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def make_topics(broker: EmbeddedBroker, topics: list[str]) -> None:
    """Have the topics there already: a consumer looks only now and then for one that is not."""
    with Client(broker.name_server) as client:
        for topic in dict.fromkeys(topics):
            client.admin.create_topic(topic, write_queue_count=4)


@pytest.mark.ariane(enableTopicMessageTypeCheck=True)
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_code_runs_and_prints_what_the_page_says(
    page: Path, ariane_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_topics(ariane_broker, TOPIC.findall(page.read_text()))
    module = ModuleType("__guide__")  # where some libraries look for what is decorated
    monkeypatch.setitem(sys.modules, "__guide__", module)
    names: dict[str, object] = vars(module)
    with flying(ariane_broker), asyncio.Runner() as runner:
        for block in blocks_of(page):
            if block.is_test:
                continue
            source = "\n" * block.line + block.code.replace(ADDRESS, ariane_broker.name_server)
            compiled = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                result = eval(compiled, names)
                if compiled.co_flags & CO_COROUTINE:
                    runner.run(result)
            if block.output is not None:
                assert printed.getvalue() == block.output, f"{page.name}:{block.line}"


def test_tests_pass(pytester: pytest.Pytester) -> None:
    tests = [block for page in PAGES.values() for block in blocks_of(page) if block.is_test]
    for number, block in enumerate(tests):
        pytester.path.joinpath(f"test_block_{number}.py").write_text(block.code)
    options = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    result = pytester.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider", *options)
    outcomes = result.parseoutcomes()
    assert outcomes.keys() <= {"passed"}, outcomes
    assert outcomes["passed"] == sum(block.code.count("def test_") for block in tests)
