"""`ariane pipeline`, without Spark: lists, options, and refusals that come before it starts."""

import json
import sys
from importlib import import_module

import pytest

from ariane.cli.main import run
from ariane.cli.pipeline import _fact_text


def ariane(monkeypatch: pytest.MonkeyPatch, line: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ariane", *line.split()])
    with pytest.raises(SystemExit) as left:
        run()
    return int(left.value.code or 0)


def test_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ariane(monkeypatch, "pipeline list --output json") == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out)]
    assert names == [
        *("archive", "audit", "compact", "dlq", "hybrid"),
        *("metrics", "mirror", "quality", "replay", "trace"),
    ]


def test_show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ariane(monkeypatch, "pipeline show replay --output json") == 0
    options = {each["flag"]: each for each in json.loads(capsys.readouterr().out)}
    assert options["--topics"]["required"]
    assert options["--rate"] == {
        "name": "rate",
        "flag": "--rate",
        "takes": "NUMBER",
        "required": False,
        "default": 0.0,
        "help": "Messages a second; 0 is no limit.",
    }
    assert ariane(monkeypatch, "pipeline show replay") == 0
    table = capsys.readouterr().out
    assert "--order" in table
    assert "queue|key|none" in table


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pipeline show arhcive", "there is no pipeline 'arhcive'; there are archive, audit"),
        ("pipeline run archive --lake /tmp/l", "--topics is needed: The topics"),
        ("pipeline run archive --topics a --lake l --folow", "there is no option --folow"),
        ("pipeline run compact --lake l --target-mb 0", "--target-mb '0': expected `int` >= 1"),
        ("pipeline run replay --topics a", "say where to send: --to TOPIC, or --to-origin"),
        ("pipeline run replay --topics a --to b", "--checkpoint is needed: a directory"),
        ("pipeline run replay --topics a --to-origin", "is for topics of dead letters"),
        (
            "pipeline run mirror --topics a --to-namesrv x --checkpoint c --namesrv x",
            "needs another name",
        ),
        (
            "pipeline run quality --topics a --rules r --good a --quarantine b --checkpoint c",
            "a is read from and sent to; that would never end",
        ),
        ("pipeline run metrics --topics a --follow --to d", "needs --checkpoint"),
        ("pipeline run archive --topics a,a --lake l", "names a topic twice"),
        ("pipeline run audit --topics a --namesrv= ", "what is to be audited?"),
        ("pipeline run archive --topics a --lake l --conf nonsense", "is not KEY=VALUE"),
        (
            "pipeline run archive --topics a --lake l --source-options maxOffsetsPerTrigger=5",
            "--source-options: maxOffsetsPerTrigger is set by --batch-messages",
        ),
        (
            "pipeline run audit --topics a --source-options STARTINGTIMESTAMP=5",
            "STARTINGTIMESTAMP: what is read is for the pipeline to say",
        ),
    ],
)
def test_wrong_words_are_told_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # importing it would raise
    assert ariane(monkeypatch, line) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("messages", 12345, "12,345 messages"),
        ("dry run", True, "dry run"),
        ("dry run", False, ""),
        ("replay id", "abc", "replay id abc"),
    ],
)
def test_facts_read_like_words(name: str, value: object, text: str) -> None:
    assert _fact_text(name, value) == text


def test_spark_that_does_not_start_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")

    monkeypatch.setattr(import_module("ariane.spark.session"), "session", refuse)
    assert ariane(monkeypatch, "pipeline run dlq --master bogus://x") == 2
    error = capsys.readouterr().err
    assert "Spark did not start with --master bogus://x: [JAVA_GATEWAY_EXITED]" in error
    assert "`ariane doctor spark`" in error
