"""What a server survives does not pass unseen."""

import asyncio
import gc
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import processes
from tests.harness.processes import ROOT, Server, ServerFailed
from tests.harness.watching import Watch, complaint, refuse_tracebacks, tracebacks_in

PRINTED = """\
2026-11-18 10:00:00,000 INFO ariane.broker started
2026-11-18 10:00:01,000 ERROR ariane.remoting timer failed
Traceback (most recent call last):
  File "x.py", line 1, in run
ValueError: a bug
2026-11-18 10:00:02,000 INFO ariane.broker stopped
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    logging.getLogger().addHandler(watch)
    yield watch
    logging.getLogger().removeHandler(watch)


@pytest.mark.provokes("ValueError: a bug")
def test_a_traceback_that_is_logged_is_seen_once(watch: Watch) -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("ariane.broker").exception("it is tried again")
    (seen,) = watch.taken()
    assert "it is tried again" in seen and "ValueError: a bug" in seen
    assert watch.taken() == []


def test_an_error_without_a_traceback_is_no_matter(watch: Watch) -> None:
    logging.getLogger("ariane.broker").error("the disk is full")
    assert watch.taken() == []


@pytest.mark.provokes("exception was never retrieved")
async def test_a_task_that_nobody_asks_is_seen(watch: Watch) -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    task = asyncio.ensure_future(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    (seen,) = watch.taken()
    assert "never retrieved" in seen and "ValueError: a bug" in seen


def test_what_is_expected_must_come_and_nothing_else() -> None:
    assert complaint([], []) is None
    assert complaint(["timer failed: a bug"], ["timer failed"]) is None
    assert "pop failed" in str(complaint(["timer failed", "pop failed"], ["timer failed"]))
    assert "nothing was logged" in str(complaint([], ["timer failed"]))


def test_tracebacks_in_an_output_are_found_with_the_line_that_says_of_what() -> None:
    (found,) = tracebacks_in(PRINTED)
    assert found.startswith("2026-11-18 10:00:01,000 ERROR") and found.endswith("a bug")
    assert tracebacks_in(PRINTED.replace("Traceback", "Trace")) == []
    assert len(tracebacks_in(PRINTED * 2)) == 2


@pytest.mark.parametrize("provokes", [(), ("timer failed",)])
def test_a_server_that_printed_one_fails_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provokes: tuple[str, ...]
) -> None:
    monkeypatch.setattr(processes, "ARIANE", Path(sys.executable))
    server = Server(tmp_path)
    server.provokes = provokes
    server.spawn("ariane", [Path(sys.executable), "-c", f"print({PRINTED!r})"])
    server.broker_process.wait(60)
    if provokes:
        server.stop()
    else:
        with pytest.raises(ServerFailed, match="ValueError: a bug"):
            server.stop()


def test_what_an_earlier_life_printed_is_seen_though_its_output_is_written_anew(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path)
    server.spawn("ariane", [sys.executable, "-c", f"print({PRINTED!r})"])
    server.broker_process.wait(60)
    with pytest.raises(ServerFailed, match="ValueError: a bug"):
        server.spawn("ariane", [sys.executable, "-c", ""])
    server.kill()


def test_a_command_behind_another_is_watched_too(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.spawn("ariane", ["sh", "-c", 'exec "$@"', "sh", sys.executable, "-c", "1 / 0"])
    server.broker_process.wait(60)
    with pytest.raises(ServerFailed, match="ZeroDivisionError"):
        server.stop()


@pytest.mark.provokes("a warning with a traceback")
def test_a_traceback_counts_at_any_level_but_for_what_a_users_handler_raised(watch: Watch) -> None:
    log = logging.getLogger("ariane.client")
    log.warning("a warning with a traceback", exc_info=ValueError("a bug"))
    log.warning("handler failed group=%s", "G", exc_info=ValueError("the user's"))
    (seen,) = watch.taken()
    assert seen.startswith("ariane.client: a warning with a traceback")


@pytest.mark.parametrize(
    "printed",
    [
        "Exception ignored in: 'ariane.kernel.log.place'\nValueError: a bug",
        "RuntimeWarning: coroutine 'send' was never awaited",
        "Task was destroyed but it is pending!",
        "Fatal Python error: Segmentation fault",
    ],
)
def test_what_a_command_prints_of_things_forgotten_is_refused(printed: str) -> None:
    refuse_tracebacks("all is well", by="send")
    with pytest.raises(AssertionError, match="send survived"):
        refuse_tracebacks(printed.encode(), by="send")


UNTAKEN = """
import threading

def fail(*_):
    raise ValueError("a bug")

def test_in_a_thread():
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

class Forgotten:
    __del__ = fail

def test_where_nobody_can_take_it():
    Forgotten()
"""


def test_exceptions_of_threads_and_those_nobody_can_take_fail_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_untaken.py").write_text(UNTAKEN)
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *settings, str(tmp_path / "test_untaken.py")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    for name, warning in [
        ("test_in_a_thread", "PytestUnhandledThreadExceptionWarning"),
        ("test_where_nobody_can_take_it", "PytestUnraisableExceptionWarning"),
    ]:
        assert re.search(rf"^FAILED .*::{name}", ran.stdout, re.MULTILINE), ran.stdout
        assert warning in ran.stdout
