"""Options of a pipeline: typed, described where they are declared, and read from words or TOML.

A config is checked however it was made, so a program that builds one by hand gets the same errors
as the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from ariane.errors import ConfigError

C = TypeVar("C", bound="PipelineConfig")

Namesrv = Annotated[str, Meta(description="Name servers, as HOST:PORT;HOST:PORT.")]
Topics = Annotated[tuple[str, ...], Meta(description="The topics, with commas between them.")]
LakePath = Annotated[str, Meta(description="The lake's directory, on any file system Spark knows.")]
Checkpoint = Annotated[
    str, Meta(description="Where progress is kept; the same directory goes on where it stopped.")
]
Follow = Annotated[bool, Meta(description="Go on with what arrives, until Ctrl-C.")]
Interval = Annotated[float, Meta(description="Seconds between batches while following.", gt=0)]
BatchMessages = Annotated[int, Meta(description="Messages in a batch, at most.", ge=1)]
SourceOptions = Annotated[
    dict[str, str], Meta(description="Further options of the source, KEY=VALUE; repeatable.")
]
SinkOptions = Annotated[
    dict[str, str], Meta(description="Further options of the sink, KEY=VALUE; repeatable.")
]

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
BATCH_MESSAGES: Final = 1_000_000
# Options of the source that a pipeline sets by one of its own, where it has that.
SET_BY: Final = {
    "subscribe": "topics",
    "startingoffsets": "starting",
    "maxoffsetspertrigger": "batch_messages",
}
# And those that would have a pipeline read other messages than it thinks.
RANGES: Final = frozenset(
    {
        *("startingtimestamp", "startingoffsetsbytimestamp"),
        *("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"),
    }
)
KINDS: Final = {str: "TEXT", int: "NUMBER", float: "NUMBER", bool: "on or off"}
TRUE_WORDS: Final = ("true", "yes", "on", "1")
FALSE_WORDS: Final = ("false", "no", "off", "0")


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every pipeline's options; raises ConfigError for values that cannot be used."""

    def __post_init__(self) -> None:
        for option in options_of(type(self)):
            value = getattr(self, option.name)
            try:
                msgspec.convert(value, option.type)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{option.flag} {value!r}: {_said(error)}") from None
            if option.is_required and not value:
                raise ConfigError(f"{option.flag} is needed: {option.help}")
        self._check_source_options()
        self.check()

    def _check_source_options(self) -> None:
        names = self.__struct_fields__
        for name in getattr(self, "source_options", {}):
            own = SET_BY.get(name.lower())
            if own in names:
                self.refuse("source_options", f"{name} is set by --{own.replace('_', '-')}")
            if name.lower() in RANGES:
                self.refuse("source_options", f"{name}: what is read is for the pipeline to say")

    def check(self) -> None:
        """What options must hold together; raises ConfigError."""

    def refuse(self, flag: str, why: str) -> None:
        """Raise ConfigError about one option."""
        raise ConfigError(f"--{flag.replace('_', '-')}: {why}")


class Option(msgspec.Struct, frozen=True):
    """One option as a person is shown it."""

    name: str
    type: Any
    default: Any
    is_required: bool
    help: str

    @property
    def flag(self) -> str:
        """How the command line spells it."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_flag(self) -> bool:
        """Whether it stands alone on the command line."""
        return self._plain is bool

    @property
    def is_mapping(self) -> bool:
        """Whether it takes KEY=VALUE, and may be repeated."""
        return get_origin(self._plain) is dict

    @property
    def is_list(self) -> bool:
        """Whether it takes several values, with commas between them."""
        return get_origin(self._plain) is tuple

    @property
    def kind(self) -> str:
        """Its type in a word."""
        if self.is_mapping:
            return "KEY=VALUE"
        if self.is_list:
            return "A,B,C"
        choices = [str(choice) for choice in get_args(self._plain) if isinstance(choice, str)]
        return "|".join(choices) or KINDS[self._plain]

    @property
    def _plain(self) -> Any:
        return get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type


def options_of(config: type[PipelineConfig]) -> list[Option]:
    """What a config takes, in the order it is declared."""
    types = get_type_hints(config, include_extras=True)
    return [
        Option(
            name=field.name,
            type=types[field.name],
            default=_default_of(field),
            is_required=field.required,
            help=next(
                (m.description or "" for m in get_args(types[field.name]) if isinstance(m, Meta)),
                "",
            ),
        )
        for field in msgspec.structs.fields(config)
    ]


def from_words(config: type[C], words: Sequence[str], given: Mapping[str, Any] | None = None) -> C:
    """A config from `--option value` words, over what a file gave."""
    return _made(config, dict(given or {}) | _values_of(config, words))


def from_file(config: type[PipelineConfig], path: Path) -> dict[str, Any]:
    """Options from a TOML file, under the names the config gives them; dashes are as good."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    known = {option.name for option in options_of(config)}
    given = {name.replace("-", "_"): value for name, value in table.items()}
    if unknown := sorted(given.keys() - known):
        raise ConfigError(
            f"{path} has {', '.join(unknown)}; the options are {', '.join(sorted(known))}"
        )
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }


def _made(config: type[C], values: Mapping[str, Any]) -> C:
    for option in options_of(config):
        if option.is_required and option.name not in values:
            raise ConfigError(f"{option.flag} is needed: {option.help}")
    return config(**values)


def _values_of(config: type[PipelineConfig], words: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for option, text in _pairs(config, words):
        if option.is_mapping:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise ConfigError(f"{option.flag} {text!r} is not KEY=VALUE")
            values.setdefault(option.name, {})[key.strip()] = value.strip()
        elif option.is_list:
            parts = tuple(part.strip() for part in text.split(",") if part.strip())
            values[option.name] = values.get(option.name, ()) + parts
        elif option.is_flag:
            values[option.name] = _truth_of(option, text)
        else:
            try:
                values[option.name] = msgspec.convert(text, option.type, strict=False)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{option.flag} {text!r}: {_said(error)}") from None
    return values


def _pairs(config: type[PipelineConfig], words: Sequence[str]) -> Iterator[tuple[Option, str]]:
    by_flag = {option.flag: option for option in options_of(config)}
    waiting = iter(words)
    for word in waiting:
        flag, equals, text = word.partition("=")
        negated = (
            by_flag.get("--" + flag.removeprefix("--no-")) if flag.startswith("--no-") else None
        )
        option = by_flag.get(flag)
        if option is None and negated is not None and negated.is_flag and not equals:
            yield negated, "false"
            continue
        if option is None:
            raise ConfigError(
                f"there is no option {flag}; the options are {', '.join(sorted(by_flag))}"
            )
        if equals:
            yield option, text
        elif option.is_flag:
            yield option, "true"
        else:
            value = next(waiting, None)
            if value is None:
                raise ConfigError(f"{flag} wants a value: {option.help}")
            yield option, value


def _truth_of(option: Option, text: str) -> bool:
    if text.lower() in TRUE_WORDS:
        return True
    if text.lower() in FALSE_WORDS:
        return False
    raise ConfigError(f"{option.flag}={text} is neither true nor false")


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return None if field.required else field.default_factory()


def _said(error: msgspec.ValidationError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
