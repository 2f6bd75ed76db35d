"""Which command is imported, and what becomes of an error."""

import sys
from pathlib import Path

import pytest

from ariane.cli import main
from ariane.cli.main import MODULES, app_for


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of `ariane words`."""
    monkeypatch.setattr(sys, "argv", ["ariane", *words])
    with pytest.raises(SystemExit) as left:
        main.run()
    return int(left.value.code or 0)


def test_only_the_command_asked_for_is_there() -> None:
    assert [group.name for group in app_for(["--debug", "topic", "list"]).registered_groups] == [
        "topic"
    ]
    assert [command.name for command in app_for(["up"]).registered_commands] == [
        "up",
        "namesrv",
        "broker",
    ]


def test_help_lists_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    text = capsys.readouterr().out
    for name in MODULES:
        assert name in text


def test_a_word_that_is_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "nonsense") == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["topic", "list", "--namesrv", "nonsense"], 1, "host:port"),
        (["topic", "list", "--namesrv", "127.0.0.1:1"], 1, "no name server answers"),
        (["up", "--set", "nonsense"], 2, "KEY=VALUE"),
        (["up", "--set", "listenPort=1"], 2, "--broker-port"),
        (["up", "--set", "flushIntervalCommitLog=soon"], 2, "flushIntervalCommitLog"),
        (["up", "--host", "0.0.0.0"], 2, "--insecure"),
        (["up", "--host", "example.org"], 2, "--insecure"),
        (["up", "--log-level", "LOUD"], 2, "LOUD"),
        (["broker", "-c", "/does/not/exist"], 2, "cannot read /does/not/exist"),
        (["broker", "--set", "listenPort=many"], 2, "listenPort"),
        (["namesrv", "--host", "0.0.0.0"], 2, "--insecure"),
        (["send", "t", "x", "--property", "a"], 2, "--property 'a' is not KEY=VALUE"),
        (["send", "../t", "x"], 1, "may only hold"),
        (["message", "get", "xyz"], 1, "offset message id"),
    ],
)
def test_an_error_is_one_line_that_helps(
    words: list[str],
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *words) == code
    complaint = capsys.readouterr().err
    assert complaint.startswith("error: ")
    assert len(complaint.splitlines()) == 1
    assert text in complaint


@pytest.mark.parametrize("command", ["broker", "namesrv", "store check"])
def test_a_file_of_settings_that_is_no_text(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "commitlog").mkdir()
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xff\xfe")
    words = command.split() + ([str(tmp_path)] if "store" in command else [])
    assert run(monkeypatch, *words, "-c", str(file)) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


def test_debug_shows_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ariane", "--debug", "up", "--set", "nonsense"])
    with pytest.raises(Exception, match="KEY=VALUE"):
        main.run()


def test_the_name_server_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARIANE_NAMESRV", "127.0.0.1:2")
    assert run(monkeypatch, "topic", "list") == 1
    assert "127.0.0.1:2" in capsys.readouterr().err
