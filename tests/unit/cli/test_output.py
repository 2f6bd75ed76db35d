"""Tables, times and bodies as people read them."""

import pytest

from ariane.cli.output import bytes_text, say_json, say_table, time_text


def test_columns_are_as_wide_as_they_must_be_and_numbers_go_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_table(["NAME", "COUNT"], [["a", 1], ["longer", 12345], ["", 3]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    COUNT",
        "a           1",
        "longer  12345",
        "-           3",
    ]


def test_a_table_without_rows_has_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    say_table(["A", "B"], [])
    assert capsys.readouterr().out == "A  B\n"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"a": [1, "x"]})
    assert capsys.readouterr().out == '{\n  "a": [\n    1,\n    "x"\n  ]\n}\n'


def test_bodies_are_text_when_they_can_be() -> None:
    assert bytes_text("grüß".encode()) == "grüß"
    assert bytes_text(b"\xff\x00") == "ff00"
    assert bytes_text(b"a\n\x1b[31m") == "a\\n\\x1b[31m"
    assert bytes_text(b"0123456789", length_max=4) == "0123…"


def test_no_time_is_a_dash() -> None:
    assert time_text(0) == "-"
    assert ":20.123" in time_text(1_700_000_000_123)
