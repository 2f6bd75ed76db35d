"""Options of pipelines: from words, from files, by hand; and what is said of wrong ones."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, field

from ariane.errors import ConfigError
from ariane.spark.pipelines.settings import PipelineConfig, from_file, from_words, options_of


class Config(PipelineConfig, frozen=True, kw_only=True):
    topics: Annotated[tuple[str, ...], Meta(description="The topics.")]
    rate: Annotated[float, Meta(description="How fast.", ge=0)] = 0.0
    count: Annotated[int, Meta(description="How many.", ge=1)] = 10
    order: Annotated[Literal["queue", "key"], Meta(description="Which.")] = "queue"
    dry_run: Annotated[bool, Meta(description="Only look.")] = False
    source_options: Annotated[dict[str, str], Meta(description="More.")] = field(
        default_factory=dict
    )

    def check(self) -> None:
        if self.count == 13:
            raise ConfigError("--count 13 brings bad luck")


def test_every_kind_of_word() -> None:
    words = (
        "--topics a,b --topics=c --rate 2.5 --count=3 --order key --dry-run "
        "--source-options access=wire --source-options timeout=5s"
    )
    assert from_words(Config, words.split()) == Config(
        topics=("a", "b", "c"),
        rate=2.5,
        count=3,
        order="key",
        dry_run=True,
        source_options={"access": "wire", "timeout": "5s"},
    )


def test_words_win_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'topics = ["a"]\ndry-run = true\ncount = 5\n[source-options]\naccess = "wire"\n'
    )
    given = from_file(Config, path)
    config = from_words(Config, ["--no-dry-run", "--count", "6"], given)
    assert config == Config(topics=("a",), count=6, source_options={"access": "wire"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "--topics is needed: The topics."),
        ("--topics ,", "--topics is needed"),
        ("--topics a --cuont 3", "there is no option --cuont; the options are --count"),
        ("--topics a --count", "--count wants a value: How many."),
        ("--topics a --count many", "--count 'many': expected `int`"),
        ("--topics a --count 0", "--count '0': expected `int` >= 1"),
        ("--topics a --rate -1", "--rate '-1': expected `float` >= 0"),
        ("--topics a --order tag", "--order 'tag': invalid enum value 'tag'"),
        ("--topics a --dry-run=perhaps", "--dry-run=perhaps is neither true nor false"),
        ("--topics a --source-options wire", "--source-options 'wire' is not KEY=VALUE"),
        ("--topics a --count 13", "--count 13 brings bad luck"),
    ],
)
def test_wrong_words(words: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_words(Config, words.split())
    assert str(error.value).startswith(said)


def test_a_config_made_by_hand_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="--count 0: expected `int` >= 1"):
        Config(topics=("a",), count=0)
    with pytest.raises(ConfigError, match="--rate 'fast': expected `float`, got `str`"):
        Config(topics=("a",), rate="fast")  # type: ignore[arg-type]


def test_a_file_with_what_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("speed = 3\n")
    with pytest.raises(ConfigError, match=r"job\.toml has speed; the options are count, dry_run"):
        from_file(Config, path)
    path.write_text("speed = \n")
    with pytest.raises(ConfigError, match=r"job\.toml is not TOML"):
        from_file(Config, path)


def test_options_as_people_are_shown_them() -> None:
    shown = {
        option.flag: (option.kind, option.default, option.help) for option in options_of(Config)
    }
    assert shown == {
        "--topics": ("A,B,C", None, "The topics."),
        "--rate": ("NUMBER", 0.0, "How fast."),
        "--count": ("NUMBER", 10, "How many."),
        "--order": ("queue|key", "queue", "Which."),
        "--dry-run": ("on or off", False, "Only look."),
        "--source-options": ("KEY=VALUE", {}, "More."),
    }
