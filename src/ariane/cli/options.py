"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ariane.config import parse_properties
from ariane.errors import ConfigError

DEFAULT_NAMESRV = "127.0.0.1:9876"

NamesrvOption = Annotated[
    str,
    typer.Option(
        "--namesrv",
        "-n",
        envvar="ARIANE_NAMESRV",
        help="Name servers, as HOST:PORT;HOST:PORT.",
        metavar="HOST:PORT",
    ),
]
TopicArgument = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]


def pairs_of(texts: list[str], *, option: str) -> dict[str, str]:
    """KEY=VALUE words as a mapping; raises ConfigError for a word that is not one."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {text!r} is not KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def settings_in(path: Path | None) -> dict[str, str]:
    """What a file of settings says, nothing without one; raises ConfigError."""
    if path is None:
        return {}
    try:
        return parse_properties(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}") from error
