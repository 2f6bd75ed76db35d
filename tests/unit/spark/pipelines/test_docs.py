"""The pages about pipelines: there is one for each, and what they say can be run."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from ariane.cli.pipeline import run
from ariane.spark.pipelines.registry import SUMMARIES, pipeline_of
from ariane.spark.pipelines.rules import read_rules
from ariane.spark.pipelines.settings import from_file, from_words, options_of

PAGES = Path(__file__).resolve().parents[4] / "docs/guides/pipelines"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
OF_RUN = ("--master", "--conf", "--file", "--output")


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page.name, found[2])
        for page in sorted(PAGES.glob("*.md"))
        for found in BLOCK.finditer(page.read_text())
        if found[1] == language
    ]


COMMANDS = [
    line for _, text in blocks("sh") for line in text.splitlines() if " pipeline run " in line
]


@pytest.mark.parametrize("name", SUMMARIES)
def test_there_is_a_page(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    assert f"({name}.md)" in (PAGES / "README.md").read_text()


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line: str) -> None:
    _, _, _, name, *words = shlex.split(line)
    own: list[str] = []
    while words:
        if words[0] in OF_RUN:
            del words[:2]
        else:
            own.append(words.pop(0))
    from_words(pipeline_of(name).Config, own)


def test_code_and_files_are_sound(tmp_path: Path) -> None:
    for _, text in blocks("python"):
        ast.parse(text)
    path = tmp_path / "file.toml"
    for page, text in blocks("toml"):
        path.write_text(text)
        if page == "quality.md":
            assert len(read_rules(path)) == 4
        else:
            assert from_file(pipeline_of("archive").Config, path)["follow"] is True


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_option_says_what_it_is_for_and_none_hides_behind_another(name: str) -> None:
    taken = {"master", "conf", "file", "output"} | run.__annotations__.keys() - {"context", "name"}
    for option in options_of(pipeline_of(name).Config):
        assert option.help.endswith("."), option.flag
        assert option.name not in taken - {"return"}, option.flag
